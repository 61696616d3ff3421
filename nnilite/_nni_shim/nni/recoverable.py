"""`nni.recoverable`: the base of NNI's tuners and assessors. Here it is that of tuners."""

from nnilite import Tuner as Recoverable

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["Recoverable"]
