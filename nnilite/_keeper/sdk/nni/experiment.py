"""`nni.experiment`: launching experiments from Python. It needs the whole nnilite."""

from nnilite import Experiment

__all__ = ["Experiment"]
