"""`nni.tuner`: the base class of custom tuners. It needs the whole nnilite, where tuners run."""

from nnilite import Tuner

__all__ = ["Tuner"]
