"""`nni.trial`: the calls of trial code, as in NNI."""

from nnilite import (
    get_current_parameter,
    get_experiment_id,
    get_next_parameter,
    get_sequence_id,
    get_trial_id,
    report_final_result,
    report_intermediate_result,
)

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = [
    "get_current_parameter",
    "get_experiment_id",
    "get_next_parameter",
    "get_next_parameters",
    "get_sequence_id",
    "get_trial_id",
    "report_final_result",
    "report_intermediate_result",
]

get_next_parameters = get_next_parameter
