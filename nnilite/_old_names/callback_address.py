"""`nnilite.callback_address` is `nnilite.services.callback_address`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import callback_address

warnings.warn(
    "nnilite.callback_address has moved: import nnilite.services.callback_address", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = callback_address
