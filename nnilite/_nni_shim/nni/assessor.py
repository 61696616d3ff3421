"""`nni.assessor`: the base class of custom assessors. It needs the whole nnilite, where they run."""

from nnilite import Assessor, AssessResult

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["AssessResult", "Assessor"]
