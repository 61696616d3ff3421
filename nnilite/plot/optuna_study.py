"""An experiment or a search as a study of optuna, for all that optuna draws and computes.

A parameter keeps its name; one inside a nested choice gets the names of the choices and options above it, as in
`model.cnn.layers`, and only trials that have it get it. Trials that succeeded are COMPLETE, with their values in
the order of the objectives, and not feasible if they break result constraints; those that an assessor stopped are
PRUNED; others that ended are FAIL, without values.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite.errors import NniliteError, SpaceError
from nnilite.records import Json, Trial, TrialState
from nnilite.space import Key, Parameter, ParameterKind, SearchSpace
from nnilite.tuner import EXTRAS, scalar
from nnilite.tuning.objectives import gains, signs

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_BREAKS = "constraints:result"  # where optuna looks for constraints: above 0 is not feasible
_SQLITE = (".db", ".sqlite", ".sqlite3")
_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class PlottedTrial:
    """One trial, and the intermediate results of its latest attempt."""

    trial: Trial
    intermediate: Sequence[Json] = ()


def import_quietly() -> None:
    """Import optuna without its call for ipywidgets in a notebook, for progress bars that nothing here shows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        import optuna  # noqa: F401


def study_of(name: str, space: Mapping[str, Any], objectives: Mapping[str, str], ran: Iterable[PlottedTrial]) -> Study:
    """Return a study in memory, which optuna can draw and continue. Raises: SpaceError."""
    import_quietly()
    import optuna

    names = _ParameterNames(SearchSpace.parse(dict(space)))
    trials = [_freeze(one, names, objectives) for one in _add_domains(list(ran), names)]
    with _quiet():
        study = optuna.create_study(study_name=name, directions=list(objectives.values()))  # type: ignore[arg-type]
        if list(objectives) != ["default"]:
            study.set_metric_names(list(objectives))
        study.add_trials(trials)
    return study


def of_one_objective(study: Study, at: int) -> Study:
    """Return the study as it would be with one of its objectives alone, by its number."""
    import optuna

    if len(study.directions) == 1:
        return study
    trials = study.get_trials()
    for trial in trials:
        trial.values = None if trial.values is None else [trial.values[at]]
    with _quiet():
        found = optuna.create_study(study_name=study.study_name, direction=study.directions[at])
        found.add_trials(trials)
    return found


def write_study(study: Study, target: Path) -> None:
    """Write a study to a file that optuna loads: SQLite for .db and .sqlite, else optuna's journal.

    The file is whole or not written. Raises: NniliteError, OSError.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if target.is_dir() or not target.parent.is_dir():
        raise NniliteError(f"{target} cannot be written: it is a folder, or its own folder does not exist.")
    # In a folder such as /tmp another user could have laid a file under a name that is known.
    draft = target.with_name(f".{secrets.token_hex(8)}.new")
    try:
        with ExitStack() as opened:
            if target.suffix in _SQLITE:
                sqlite3.connect(draft).close()  # a path may have what a URL may not
                storage: Any = RDBStorage("sqlite://", engine_kwargs=_engine(draft))
                opened.callback(storage.engine.dispose)
                opened.callback(storage.remove_session)
            else:
                storage = JournalStorage(JournalFileBackend(str(draft)))
            opened.enter_context(_quiet())
            copied = optuna.create_study(storage=storage, study_name=study.study_name, directions=study.directions)
            if study.metric_names:
                copied.set_metric_names(study.metric_names)
            copied.add_trials(study.get_trials(deepcopy=False))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _engine(path: Path) -> dict[str, Any]:
    from sqlalchemy.pool import StaticPool

    return {"creator": lambda: sqlite3.connect(path, check_same_thread=False), "poolclass": StaticPool}


class _ParameterNames:
    """The parameters of a space by the names that they get in a study, and the values that trials gave them."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.parameters = {self._name(path): one for path, one in space.by_path.items()}
        self.seen: dict[str, list[float]] = {}

    def params(self, parameters: Json) -> dict[str, Any]:
        """Return the values of a trial by name; {} for parameters that are not in the space."""
        given = parameters
        if isinstance(given, Mapping):
            extras = EXTRAS - {one.name for one in self.space.children()}
            given = {key: value for key, value in given.items() if key not in extras}
        try:
            flat = self.space.flatten(given)
        except SpaceError:
            return {}
        return {self._name(path): self._value(self.space.by_path[path], raw) for path, raw in flat.items()}

    def _name(self, path: Key) -> str:
        parts: list[str] = []
        for at, part in enumerate(path):
            if isinstance(part, int):
                option = self.space.by_path[path[:at]].values[part]
                parts.append(str(option["_name"]))
            else:
                parts.append(part)
        return ".".join(parts)

    def _value(self, parameter: Parameter, raw: int | float) -> Any:
        if parameter.kind is ParameterKind.CHOICE:
            return _option(parameter, int(raw))
        return int(raw) if parameter.kind.whole else float(raw)

    def distribution(self, name: str) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        one = self.parameters[name]
        if one.kind is ParameterKind.CHOICE:
            return CategoricalDistribution([_option(one, number) for number in range(len(one.values))])
        # A normal parameter has no bounds, and optuna knows none without; so it gets what was seen.
        seen = self.seen.get(name, [0.0])
        low = min(seen) if one.low is None else float(one.low)
        high = max(seen) if one.high is None else float(one.high)
        if one.kind is ParameterKind.RANDINT:
            return IntDistribution(int(low), int(high) - 1)
        if one.kind.whole:
            return IntDistribution(int(low), int(high), log=one.log, step=1 if one.log else int(one.q or 1))
        return FloatDistribution(low, high, log=one.log and low > 0)


def _option(parameter: Parameter, number: int) -> Any:
    option = parameter.values[number]
    if parameter.nested:
        return option["_name"]
    return option if isinstance(option, _SCALARS) else json.dumps(option)


def _add_domains(ran: list[PlottedTrial], names: _ParameterNames) -> list[PlottedTrial]:
    for one in ran:
        for name, value in names.params(one.trial.parameters).items():
            if isinstance(value, float):
                names.seen.setdefault(name, []).append(value)
    return ran


def _freeze(one: PlottedTrial, names: _ParameterNames, objectives: Mapping[str, str]) -> FrozenTrial:
    from optuna.trial import TrialState as State
    from optuna.trial import create_trial

    trial, params = one.trial, names.params(one.trial.parameters)
    state, values = _state(one, objectives)
    made = create_trial(
        state=State[state],
        values=values,
        params=params,
        distributions={name: names.distribution(name) for name in params},
        user_attrs=dict(_list_attributes(trial, bool(params))),
        intermediate_values=_read_steps(one, objectives),
        system_attrs={_BREAKS: 1.0} if trial.violates else {},
    )
    made.datetime_start = None if state == "WAITING" else datetime.fromtimestamp(trial.started or trial.created)
    made.datetime_complete = datetime.fromtimestamp(trial.ended or trial.created) if trial.state.ended else None
    return made


def _state(one: PlottedTrial, objectives: Mapping[str, str]) -> tuple[str, list[float] | None]:
    trial = one.trial
    reached = gains(trial.value, signs(objectives)) if trial.state is TrialState.SUCCEEDED else None
    if reached is not None:
        return "COMPLETE", [gain * sign for gain, sign in zip(reached, signs(objectives).values(), strict=True)]
    if trial.state is TrialState.EARLY_STOPPED:
        last = list(_read_steps(one, objectives).values())
        return "PRUNED", last[-1:] if last and len(objectives) == 1 else None
    if not trial.state.ended:
        return ("WAITING" if trial.state is TrialState.WAITING else "RUNNING"), None
    return "FAIL", None


def _read_steps(one: PlottedTrial, objectives: Mapping[str, str]) -> dict[int, float]:
    """Return the intermediate results of the first objective."""
    first = next(iter(objectives))
    found = ((step, scalar(value, first)) for step, value in enumerate(one.intermediate))
    return {step: number for step, number in found if number is not None}


def _list_attributes(trial: Trial, in_space: bool) -> Iterator[tuple[str, Json]]:
    yield "trial", trial.id
    yield "state", trial.state.value
    if trial.reason:
        yield "reason", trial.reason
    if trial.violates:
        yield "violates", trial.violates
    if not in_space and trial.parameters:
        yield "parameters", trial.parameters
    if isinstance(trial.value, Mapping):
        yield "metrics", dict(trial.value)
    yield from trial.attributes.items()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence optuna's lines on each study and trial, and its warnings of what is experimental."""
    import optuna
    from optuna.exceptions import ExperimentalWarning

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
