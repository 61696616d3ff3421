"""`nnilite.bootstrap` is `nnilite.services.bootstrap`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import bootstrap

warnings.warn("nnilite.bootstrap has moved: import nnilite.services.bootstrap", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = bootstrap
