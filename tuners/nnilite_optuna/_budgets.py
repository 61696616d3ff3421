"""Hyperband, ASHA and BOHB: many trials with a small budget, few with the full one.

Each trial gets `TRIAL_BUDGET` in addition to the parameters: epochs, minutes or whatever the budget means there. The
three differ in the schedule and in the source of new parameters.
"""

from __future__ import annotations

import random
from heapq import nsmallest
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.tuning.class_args import number, one_of, whole_number, without_effect
from nnilite.tuning.learning import LearningTuner, Point, PointState, canonical
from nnilite_optuna._brackets import AshaSchedule, HyperbandSchedule, Schedule, Slot
from nnilite_optuna._caching_tpe import get_caching_tpe
from nnilite_optuna._study import OptunaTuner

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from nnilite.space import SearchSpace

BUDGET = "TRIAL_BUDGET"
LOAD, SAVE = "load_checkpoint_dir", "save_checkpoint_dir"
_SLOT, _TAKEN, _COPY = "slot", "begun anew", "copy in the model"
_TRIES = 20  # to draw parameters that no candidate has had


class BudgetTuner(LearningTuner):
    """A tuner that follows a schedule. A subclass gives the schedule, and may give better than random parameters.

    The best `_eta` of the results that came from elsewhere, or that are older than the search space, start again as the
    first candidates. Where the space is finite, a new candidate has parameters that none had, if there are some left.
    """

    distinct = False  # the same parameters come again, with a larger budget
    extra_keys = frozenset((BUDGET, LOAD, SAVE))
    _next: Slot | None = None
    _planned = False  # False while old points are shown to a new plan: they teach, but have no slot in it

    def __init__(self, optimize_mode: str, seed: int | None, eta: int, all_checkpoint_dir: str | None) -> None:
        super().__init__(optimize_mode, seed)
        self._eta = whole_number("eta", eta, low=2)
        self._directory = PurePath(all_checkpoint_dir) if all_checkpoint_dir else None

    def _schedule(self) -> Schedule:
        """Return a new schedule. It numbers candidates from the count of points on.

        A number names a checkpoint folder, which must not be one of a former search space's.
        """
        raise NotImplementedError

    def _fresh(self, parameter_id: int, rng: random.Random) -> Json:
        """Return new parameters, without the budget."""
        flat = next((point.flat for point in self._older if _TAKEN not in point.notes), None)
        return self.space.sample(rng) if flat is None else self.space.build(flat)

    def _restart(self) -> None:
        self._plan = self._schedule()
        self._next = None
        self._older: list[Point] = []  # the best of the results that have no slot in the plan
        self._tried = _Tried(self.space)

    def update_search_space(self, search_space: Any) -> None:
        self._planned = False
        super().update_search_space(search_space)
        self._planned = True

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        slot = self._next = self._next or self._plan.next()
        if slot.candidate.flat is None:
            parameters = self._tried.replace(self._fresh(parameter_id, rng), rng)
        else:
            parameters = self.space.build(slot.candidate.flat)
        return {**parameters, BUDGET: slot.budget, **self._checkpoints(slot)}

    def _checkpoints(self, slot: Slot) -> dict[str, str]:
        if self._directory is None:
            return {}
        own = self._directory / str(slot.candidate.number)
        return {LOAD: str(own / str(max(slot.rung - 1, 0))), SAVE: str(own / str(slot.rung))}

    def _opened(self, point: Point) -> None:
        if not self._planned or point.parameter_id not in self._running or not _has_budget(point):
            return
        slot = self._next or self._plan.next()
        self._next = None
        if slot.candidate.flat is None:
            slot.candidate.flat = point.flat
            self._tried.add(point)
            for older in self._older:
                if older.flat == point.flat:
                    older.notes[_TAKEN] = True
        point.notes[_SLOT] = slot

    def _closed(self, point: Point) -> None:
        slot = point.notes.get(_SLOT)
        if slot is not None:
            self._plan.record_end(slot, point.loss)
            if point.state is PointState.FAILED:
                self._tried.discard(point)  # it may have been bad luck
        elif point.state is PointState.DONE and point not in self._tried:
            self._older = nsmallest(self._eta, [*self._older, point], key=lambda older: older.loss or 0.0)


class _Tried:
    """The parameters that candidates have had, where the space is finite."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._names: set[str] = set()

    def __contains__(self, point: Point) -> bool:
        return bool(self._names) and self._name(point) in self._names

    def add(self, point: Point) -> None:
        if self._space.size is not None:
            self._names.add(self._name(point))

    def discard(self, point: Point) -> None:
        self._names.discard(self._name(point))

    def replace(self, parameters: Json, rng: random.Random) -> Json:
        """Return these parameters or, if a candidate had them, random new ones, unless a few tries find none."""
        for _ in range(_TRIES):
            if canonical(parameters) not in self._names:
                break
            parameters = self._space.sample(rng)
        return parameters

    def _name(self, point: Point) -> str:
        """Return a text that is equal for equal parameters, whatever the budget."""
        return canonical(self._space.build(point.flat or {}))


def _has_budget(point: Point) -> bool:
    return isinstance(point.parameters, dict) and BUDGET in point.parameters


def read_budget(point: Point, default: float) -> float:
    """Return the budget of a trial; customised and imported trials count as full unless they say otherwise."""
    given = point.parameters.get(BUDGET, default) if isinstance(point.parameters, dict) else default
    return float(given) if isinstance(given, (int, float)) and not isinstance(given, bool) else default


class HyperbandTuner(BudgetTuner):
    """NNI's Hyperband (Li et al., 2018). All space types.

    Args:
        optimize_mode: "maximize" or "minimize".
        R: the largest budget of a trial; 1 or more.
        eta: one of this many trials continues, with eta times the budget; 2 or more.
        exec_mode: "parallelism" (begin another bracket rather than wait) or "serial" (one bracket at a time).
        all_checkpoint_dir: see ASHA.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    def __init__(
        self,
        optimize_mode: str = "maximize",
        R: float = 60,
        eta: int = 3,
        exec_mode: str = "parallelism",
        all_checkpoint_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed, eta, all_checkpoint_dir)
        self._most = number("R", R, low=1)
        self._serial = one_of("exec_mode", exec_mode, ("parallelism", "serial")) == "serial"

    def _schedule(self) -> Schedule:
        return HyperbandSchedule(1.0, self._most, self._eta, self._serial, len(self.points))


class ASHATuner(BudgetTuner):
    """ASHA: asynchronous successive halving, with promotion (Li et al., 2020). All space types.

    A candidate pauses after each trial and continues, with eta times the budget, when it is among the best 1/eta of
    those that had the same budget. For the variant that stops running trials, use the assessor SuccessiveHalving.

    Args:
        optimize_mode: "maximize" or "minimize".
        min_budget: of a candidate's first trial.
        max_budget: of the longest trials.
        eta: one of this many candidates continues; 2 or more.
        all_checkpoint_dir: if given, trials also get `load_checkpoint_dir` (empty in a candidate's first trial) and
            `save_checkpoint_dir`, folders within this one, so that a candidate continues where it paused.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    def __init__(
        self,
        optimize_mode: str = "maximize",
        min_budget: float = 1,
        max_budget: float = 81,
        eta: int = 3,
        all_checkpoint_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed, eta, all_checkpoint_dir)
        self._least, self._most = _check_budgets(min_budget, max_budget)

    def _schedule(self) -> Schedule:
        return AshaSchedule(self._least, self._most, self._eta, len(self.points))


class BOHBTuner(BudgetTuner):
    """NNI's BOHB (Falkner et al., 2018): Hyperband with a model in place of chance. All space types, nested too.

    The model is optuna's multivariate TPE, on the results of the largest budget that has enough of them: as good ones
    at least `min_points_in_model`, and of the others at least one more than there are parameters.

    Args:
        optimize_mode: "maximize" or "minimize".
        min_budget: the smallest budget of a trial.
        max_budget: the largest one.
        eta: one of this many trials continues, with eta times the budget; 2 or more.
        min_points_in_model: results that count as good at least; None: one more than there are parameters.
        top_n_percent: which part of many results counts as good; 1 to 99.
        num_samples: candidates among which the model chooses.
        random_fraction: share of parameters that are drawn at random nevertheless.
        bandwidth_factor, min_bandwidth: no effect but a warning: the estimator chooses its bandwidths itself.
        config_space: NNI's path of a ConfigSpace file; refused, as the search space replaces it.
        all_checkpoint_dir: see ASHA.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    def __init__(  # noqa: PLR0913  NNI's arguments
        self,
        optimize_mode: str = "maximize",
        min_budget: float = 1,
        max_budget: float = 3,
        eta: int = 3,
        min_points_in_model: int | None = None,
        top_n_percent: int = 15,
        num_samples: int = 64,
        random_fraction: float = 1 / 3,
        bandwidth_factor: float = 3.0,
        min_bandwidth: float = 1e-3,
        config_space: str | None = None,
        all_checkpoint_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed, eta, all_checkpoint_dir)
        self._least, self._most = _check_budgets(min_budget, max_budget)
        if min_points_in_model is not None:
            whole_number("min_points_in_model", min_points_in_model, low=1)
        self._least_good = min_points_in_model
        self._share = whole_number("top_n_percent", top_n_percent, 1, 99) / 100.0
        self._samples = whole_number("num_samples", num_samples, low=1)
        self._luck = number("random_fraction", random_fraction, 0.0, 1.0)
        itself = "the estimator chooses its bandwidths itself"
        without_effect("bandwidth_factor", number("bandwidth_factor", bandwidth_factor, low=0.0), 3.0, itself)
        without_effect("min_bandwidth", number("min_bandwidth", min_bandwidth, low=0.0), 1e-3, itself)
        if config_space is not None:
            raise ConfigError("is not read; write searchSpace instead", Place(field="classArgs.config_space"))

    def _schedule(self) -> Schedule:
        return HyperbandSchedule(self._least, self._most, self._eta, first=len(self.points))

    def _restart(self) -> None:
        super()._restart()
        self._results: dict[float, list[Point]] = {}
        self._shown: dict[int, Point] = {}  # points that the model has been shown as running, by identity
        self._modelled: float | None = None
        others = len(self.space.parameters) + 1
        good = others if self._least_good is None else self._least_good
        self._needed = good + others
        self._model = _Density(good, self._share, self._samples, self.seed)
        self._model.update_search_space(self.space.json)

    def _opened(self, point: Point) -> None:
        super()._opened(point)
        slot = point.notes.get(_SLOT)
        if slot is None or slot.rung == 0:  # a candidate that continues is one of the best, and repels no others
            self._shown[id(point)] = point
            self._model.show(point)

    def _closed(self, point: Point) -> None:
        super()._closed(point)
        self._shown.pop(id(point), None)
        budget = read_budget(point, self._most)
        self._model.end(point, point.state is PointState.DONE and budget == self._modelled)
        if point.state is not PointState.DONE:
            return
        known = self._results.setdefault(budget, [])
        known.append(point)
        if len(known) >= self._needed and (self._modelled is None or budget > self._modelled):
            self._modelled = budget
            self._model.begin_again(known, list(self._shown.values()))

    def _fresh(self, parameter_id: int, rng: random.Random) -> Json:
        if self._modelled is None or rng.random() < self._luck:
            return super()._fresh(parameter_id, rng)
        return self._model.propose(parameter_id, rng)


class _Density(OptunaTuner):
    """The model of BOHB: multivariate TPE on the results of one budget."""

    def __init__(self, good: int, share: float, samples: int, seed: int) -> None:
        super().__init__("minimize", seed)
        self._good, self._share, self._samples = good, share, samples

    def _make_sampler(self, nested: bool) -> BaseSampler:
        return get_caching_tpe()(
            always=None if nested else self._always,
            n_startup_trials=1,
            n_ei_candidates=self._samples,
            multivariate=True,
            group=nested,
            constant_liar=True,
            gamma=lambda count: max(self._good, int(self._share * count)),
        )

    def begin_again(self, known: list[Point], running: list[Point]) -> None:
        """Forget all results, then learn from the known ones."""
        self._restart()
        for point in (*known, *running):
            self.show(point)
        for point in known:
            self.end(point, True)

    def show(self, point: Point) -> None:
        """Record that this point runs now, on whichever budget."""
        copy = point.notes[_COPY] = Point(point.parameters, point.flat)
        self._opened(copy)

    def end(self, point: Point, counts: bool) -> None:
        if counts and _COPY not in point.notes:
            self.show(point)
        copy = point.notes.pop(_COPY, None)
        if copy is not None:
            copy.state = PointState.DONE if counts else PointState.FAILED
            copy.losses = point.losses
            self._closed(copy)

    def propose(self, parameter_id: int, rng: random.Random) -> Json:
        parameters = self._suggest(parameter_id, rng)
        self._discard()
        return parameters


def _check_budgets(low: float, high: float) -> tuple[float, float]:
    least, most = number("min_budget", low, low=1e-9), number("max_budget", high, low=1e-9)
    if least > most:
        raise ConfigError(
            f"must not be below min_budget ({least:g}), but is {most:g}", Place(field="classArgs.max_budget")
        )
    return least, most
