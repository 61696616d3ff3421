"""`Auto`: the tuner for those who do not want to choose one.

It hands over from one algorithm to the next within a search. Which one is next follows from the search space, the
objectives and the number of results alone, so that a replay chooses the same.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import NamedTuple

from nnilite.records import Json
from nnilite.space import ParameterKind, SearchSpace
from nnilite.tuning.learning import LearningTuner, Point, PointState
from nnilite.tuning.objectives import gains
from nnilite_optuna._bayes import BayesTuner
from nnilite_optuna._cmaes import CMAESTuner
from nnilite_optuna._fronts import FrontTuner
from nnilite_optuna._nsga2 import NSGA2Tuner, checked_signs
from nnilite_optuna._tpe import TPETuner

log = logging.getLogger(__name__)

_MOST_MODELLED = 300  # results; with more, a Gaussian process costs more than it gains
_MOST_PARAMETERS = 40  # with more, the distances on which the process depends say little
_MOST_OBJECTIVES = 4  # with more, nearly all points are on the front


class NextAlgorithm(NamedTuple):
    """An algorithm, and why it is the one."""

    name: str
    reason: str


def choose(space: SearchSpace, objectives: int, results: int, limited: bool = False) -> NextAlgorithm:
    """Return which algorithm proposes next, after so many results. `limited`: there are result constraints."""
    count = len([p for p in space.parameters if p.count != 1])
    if objectives > 1:
        return _choose_for_front(objectives, count, results)
    if count > _MOST_PARAMETERS:
        return NextAlgorithm("TPE", f"there are more than {_MOST_PARAMETERS} parameters")
    if results < _MOST_MODELLED:
        return NextAlgorithm("GP", f"a Gaussian process does best in the first {_MOST_MODELLED} results")
    if limited:
        return NextAlgorithm("TPE", f"there are {_MOST_MODELLED} results or more, and constraints on results")
    if count and _only_numbers(space):
        return NextAlgorithm("CMAES", f"there are {_MOST_MODELLED} results or more, and all parameters are continuous")
    return NextAlgorithm("TPE", f"there are {_MOST_MODELLED} results or more, and not all parameters are continuous")


def _choose_for_front(objectives: int, parameters: int, results: int) -> NextAlgorithm:
    several = f"there are {objectives} objectives"
    if objectives > _MOST_OBJECTIVES:
        return NextAlgorithm("NSGA2", several)
    if parameters > _MOST_PARAMETERS:
        return NextAlgorithm("NSGA2", f"{several} and more than {_MOST_PARAMETERS} parameters")
    if results < _MOST_MODELLED:
        return NextAlgorithm(
            "GP", f"{several}, and a Gaussian process for each does best in the first {_MOST_MODELLED} results"
        )
    return NextAlgorithm("NSGA2", f"{several} and {_MOST_MODELLED} results or more")


def _only_numbers(space: SearchSpace) -> bool:
    return all(p.count == 1 or (p.kind is not ParameterKind.CHOICE and p.count is None) for p in space.parameters)


class AutoTuner(LearningTuner):
    """Chooses the algorithm by itself, and changes it as results come. All space types, one objective or several.

    With one objective, a Gaussian process proposes the first hundreds of trials, then TPE, or CMA-ES where all
    parameters are continuous; of more than forty parameters, TPE proposes from the beginning. With two to four
    objectives, a process of each proposes the first hundreds, then NSGA-II. The tuner's log has a line for each choice.

    Args:
        optimize_mode: "maximize" or "minimize".
        objectives: for several objectives, name -> "maximize" or "minimize".
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    weighs_violations = True

    def __init__(
        self,
        optimize_mode: str = "maximize",
        objectives: Mapping[str, str] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed)
        self._objectives = None if objectives is None else dict(objectives)
        self._signs = checked_signs(objectives) if objectives is not None else {"default": -self.sign}

    def explain_choice(self) -> str:
        """Return which algorithm proposes now, and why."""
        return f"{self._chosen.name} proposes parameters: {self._chosen.reason}"

    def _losses(self, value: Json) -> tuple[float, ...] | None:
        if self._objectives is None:
            return super()._losses(value)
        found = gains(value, self._signs)
        return None if found is None else tuple(-gain for gain in found)

    def _restart(self) -> None:
        self._events: list[tuple[Point, PointState]] = []
        self._results = 0
        self._hand_over(choose(self.space, len(self._signs), 0))

    def _opened(self, point: Point) -> None:
        self._events.append((point, PointState.RUNNING))
        self._searcher._opened(point)

    def _closed(self, point: Point) -> None:
        self._events.append((point, point.state))
        self._searcher._closed(point)
        if point.state is PointState.DONE:
            self._results += 1
            choice = choose(self.space, len(self._signs), self._results, bool(self._limits))
            if choice.name != self._chosen.name:
                self._hand_over(choice)

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        return self._searcher._suggest(parameter_id, rng)

    def _hand_over(self, choice: NextAlgorithm) -> None:
        """Let another algorithm learn all that happened, in its order, and continue the search.

        This is done at once and not at the next proposal, so that a replay does it at the same event.
        """
        self._chosen, self._searcher = choice, self._made(choice.name)
        self.scores_prior = self._searcher.scores_prior
        self._searcher.serve(self)
        for point in self.points:
            point.notes.clear()
        for point, state in self._events:
            if state is PointState.RUNNING:
                self._searcher._opened(point)
            else:
                self._searcher._closed(point)
        log.info("after %d results, %s", self._results, self.explain_choice())

    def _made(self, name: str) -> LearningTuner:
        if name == "NSGA2":
            return NSGA2Tuner(self._objectives or {}, seed=self.seed)
        if name == "GP" and len(self._signs) > 1:
            return FrontTuner(len(self._signs), seed=self.seed)
        kinds: dict[str, type[LearningTuner]] = {"GP": BayesTuner, "CMAES": CMAESTuner, "TPE": TPETuner}
        return kinds[name](optimize_mode="minimize", seed=self.seed)
