"""`nni.common.hpo_utils`: what custom tuners use of it. It needs the whole nnilite, where tuners run.

formatting     a search space by paths, and the two forms that parameters take
dedup          parameters that were tried before become others
validation     the check of a search space
optimize_mode  the two directions of a search
"""

from .dedup import Deduplicator
from .formatting import ParameterSpec, deformat_parameters, format_parameters, format_search_space
from .optimize_mode import OptimizeMode
from .validation import validate_search_space

__all__ = [
    "Deduplicator",
    "OptimizeMode",
    "ParameterSpec",
    "deformat_parameters",
    "format_parameters",
    "format_search_space",
    "validate_search_space",
]
