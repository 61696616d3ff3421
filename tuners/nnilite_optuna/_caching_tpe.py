"""optuna's TPE, without what it repeats for each proposal: convert all trials, and sort them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import TPESampler
    from optuna.trial import FrozenTrial

Axes = dict[str, "BaseDistribution"]
Rank = tuple[int, float]  # the best first: results, those without a number, those that break a constraint
Row = list[float]  # optuna's internal numbers; []: the trial lacks a parameter


@cache
def get_caching_tpe() -> Callable[..., TPESampler]:
    """Return the sampler's class; proposals are those of `TPESampler` with one objective.

    Its `always`: the parameters that every trial has, if that is all of them; optuna finds them out for each trial.
    """
    import numpy as np
    from optuna.samplers import TPESampler
    from optuna.samplers._tpe.sampler import default_gamma

    class CachingTPE(TPESampler):  # type: ignore[misc,unused-ignore]
        def __init__(self, always: Axes | None, **arguments: Any) -> None:
            super().__init__(**arguments)
            self._moving = always and {name: always[name] for name in sorted(always) if not always[name].single()}
            self._ranks: dict[tuple[str, ...], TrialRanks] = {}  # by the parameter names that are proposed together

        def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Axes:
            if self._moving is None or not self._is_multivariate(study) or not self._n_startup_trials:
                return dict(super().infer_relative_search_space(study, trial))
            return self._moving

        def _sample(self, study: Study, trial: FrozenTrial, search_space: Axes) -> dict[str, Any]:
            ranks = self._ranks.setdefault(tuple(search_space), TrialRanks(search_space))
            trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
            ranks.learn(trials)
            rows = ranks.rows
            if self._constant_liar:
                running = [other for other in ranks.list_running(trials) if other.number != trial.number]
                rows = rows | {other.number: ranks.read(self._get_params(other, study)) for other in running}
            best = ranks.find_best(self._gamma or default_gamma)

            def estimator(chosen: list[Row]) -> Any:
                columns = np.array(chosen, dtype=float).reshape(-1, len(search_space)).T
                observed = dict(zip(search_space, np.ascontiguousarray(columns), strict=True))
                return self._parzen_estimator_cls(observed, search_space, self._parzen_estimator_parameters)

            below = estimator([rows[number] for number in sorted(best) if rows[number]])
            above = estimator([rows[number] for number in sorted(rows.keys() - best) if rows[number]])
            drawn = below.sample(self._rng.rng, self._n_ei_candidates)
            chosen = self._compare(drawn, self._compute_acquisition_func(drawn, below, above))
            return {name: axis.to_external_repr(chosen[name]) for name, axis in search_space.items()}

    return CachingTPE


class TrialRanks:
    """What is known of the trials that have ended: rank and row of those that did not fail, by their number."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._open: set[int] = set()
        self._seen = 0
        self._ranks: list[tuple[Rank, int]] = []
        self.rows: dict[int, Row] = {}

    def learn(self, trials: Sequence[FrozenTrial]) -> None:
        """Take what has ended since the last call."""
        from optuna.trial import TrialState

        self._open.update(range(self._seen, len(trials)))
        self._seen = len(trials)
        for number in sorted(self._open):
            trial = trials[number]
            if not trial.state.is_finished():
                continue
            self._open.remove(number)
            if trial.state is not TrialState.FAIL:
                self._ranks.append((rank(trial), number))
                self.rows[number] = self.read(trial.params)

    def list_running(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        return [trials[number] for number in self._open]

    def find_best(self, share: Callable[[int], int]) -> set[int]:
        """Return the numbers of the best trials; `share` says how many they are, of so many."""
        return {number for _, number in heapq.nsmallest(share(len(self._ranks)), self._ranks)}

    def read(self, given: Mapping[str, Any]) -> Row:
        if not self._axes.keys() <= given.keys():
            return []
        return [axis.to_internal_repr(given[name]) for name, axis in self._axes.items()]


def rank(trial: FrozenTrial) -> Rank:
    """Return the place of an ended trial among others."""
    violation = sum(margin for margin in trial.constraints.values() if margin > 0)
    if violation > 0:
        return 2, violation
    return (1, 0.0) if trial.value is None else (0, trial.value)
