"""`nni.assessor`: the base class of custom assessors. It needs the whole nnilite, where they run."""

from nnilite import Assessor, AssessResult

__all__ = ["AssessResult", "Assessor"]
