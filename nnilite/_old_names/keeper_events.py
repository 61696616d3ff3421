"""`nnilite.keeper_events` is `nnilite.services.keeper_events`. The old name goes with version 0.2."""

import sys
import warnings

from nnilite.services import keeper_events

warnings.warn(
    "nnilite.keeper_events has moved: import nnilite.services.keeper_events", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = keeper_events
