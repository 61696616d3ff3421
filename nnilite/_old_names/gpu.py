"""`nnilite.gpu` is `nnilite.services.gpu`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import gpu

warnings.warn("nnilite.gpu has moved: import nnilite.services.gpu", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = gpu
