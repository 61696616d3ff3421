"""Grid search in rounds. Finite types are listed in full; each round halves the steps of continuous ones.

Round 0 tries the median of each continuous parameter, round 1 its quartiles, and so on; points of earlier rounds are
not tried again. The search ends if all types are finite; otherwise it never ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from nnilite.errors import NoMoreTrialError, SpaceError
from nnilite.space import Flat, Key, Parameter, SearchSpace
from nnilite.tuner import Tuner
from nnilite.tuning.learning import canonical, grid
from nnilite.tuning.positions import raw_at

log = logging.getLogger(__name__)

_BARREN_ROUNDS = 12
"""The space counts as exhausted after this many halvings without a new point (normal types with a large q)."""


class GridSearchTuner(Tuner):
    """NNI's GridSearch: all combinations, in finer and finer rounds where parameters are continuous.

    Args:
        optimize_mode: accepted as by other tuners, but has no effect.
    """

    def __init__(self, optimize_mode: str = "maximize") -> None:
        self._accept_customized_trials()
        self._taken: set[str] = set()  # proposed, imported or customised
        self._points: Iterator[Flat] = iter(())

    def update_search_space(self, search_space: Any) -> None:
        self.space = SearchSpace.parse(search_space)
        self._points = _rounds(self.space)

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        for flat in self._points:
            parameters = self.space.build(flat)
            if self._accept(parameters):
                return parameters
        raise NoMoreTrialError

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        self._accept(parameters)

    def import_data(self, data: list[dict[str, Any]]) -> None:
        """Mark points that were run elsewhere, so that they are not run again."""
        for item in data:
            if item.get("value") is not None:
                self._accept(item.get("parameter"))

    def _accept(self, parameters: Any) -> bool:
        try:
            parameters = self.space.build(self.space.flatten(parameters))
        except SpaceError:
            return False
        key = canonical(parameters)
        if key in self._taken:
            return False
        self._taken.add(key)
        return True


def _rounds(space: SearchSpace) -> Iterator[Flat]:
    before: dict[Key, frozenset[int | float]] = {}
    barren = 0
    number = 0
    while barren < _BARREN_ROUNDS:
        values = {p.path: _values(p, number) for p in space.parameters}
        sets = {path: frozenset(found) for path, found in values.items()}
        barren = barren + 1 if sets == before else 0
        if not barren:
            log.info("grid search begins round %d", number)
            for flat in grid(space, lambda p, values=values: values[p.path]):  # type: ignore[misc]
                if not before or any(raw not in before[path] for path, raw in flat.items()):
                    yield flat
        if all(p.count is not None for p in space.parameters):
            return
        before, number = sets, number + 1


def _values(parameter: Parameter, number: int) -> list[int | float]:
    if parameter.count is not None:
        return list(parameter.points())
    steps = 2 ** (number + 1)
    return list(dict.fromkeys(raw_at(parameter, k / steps) for k in range(1, steps)))
