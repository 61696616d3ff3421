"""`nni.typehint`: NNI's names of types, for annotations."""

from typing import Any, Dict

Parameters = Dict[str, Any]
SearchSpace = Dict[str, Any]
TrialMetric = Any
TrialRecord = Dict[str, Any]
ParameterRecord = Dict[str, Any]
