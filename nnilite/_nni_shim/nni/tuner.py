"""`nni.tuner`: the base class of custom tuners. It needs the whole nnilite, where tuners run."""

from nnilite import Tuner

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["Tuner"]
