"""Runs the parameter sets that the user wrote down, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnilite.errors import NoMoreTrialError, Place, SpaceError
from nnilite.tuner import Tuner
from nnilite.tuning.learning import canonical

if TYPE_CHECKING:
    from nnilite.records import Json

_RIGHT = 'right would be {"combine": {"_type": "choice", "_value": [{"lr": 0.1, "width": 8}, {"lr": 0.2, "width": 4}]}}'


class BatchTuner(Tuner):
    """NNI's Batch: the space is one choice, whose options are what trials get, mostly whole parameter sets."""

    def __init__(self) -> None:
        self._accept_customized_trials()
        self._sets: list[Json] = []
        self._done: set[str] = set()  # proposed, imported or added by the user

    def update_search_space(self, search_space: Any) -> None:
        self._sets = _read_parameter_sets(search_space)

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        for parameters in self._sets:
            key = canonical(parameters)
            if key not in self._done:
                self._done.add(key)
                return parameters
        raise NoMoreTrialError("all parameter sets of the batch have been proposed")

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        self._done.add(canonical(parameters))

    def import_data(self, data: list[dict[str, Any]]) -> None:
        """Mark parameter sets that were run elsewhere, so that they are not run again."""
        self._done.update(canonical(item.get("parameter")) for item in data if item.get("value") is not None)


def _read_parameter_sets(space: Any) -> list[Json]:
    if not isinstance(space, dict) or len(space) != 1:
        raise SpaceError(f"Batch needs a space with exactly one parameter; {_RIGHT}", Place(field="searchSpace"))
    ((name, definition),) = space.items()
    place = Place(field=f"searchSpace.{name}")
    if not isinstance(definition, dict) or definition.get("_type") != "choice":
        raise SpaceError(f"Batch needs a parameter of type choice; {_RIGHT}", place)
    sets = definition.get("_value")
    if not isinstance(sets, list) or not sets:
        raise SpaceError(f"the options of a batch must be a list; {_RIGHT}", place)
    return sets
