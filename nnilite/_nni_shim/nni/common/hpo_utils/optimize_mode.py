"""`nni.common.hpo_utils.optimize_mode`: the two directions of a search."""

from ...utils import OptimizeMode

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["OptimizeMode"]
