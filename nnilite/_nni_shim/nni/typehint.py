"""`nni.typehint`: NNI's names of types, for annotations."""

from typing import Any, Dict

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

Parameters = Dict[str, Any]
SearchSpace = Dict[str, Any]
TrialMetric = Any
TrialRecord = Dict[str, Any]
ParameterRecord = Dict[str, Any]
