"""`nnilite.worker_side` is `nnilite.services.worker_side`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import worker_side

warnings.warn("nnilite.worker_side has moved: import nnilite.services.worker_side", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = worker_side
