"""`nnilite.keeper_folder` is `nnilite.services.keeper_folder`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import keeper_folder

warnings.warn(
    "nnilite.keeper_folder has moved: import nnilite.services.keeper_folder", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = keeper_folder
