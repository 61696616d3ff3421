"""`nni.recoverable`: the base of NNI's tuners and assessors. Here it is that of tuners."""

from nnilite import Tuner as Recoverable

__all__ = ["Recoverable"]
