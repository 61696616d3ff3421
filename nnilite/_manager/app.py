"""A manager: the engine and all it needs, put together, behind the REST interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnilite._manager import steps as s
from nnilite._manager.checkpoints import Checkpoints
from nnilite._manager.engine import Engine, Taken
from nnilite._manager.intake import OutOfStep, Superseded
from nnilite._manager.jobs import JobMaker
from nnilite._manager.ledger import StoreLedger
from nnilite._manager.reader import Reader
from nnilite._manager.reading import About, Reading, Standing
from nnilite._manager.rules import Rules
from nnilite._manager.tuner_host import TunerHost
from nnilite._rest.backend import CallbackAnswer, Gap, GivenUp, Limits, Profile, TrialQuery, Waiting
from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound, Place, ServiceError
from nnilite.learning import canonical
from nnilite.records import Attempt, ExperimentState, Json, KeeperEvent, Trial, TrialState
from nnilite.service import TrainingService
from nnilite.space import SearchSpace
from nnilite.units import parse_duration_s

log = logging.getLogger(__name__)

_PROFILE_EVERY_S = 0.3
_OVER = (ExperimentState.ERROR, ExperimentState.STOPPING, ExperimentState.STOPPED)
_MOST_RERUN = 1000
_FETCH_TIMEOUT_S = 3600.0
_FETCHED_FOR_S = 20.0  # what was fetched so lately of a running trial is not fetched again


def new_trial_id() -> str:
    """8 characters of [a-z0-9], a letter first: unique even where case does not count."""
    letters = string.ascii_lowercase
    return secrets.choice(letters) + "".join(secrets.choice(letters + string.digits) for _ in range(7))


@dataclass(frozen=True)
class Machinery:
    """The parts that a running manager has and a view has not."""

    engine: Engine
    jobs: JobMaker
    service: TrainingService
    ledger: StoreLedger
    tuner: TunerHost


class Publisher:
    """Follows what is committed: tells the live stream, the profile at most a few times a second, and tidies up."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.manager: Manager | None = None
        self._checkpoints = checkpoints
        self._ended: list[str] = []
        self._dirty = asyncio.Event()

    def committed(self, records: Sequence[s.Record]) -> None:
        if self.manager is None:
            return
        self.manager.refresh()
        for record in records:
            if isinstance(record, s.SaveTrial):
                self.manager.changes.publish(record.trial)
                if record.trial.state.ended:
                    self._ended.append(record.trial.id)
            elif isinstance(record, s.SaveMetric):
                self.manager.changes.publish(record.metric)
            elif isinstance(record, s.SaveExperiment):
                self.manager.state_changed(record.state, record.ended)
        self._dirty.set()

    async def run(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if self.manager is not None:
                self.manager.changes.publish(await self.manager.profile())
                await self.tidy_up(self.manager.engine.rules)
            await asyncio.sleep(_PROFILE_EVERY_S)

    async def tidy_up(self, rules: Rules) -> None:
        """Keep of the checkpoints of ended trials what the config asks for."""
        ended, self._ended = self._ended, []
        best, live = rules.best.id if rules.best else None, frozenset(rules.live)
        for trial in ended:
            try:
                await asyncio.to_thread(self._checkpoints.trial_ended, trial, best, live)
            except OSError as error:
                log.warning("the checkpoints of trial %s cannot be tidied up: %s", trial, error)


class Manager(Reading):
    """A running experiment, as its REST interface sees it."""

    read_only = False

    def __init__(self, about: About, machinery: Machinery, reader: Reader, token: str | None) -> None:
        self._parts = machinery
        super().__init__(about, self._now(), reader, token)
        self.state_changed = _nothing
        self._fetched: dict[tuple[str, int], tuple[float, bool]] = {}  # when, and whether the attempt had ended
        self._fetching: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)

    def refresh(self) -> None:
        """Show the state that has just been committed: what is not committed has not happened."""
        self._standing = self._now()

    @property
    def engine(self) -> Engine:
        return self._parts.engine

    def standing(self) -> Standing:
        trouble = self.engine.trouble
        shown = replace(self._standing, duration_s=self.engine.rules.duration_s)
        return replace(shown, reason=f"paused: {trouble}") if trouble else shown

    def _now(self) -> Standing:
        rules = self.engine.rules
        return Standing(
            state=rules.state,
            reason=rules.reason,
            duration_s=rules.duration_s,
            ended=rules.ended,
            limits=limits_of(rules.settings),
            counts=dict(rules.counts),
            best=rules.best,
            next_sequence=rules.next_sequence,
        )

    async def profile(self) -> Profile:
        base = await super().profile()
        reasons: dict[str, int] = {}
        for live in self.engine.rules.live.values():
            if live.trial.state is TrialState.WAITING:
                reasons[live.trial.reason] = reasons.get(live.trial.reason, 0) + 1
        return replace(
            base,
            hosts=self._parts.service.hosts(),
            waiting=[Waiting(reason, count) for reason, count in sorted(reasons.items())],
            revision=self._parts.ledger.revision,
        )

    # ------------------------------------------------------------ changes by people

    async def update(self, changes: Mapping[str, Json]) -> Profile:
        space = changes.get("search_space")
        if space is not None:
            await self._check_space(space)
        settings = _changed(self.engine.rules.settings, changes)
        await self.engine.do(s.Changed(settings, space))
        if space is not None:
            self.about = replace(self.about, space=space)
        return await self.profile()

    async def _check_space(self, space: Json) -> None:
        """What the tuner refuses once it is recorded would end the experiment. Raises: ConfigError, TunerError."""
        if not (self.about.config.get("tuner") or {}).get("className"):  # one's own may want anything
            SearchSpace.parse(space, Place(field="searchSpace"))
        await self._parts.tuner.try_space(space)

    async def stop(self) -> None:
        await self.engine.do(s.Stop(self.engine.now()))

    async def add_trial(self, parameters: Json) -> Trial:
        rules = self.engine.rules
        self._check_open()
        most = rules.settings.max_trials
        if most is not None and rules.next_sequence >= most:
            raise Conflict(f"maxTrialNumber ({most}) is reached; raise it, then add the trial.")
        trial = new_trial_id()
        await self.engine.do(s.Customized(trial, parameters, self.engine.now()))
        return (await self.reader.trial(trial))[0]

    async def cancel_trial(self, trial: str) -> Trial:
        found, _ = await self.reader.trial(trial)
        if not found.state.ended:
            await self.engine.do(s.CancelTrial(trial, self.engine.now()))
        return (await self.reader.trial(trial))[0]

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        """The number is the running attempt's, and its platform keeps it: another attempt begins as configured."""
        found, _ = await self.reader.trial(trial)
        live = self.engine.rules.live.get(trial)
        if live is None:
            raise Conflict(f"Trial {trial} has ended.")
        if live.cancel is not None:
            raise Conflict(f"Trial {trial} is being stopped.")
        if live.attempt is None or live.attempt.handle is None:
            raise Conflict(f"Trial {trial} is not on its platform yet; it begins with the number of its config.")
        await self.engine.desk.scale(live.attempt.handle, workers)
        log.info("trial %s is to have %d workers", trial, workers)
        return found

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        self._check_open()
        trials = [(await self.reader.trial(trial))[0] for trial in ids]
        if state is not None:
            page = await self.reader.trials(TrialQuery(states=(state,), limit=_MOST_RERUN))
            trials += page.trials
        running = [trial.id for trial in trials if not trial.state.ended]
        if running:
            raise Conflict(f"Trial {running[0]} has not ended; only ended trials can be run again.")
        for trial in trials:
            await self.engine.do(s.Rerun(trial, self.engine.now()))
        return [(await self.reader.trial(trial.id))[0] for trial in trials]

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> int:
        self._check_open()
        new = await asyncio.to_thread(_unknown, data, await self.reader.imported())
        if new:
            await self.engine.do(s.Imported(new))
        return len(new)

    def _check_open(self) -> None:
        rules = self.engine.rules
        if rules.state in _OVER:
            raise Conflict(f"The experiment is {rules.state.value} and takes no further trials: {rules.reason}.")

    # ------------------------------------------------------------ what keepers say

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        trial, attempt = self._parts.jobs.parse(job)
        try:
            try:
                return _answer(await self.engine.take(trial, attempt, events))
            except OutOfStep:
                known = await self.engine.take(trial, attempt, ())
        except Superseded:
            raise GivenUp("a newer attempt of this trial has taken its place") from None
        raise Gap(_answer(known))

    def callback_token(self, job: str) -> str:
        return self._parts.jobs.token(job)

    async def directory(self, trial: str, fetch: bool = True) -> Path:
        """The trial's folder here; `fetch`: with what its latest attempt has written elsewhere by now."""
        _, attempts = await self.reader.trial(trial)
        taken = [attempt for attempt in attempts if attempt.handle is not None]
        if fetch and taken:
            async with self._fetching[trial, taken[-1].number]:
                await self._fetch(taken[-1])
        return await super().directory(trial)

    async def _fetch(self, attempt: Attempt) -> None:
        """Raises: ServiceError."""
        target = self.about.directory / "trials" / attempt.trial / str(attempt.number)
        handle = attempt.handle or {}
        if handle.get("directory") == str(target):
            return  # it runs here
        key, ended = (attempt.trial, attempt.number), attempt.ended is not None
        when, whole = self._fetched.get(key, (0.0, False))
        if whole or (not ended and when > self.engine.now() - _FETCHED_FOR_S):
            return
        try:
            await asyncio.wait_for(self._parts.service.fetch(handle, target), _FETCH_TIMEOUT_S)
        except NotFound as error:
            log.warning("what is left of trial %s is on this machine: %s", attempt.trial, error)
        except (NniliteError, OSError, asyncio.TimeoutError) as error:
            reason = str(error) or f"it takes longer than {_FETCH_TIMEOUT_S:.0f} s"
            raise ServiceError(f"The files of trial {attempt.trial} cannot be copied here: {reason}.") from error
        self._fetched[key] = (self.engine.now(), ended)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Any:
        """From the folder on this machine; where there is nothing, the service is asked."""
        piece = await super().output(trial, attempt, stream, offset, limit)
        if piece.total:
            return piece
        _, attempts = await self.reader.trial(trial)
        handles = [a.handle for a in attempts if a.handle is not None and attempt in (None, a.number)]
        if not handles or offset < 0:
            return piece
        with contextlib.suppress(asyncio.TimeoutError):
            found = await asyncio.wait_for(self._parts.service.logs(handles[-1], stream, offset, limit), 10.0)
            return replace(piece, data=found, offset=offset, total=offset + len(found))
        return piece


def _nothing(state: ExperimentState, ended: float | None) -> None:
    """Nobody wants to know."""


def _answer(taken: Taken) -> CallbackAnswer:
    return CallbackAnswer(taken.cancel, taken.metrics, taken.output)


def limits_of(settings: s.Settings) -> Limits:
    """The limits as the REST interface shows them."""
    return Limits(
        trial_concurrency=settings.concurrency,
        max_trial_number=settings.max_trials,
        max_experiment_duration_s=_whole(settings.max_duration_s),
        max_trial_duration_s=_whole(settings.max_trial_duration_s),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _unknown(data: Sequence[tuple[Json, Json]], imported: Sequence[tuple[Json, Json]]) -> list[Json]:
    """Which of these results were not imported before. Takes a second for a hundred thousand."""
    known = {canonical(pair) for pair in imported}
    return [{"parameter": p, "value": v} for p, v in data if canonical((p, v)) not in known]


def _changed(settings: s.Settings, changes: Mapping[str, Json]) -> s.Settings:
    """The settings with the user's changes. Raises: ConfigError that names the field."""
    known: dict[str, Any] = {}
    for name, value in changes.items():
        if name in ("trial_concurrency", "max_trial_number"):
            known["concurrency" if name == "trial_concurrency" else "max_trials"] = _count(name, value)
        elif name in ("max_experiment_duration", "max_trial_duration"):
            key = "max_duration_s" if name == "max_experiment_duration" else name + "_s"
            known[key] = None if value is None else _duration(name, value)
        elif name != "search_space":
            raise ConfigError("this cannot be changed while the experiment runs", Place(field=name))
    return replace(settings, **known)


def _count(name: str, value: Json) -> int | None:
    if value is None and name == "max_trial_number":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"must be a whole number above 0, not {value!r}", Place(field=name))
    return value


def _duration(name: str, value: Json) -> int:
    try:
        return parse_duration_s(value)
    except ValueError as error:
        raise ConfigError(str(error), Place(field=name)) from error
