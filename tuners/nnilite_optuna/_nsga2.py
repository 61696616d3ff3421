"""NSGA-II: search several objectives for a front of trials that no other trial beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.tuning.class_args import number, whole_number
from nnilite.tuning.learning import Point
from nnilite.tuning.objectives import gains, signs
from nnilite_optuna._study import OptunaTuner

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import NSGAIISampler
    from optuna.trial import FrozenTrial, TrialState


class NSGA2Tuner(OptunaTuner):
    """Searches the trade-off of several objectives (Deb et al., 2002), by optuna's NSGAIISampler. All space types.

    The final result of a trial is a dict with a finite number for each objective.

    Args:
        objectives: name -> "maximize" or "minimize", as `{"accuracy": "maximize", "latency": "minimize"}`.
        population_size: trials of a generation.
        mutation_prob: chance that a parameter is drawn from its whole range; None: 1 / number of parameters.
        crossover_prob: chance that a trial has two parents.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    weighs_violations = True

    def __init__(
        self,
        objectives: Mapping[str, str],
        population_size: int = 50,
        mutation_prob: float | None = None,
        crossover_prob: float = 0.9,
        seed: int | None = None,
    ) -> None:
        super().__init__("minimize", seed)
        self._signs = checked_signs(objectives)
        self._size = whole_number("population_size", population_size, low=2)
        self._mutation = None if mutation_prob is None else number("mutation_prob", mutation_prob, 0.0, 1.0)
        self._crossover = number("crossover_prob", crossover_prob, 0.0, 1.0)

    def _make_sampler(self, nested: bool) -> NSGAIISampler:
        self._generation = -1
        whole = None if nested else {name: self._always[name] for name in sorted(self._always)}
        self._genetic = _make_remembering_sampler(whole)(
            population_size=self._size, mutation_prob=self._mutation, crossover_prob=self._crossover
        )
        return self._genetic

    def _list_directions(self) -> list[str]:
        return ["minimize"] * len(self._signs)

    def _losses(self, value: Json) -> tuple[float, ...] | None:
        found = gains(value, self._signs)
        return None if found is None else tuple(-gain for gain in found)

    def _opened(self, point: Point) -> None:
        super()._opened(point)
        trial = self._storage.get_trial(self._trial_id(self._number(point)))
        generation = self._genetic.get_trial_generation(self._study, trial)  # a replayed trial has none yet
        if generation != self._generation:
            self._generation = generation
            self._genetic.get_parent_population(self._study, generation)  # remembered by the study


def _make_remembering_sampler(whole: dict[str, BaseDistribution] | None) -> type[NSGAIISampler]:
    """Return a sampler that remembers the trials of each generation, which optuna would search for in all trials.

    `whole`: the parameters that every trial has, if that is all of them; optuna finds them out again for each trial.
    """
    from optuna.samplers import NSGAIISampler
    from optuna.trial import TrialState

    members: dict[int, list[int]] = {}  # generation -> ids of its completed trials

    moving = whole and {name: axis for name, axis in whole.items() if not axis.single()}

    class Remembering(NSGAIISampler):  # type: ignore[misc,unused-ignore]
        def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
            return super().infer_relative_search_space(study, trial) if moving is None else moving

        def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
            known = trial.system_attrs.get(self._get_generation_key())
            if known is not None:
                return int(known)
            last = next(reversed(members), 0)  # generations are completed in ascending order, at least their firsts
            generation = last + (len(members.get(last, ())) >= (self.population_size or 1))
            study._storage.set_trial_system_attr(trial._trial_id, self._get_generation_key(), generation)
            return generation

        def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
            return [study._storage.get_trial(trial_id) for trial_id in members.get(generation, ())]

        def after_trial(
            self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
        ) -> None:
            super().after_trial(study, trial, state, values)
            generation = trial.system_attrs.get(self._get_generation_key())
            if state is TrialState.COMPLETE and generation is not None:
                members.setdefault(int(generation), []).append(trial._trial_id)

    return Remembering


def checked_signs(objectives: Any) -> dict[str, float]:
    """Return 1 for each objective that is maximised, -1 for the others. Raises: ConfigError."""
    place = Place(field="classArgs.objectives")
    if not isinstance(objectives, Mapping) or not objectives:
        raise ConfigError('must be an object like {"accuracy": "maximize", "latency": "minimize"}', place)
    return signs({str(name): direction for name, direction in objectives.items()})
