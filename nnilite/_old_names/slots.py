"""`nnilite.slots` is `nnilite.services.slots`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import slots

warnings.warn("nnilite.slots has moved: import nnilite.services.slots", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = slots
