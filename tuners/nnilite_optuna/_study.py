"""An optuna study in memory, and the tuner that drives one.

Who owns what: the `LearningTuner` owns the points; the study is a model of them, rebuilt when the search space changes.
A running point is a RUNNING trial (so that the samplers' constant liar sees it), a finished one COMPLETE, a poor one
PRUNED without a value, one that failed FAIL. optuna's own values are derived from the parameters that the trial got, in
a live search and in a replay alike.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nnilite.records import Json
from nnilite.space import Flat
from nnilite.tuning.learning import LearningTuner, Point, PointState

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler
    from optuna.storages import InMemoryStorage
    from optuna.trial import TrialState

_SHARED = "tpe:relative_params"
"""Parallel optuna workers share unfinished proposals in these attributes; a replay would not have them."""


_NUMBER = "optuna trial"
_CONSTRAINT = "constraints:"
"""optuna's samplers look for constraints in these attributes, where `Trial.set_constraint` writes them."""
_INNER_SAMPLERS = ("_random_sampler", "_independent_sampler")


def import_optuna() -> Any:
    """Import optuna with its log limited to warnings; the manager writes the line for each trial."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _memory() -> InMemoryStorage:
    from optuna.storages import InMemoryStorage

    class StudyMemory(InMemoryStorage):
        def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
            if not key.startswith(_SHARED):
                super().set_trial_system_attr(trial_id, key, value)

    return StudyMemory()


class OptunaTuner(LearningTuner):
    """A tuner around an optuna sampler, which `_make_sampler` makes. All space types, nested ones included."""

    _asked: optuna.trial.Trial | None = None

    def _make_sampler(self, nested: bool) -> BaseSampler:
        """Return a new sampler; `nested`: some parameters exist only under an option of another one."""
        raise NotImplementedError

    def _list_directions(self) -> list[str]:
        return ["minimize"]

    def _restart(self) -> None:
        optuna = import_optuna()
        from nnilite_optuna._axes import list_axes

        self._axes = list_axes(self.space)
        # What exists in every trial is asked for at once, which spares optuna a distribution for each value.
        self._always = {axis.name: axis.distribution for axis in self._axes if not axis.conditional}
        self._storage = _memory()
        with quiet():
            sampler = self._make_sampler(any(axis.conditional for axis in self._axes))
        self._study = optuna.create_study(storage=self._storage, sampler=sampler, directions=self._list_directions())
        self._study_id = self._storage.get_study_id_from_name(self._study.study_name)
        self._asked = None

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        self._discard()
        reseed(self._study.sampler, rng.getrandbits(32))
        with quiet():
            self._asked = self._study.ask(self._always)
            given = self._get_inner(self._asked)
            flat: Flat = {}
            for axis in self._axes:
                if axis.name in given:
                    flat[axis.path] = axis.decode(given[axis.name])
                elif axis.active(flat):
                    flat[axis.path] = axis.suggest(self._asked)
        return self.space.build(flat)

    def _get_inner(self, trial: optuna.trial.Trial) -> Mapping[str, Any]:
        """Return optuna's values as they are stored: `trial.params` copies all of them each time."""
        return self._storage.get_trial(trial._trial_id).params

    def _discard(self) -> None:
        from optuna.trial import TrialState

        if self._asked is not None:
            self._end(self._asked.number, TrialState.FAIL)
            self._asked = None

    def _opened(self, point: Point) -> None:
        flat = point.flat or {}
        inner = {axis.name: axis.encode(flat[axis.path]) for axis in self._axes if axis.path in flat}
        if self._asked is not None and self._get_inner(self._asked).keys() == inner.keys():
            self._correct(self._asked, inner)
        else:
            self._discard()
            self._add(inner)
        self._asked = None
        point.notes[_NUMBER] = len(self._storage.get_all_trials(self._study_id, deepcopy=False)) - 1

    def _correct(self, trial: optuna.trial.Trial, inner: dict[str, int | float]) -> None:
        """Make the trial match the parameters, to the last digit."""
        given = self._get_inner(trial)
        for axis in self._axes:
            if axis.name in inner and given[axis.name] != inner[axis.name]:
                internal = axis.distribution.to_internal_repr(inner[axis.name])
                self._storage.set_trial_param(self._trial_id(trial.number), axis.name, internal, axis.distribution)

    def _add(self, inner: dict[str, int | float]) -> None:
        from optuna.trial import TrialState, create_trial

        distributions = {axis.name: axis.distribution for axis in self._axes if axis.name in inner}
        self._study.add_trial(create_trial(state=TrialState.RUNNING, params=inner, distributions=distributions))

    def _closed(self, point: Point) -> None:
        from optuna.trial import TrialState

        number = self._number(point)
        for place, margin in enumerate(point.margins):
            self._storage.set_trial_system_attr(self._trial_id(number), f"{_CONSTRAINT}{place}", margin)
        if point.state is PointState.DONE:
            self._end(number, TrialState.COMPLETE, list(point.losses or ()))
            return
        poor = point.state is PointState.POOR
        self._end(number, TrialState.PRUNED if poor else TrialState.FAIL)

    def _end(self, number: int, state: TrialState, values: list[float] | None = None) -> None:
        """End a trial as `Study.tell` does, which also makes a copy of the trial that is not needed here."""
        trial_id = self._trial_id(number)
        self._study.sampler.after_trial(self._study, self._storage.get_trial(trial_id), state, values)
        self._storage.set_trial_state_values(trial_id, state, values)

    def _number(self, point: Point) -> int:
        return int(point.notes[_NUMBER])

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress optuna's warnings on "experimental" and "deprecated" arguments, on which users of a tuner cannot act."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def reseed(sampler: BaseSampler, seed: int) -> None:
    """Make a sampler's next proposal depend on the seed and the history alone. optuna has no public way to do so."""
    for part in (sampler, *(getattr(sampler, name, None) for name in _INNER_SAMPLERS)):
        lazy = getattr(part, "_rng", None)
        if lazy is not None:
            lazy.rng.seed(seed)
