"""The base class of tuners: NNI's, method by method, and `replay`, which restores a tuner after a crash."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nnilite._states import CallKind
from nnilite.errors import NoMoreTrialError

__all__ = ["EXTRAS", "Call", "CallKind", "NoMoreTrialError", "Tuner", "scalar"]

EXTRAS = frozenset(("TRIAL_BUDGET", "load_checkpoint_dir", "save_checkpoint_dir"))
"""Keys that some tuners add to the parameters of the search space. Other tuners ignore them."""


@dataclass(frozen=True)
class Call:
    """One recorded call of a tuner, for `Tuner.replay`. Fields that a kind does not have are None.

    kind            what was called
    GENERATE        generate_parameters(parameter_id), which returned `parameters`
    RESULT          receive_trial_result(parameter_id, parameters, value, customized=..., trial_job_id=...)
    END             trial_end(parameter_id, success, trial_job_id=...)
    IMPORT          import_data(value)
    SPACE           update_search_space(value)
    """

    kind: CallKind
    parameter_id: int | None = None
    trial_job_id: str | None = None
    parameters: Any = None
    value: Any = None
    success: bool | None = None
    customized: bool = False


class Tuner:
    """Proposes parameters and learns from results.

    A subclass implements `generate_parameters`, `receive_trial_result` and `update_search_space`. All calls come from
    one thread, `update_search_space` first. An exception other than `NoMoreTrialError` ends the experiment with the
    traceback. Parameter ids count from 0 and are never reused; they are None for a customised trial.

        class Luck(Tuner):
            def update_search_space(self, search_space): self.space = search_space
            def generate_parameters(self, parameter_id, **kwargs): return {"x": random.random()}
            def receive_trial_result(self, parameter_id, parameters, value, **kwargs): pass
    """

    _customized = False

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        """Return one set of parameters (JSON). Raises: NoMoreTrialError if there is none left."""
        raise NotImplementedError(f"{type(self).__name__} must implement generate_parameters")

    def generate_multiple_parameters(self, parameter_id_list: list[int], **kwargs: Any) -> list[Any]:
        """Return one set of parameters for each id. A shorter list means that there are no more."""
        result: list[Any] = []
        for parameter_id in parameter_id_list:
            try:
                result.append(self.generate_parameters(parameter_id, **kwargs))
            except NoMoreTrialError:
                break
        return result

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        """Learn the final metric of a trial, as reported (a number, or a dict with `default`).

        kwargs: `customized` (bool), `trial_job_id` (str).
        """
        raise NotImplementedError(f"{type(self).__name__} must implement receive_trial_result")

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        """Note that a trial has ended; its result, if it has one, came before. kwargs: `trial_job_id` (str)."""

    def update_search_space(self, search_space: Any) -> None:
        """Take the search space, before all other calls and whenever the user changes it. Raises: SpaceError."""
        raise NotImplementedError(f"{type(self).__name__} must implement update_search_space")

    def import_data(self, data: list[dict[str, Any]]) -> None:
        """Learn results from elsewhere: a list of `{"parameter": ..., "value": ...}`."""

    def replay(self, calls: Iterable[Call]) -> None:
        """Bring a new instance to the state that the recorded calls had led to.

        The default makes the calls again, in order. This suits any tuner, and is exact for a deterministic one. A tuner
        whose proposals take long should override it and use the recorded parameters without computing them again.
        """
        for call in calls:
            self.apply(call)

    def apply(self, call: Call) -> None:
        """Make one recorded call. Results of customised trials reach only a tuner that accepts them."""
        if call.kind == CallKind.GENERATE and call.parameter_id is not None:
            with suppress(NoMoreTrialError):
                self.generate_parameters(call.parameter_id)
        elif call.kind == CallKind.RESULT and (self._customized or not call.customized):
            self.receive_trial_result(
                call.parameter_id,
                call.parameters,
                call.value,
                customized=call.customized,
                trial_job_id=call.trial_job_id,
            )
        elif call.kind == CallKind.END and call.parameter_id is not None:
            self.trial_end(call.parameter_id, bool(call.success), trial_job_id=call.trial_job_id)
        elif call.kind == CallKind.IMPORT:
            self.import_data(call.value)
        elif call.kind == CallKind.SPACE:
            self.update_search_space(call.value)

    def _accept_customized_trials(self, accept: bool = True) -> None:
        """Receive the results of trials that the user added. A tuner calls this in `__init__`."""
        self._customized = accept

    def load_checkpoint(self) -> None:
        """Load a checkpoint; called where overridden, before the `replay` of an experiment that had begun already."""

    def save_checkpoint(self) -> None:
        """Save a checkpoint; called where overridden, when the tuner's process ends in good order."""

    def get_checkpoint_path(self) -> str | None:
        """Return a folder of the experiment where a tuner may keep files, or None."""
        path = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        return path if path and os.path.isdir(path) else None  # noqa: PTH112  pathlib is dear to import

    def _on_exit(self) -> None:
        """React to the end of the experiment."""

    def _on_error(self) -> None:
        """React to the end of the tuner's process because of an error."""


def scalar(value: Any, key: str = "default") -> float | None:
    """Return the number of a metric: the metric itself, or a dict's `default`; None if it is not a finite number."""
    if isinstance(value, dict):
        value = value.get(key)
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # it is an integer too large for a float
        return None
    return number if math.isfinite(number) else None
