"""`nni.common.hpo_utils.optimize_mode`: the two directions of a search."""

from ...utils import OptimizeMode

__all__ = ["OptimizeMode"]
