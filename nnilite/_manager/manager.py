"""A running manager: the engine and its surroundings, as the REST interface uses them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import string
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnilite._answers.backend import (
    CallbackAnswer,
    FencedConflict,
    FileListing,
    GapConflict,
    Profile,
    ServiceState,
    TrialQuery,
    TrialUse,
    Waiting,
)
from nnilite._answers.changes import Changes
from nnilite._checkpoints.checkpoint_tidying import CheckpointTidier
from nnilite._engine import messages as s
from nnilite._engine.dedupe import Fenced, GapFound
from nnilite._engine.engine import Engine
from nnilite._engine.gate import Taken
from nnilite._engine.hybrid import HybridService
from nnilite._engine.jobs import JobMaker
from nnilite._engine.rules import Rules
from nnilite._manager import known_results
from nnilite._manager.stop_reserve import StopReserve
from nnilite._manager.trial_copies import TrialCopies
from nnilite._manager.use_answers import shown_uses
from nnilite._store.async_store import AsyncStore
from nnilite._store.reader import Reader
from nnilite._tuner_host.tuner_client import TunerHost
from nnilite._views.about import About, ExperimentProgress
from nnilite._views.file_listing import merged
from nnilite._views.viewer import Viewer
from nnilite.errors import Conflict, NniliteError, NotFound, Place, ServiceError
from nnilite.records import Attempt, ExperimentState, Json, KeeperEvent, Trial, TrialState
from nnilite.service import TrainingService
from nnilite.space import SearchSpace
from nnilite.tuning.learning import canonical

log = logging.getLogger(__name__)

_PROFILE_EVERY_S = 0.3
_HOSTS_EVERY_S = 10.0  # how busy hosts are is reported also while nothing else changes
_OVER = (ExperimentState.ERROR, ExperimentState.STOPPING, ExperimentState.STOPPED)
_MOST_RERUN = 1000
# How long a stop waits for its commit, so that a database that is locked for a moment does not matter.
_STOP_PATIENCE_S = 3.0


def new_trial_id() -> str:
    """Return 8 characters of [a-z0-9], beginning with a letter. They are unique even where case does not count."""
    letters = string.ascii_lowercase
    return secrets.choice(letters) + "".join(secrets.choice(letters + string.digits) for _ in range(7))


class Publisher:
    """Publishes committed changes. A change that is not committed has not happened.

    It feeds the live stream, with the profile at most a few times a second.
    """

    def __init__(
        self,
        rules: Rules,
        tidiers: Sequence[CheckpointTidier],
        state_changed: Callable[[ExperimentState, float | None], None],
    ) -> None:
        self.changes = Changes()
        self.progress = _progress_of(rules)
        self._rules = rules
        self._tidiers = tidiers
        self._state_changed = state_changed
        self._dirty = asyncio.Event()

    def committed(self, records: Sequence[s.Record]) -> None:
        self.progress = _progress_of(self._rules)
        for record in records:
            if isinstance(record, s.SaveTrial):
                self.changes.publish(record.trial)
            elif isinstance(record, s.SaveMetric):
                self.changes.publish(record.metric)
            elif isinstance(record, s.SaveExperiment):
                self._state_changed(record.state, record.ended)
        for tidier in self._tidiers:
            tidier.committed(records)
        self._dirty.set()

    async def run(self, profile: Callable[[], Awaitable[Profile]]) -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), _HOSTS_EVERY_S)
            self._dirty.clear()
            if self.changes.has_readers:  # a new one reads the profile by itself, after it has subscribed
                self.changes.publish(await profile())
            await asyncio.sleep(_PROFILE_EVERY_S)


@dataclass(frozen=True)
class Machinery:
    """The parts that a running manager has and a viewer does not have."""

    engine: Engine
    jobs: JobMaker
    service: TrainingService
    store: AsyncStore
    tuner: TunerHost
    publisher: Publisher


class Manager(Viewer):
    """A running experiment, as its REST interface sees it."""

    read_only = False

    def __init__(self, about: About, machinery: Machinery, reader: Reader, token: str) -> None:
        publisher = machinery.publisher
        super().__init__(about, publisher.progress, reader, token, publisher.changes)
        self._parts = machinery
        self._stopping: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self.reserve = StopReserve(about.directory)
        self._copies = TrialCopies(about.directory / "trials", machinery.service)

    @property
    def engine(self) -> Engine:
        return self._parts.engine

    def progress(self) -> ExperimentProgress:
        rules = self.engine.rules
        # Output that cannot be written does not keep a stop from its end.
        stopping = rules.state is ExperimentState.STOPPING
        trouble = self.engine.commits_held_up if stopping else self.engine.trouble
        spent = rules.spent(self.engine.now())
        shown = replace(self._parts.publisher.progress, duration_s=rules.duration_s, spent=spent)
        if trouble:
            return replace(shown, reason=f"paused: {trouble}")
        slow = self.engine.slowness.reason() if shown.state is ExperimentState.RUNNING else ""
        return replace(shown, reason=slow) if slow else shown

    async def profile(self) -> Profile:
        base = await super().profile()
        reasons: dict[str, int] = {}
        for live in self.engine.rules.live.values():
            if live.trial.state is TrialState.WAITING:
                reasons[live.trial.reason] = reasons.get(live.trial.reason, 0) + 1
        return replace(
            base,
            hosts=self._parts.service.hosts(),
            services=self._services(base.services),
            waiting=[Waiting(reason, count) for reason, count in sorted(reasons.items())],
            revision=self._parts.store.revision,
        )

    def _services(self, known: Sequence[ServiceState]) -> list[ServiceState]:
        """Return the services with what they are doing now."""
        placed = [live for live in self.engine.rules.live.values() if live.is_placed and live.attempt is not None]
        trials = Counter(live.attempt.service for live in placed if live.attempt is not None)
        service = self._parts.service
        aside = service.aside() if isinstance(service, HybridService) else {}
        if self.engine.caller.trouble:
            aside = dict.fromkeys((one.name for one in known), self.engine.caller.trouble) | aside
        return [
            replace(
                one,
                state="aside" if one.name in aside else "up",
                reason=aside.get(one.name, ""),
                trials=trials[one.name],
            )
            for one in known
        ]

    async def uses(self) -> Mapping[str, TrialUse]:
        known = self.engine.uses.known(self.engine.now())
        return shown_uses(known, self.engine.rules.live, self._parts.service.hosts()) if known else {}

    # ------------------------------------------------------------ changes by people

    async def update(self, changes: Mapping[str, Json]) -> Profile:
        space = changes.get("search_space")
        limits = {name: value for name, value in changes.items() if name != "search_space"}
        # One after the other, so that none has the settings from before another.
        async with self._changing:
            if space is not None:
                await self._check_space(space)
            settings = replace(self.engine.rules.settings, **limits)
            self._share_slots(settings)
            await self.engine.do(s.Changed(settings, space))
            if space is not None:
                self.about = replace(self.about, space=space)
        return await self.profile()

    def _share_slots(self, wanted: s.Settings) -> None:
        """Have the service take changed slots and priority. Raises: ConfigError, ServiceError."""
        known = self.engine.rules.settings
        if (wanted.max_slots, wanted.priority) != (known.max_slots, known.priority):
            self.engine.caller.share_slots(wanted.max_slots, wanted.priority)

    async def _check_space(self, space: Json) -> None:
        """Try a search space: its later refusal would end the experiment. Raises: ConfigError, TunerError."""
        # A custom tuner may accept any search space.
        if not (self.about.config.get("tuner") or {}).get("className"):
            SearchSpace.parse(space, Place(field="searchSpace"))
        await self._parts.tuner.try_space(space)

    async def stop(self) -> None:
        """Stop the experiment, also on a full disk, on which space is kept for that.

        Raises: ServiceError if the stop cannot be recorded yet; it follows once it can be.
        """
        patience_s = 0.0 if self.engine.commits_held_up else _STOP_PATIENCE_S
        stopping = asyncio.create_task(self.engine.do(s.Stop(self.engine.now())))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        if not (await asyncio.wait([stopping], timeout=patience_s))[0] and self.engine.commits_held_up:
            await asyncio.to_thread(self.reserve.release)
            self.engine.commit_again()
        while not (await asyncio.wait([stopping], timeout=_STOP_PATIENCE_S))[0]:
            if self.engine.commits_held_up:
                # Nothing awaits this task any more, so its exception is fetched here, or asyncio would complain.
                stopping.add_done_callback(lambda done: done.cancelled() or done.exception())
                raise ServiceError(f"it will stop as soon as it can record that: {self.engine.commits_held_up}")
        try:
            await stopping
        except ServiceError:
            # It has stopped already, and this manager is about to end.
            if self.engine.rules.state is not ExperimentState.STOPPED:
                raise

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

    async def interrupt_trial(self, trial: str) -> Trial:
        self._check_open()
        found, _ = await self.reader.trial(trial)
        live = self.engine.rules.live.get(trial)
        if live is None or not live.may_be_drilled:
            state = "being ended" if found.state is TrialState.RUNNING else found.state.value
            raise Conflict(f"Trial {trial} is {state}; only running trials can be interrupted.")
        await self.engine.do(s.Interrupt(trial, self.engine.now()))
        log.info("trial %s is interrupted by a drill", trial)
        return found

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        """Scale the running attempt only. The platform keeps the number, and a further attempt begins as configured."""
        found, _ = await self.reader.trial(trial)
        live = self.engine.rules.live.get(trial)
        if live is None:
            raise Conflict(f"Trial {trial} has ended.")
        if live.cancel is not None:
            raise Conflict(f"Trial {trial} is being stopped.")
        if live.attempt is None or live.attempt.handle is None:
            raise Conflict(
                f"Trial {trial} is not on its platform yet; it starts with the number of workers in its config."
            )
        await self.engine.caller.scale(live.attempt.handle, workers)
        log.info("trial %s was asked to have %d workers", trial, workers)
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

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> tuple[int, str]:
        self._check_open()
        space = None if (self.about.config.get("tuner") or {}).get("className") else self.about.space
        found = await asyncio.to_thread(known_results.fit, [{"parameter": p, "value": v} for p, v in data], space)
        known = [pair for pairs in await self.reader.imported() for pair in pairs]
        new = await asyncio.to_thread(_unknown, found.taken, known)
        if new:
            await self.engine.do(s.Imported(new))
        return len(new), "" if found.is_as_it_was else found.sentence

    def _check_open(self) -> None:
        rules = self.engine.rules
        if rules.state in _OVER:
            raise Conflict(f"The experiment is {rules.state.value} and accepts no further trials: {rules.reason}.")

    # ------------------------------------------------------------ what keepers report

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        trial, attempt = self._parts.jobs.parse(job)
        try:
            try:
                return _answer(await self.engine.take(trial, attempt, events))
            except GapFound:
                known = await self.engine.take(trial, attempt, ())
        except Fenced:
            raise FencedConflict("a newer attempt of this trial has taken its place") from None
        raise GapConflict(_answer(known))

    def callback_token(self, job: str) -> str:
        return self._parts.jobs.token(job)

    async def files(self, trial: str, elsewhere: bool) -> FileListing:
        attempt = await self._latest(trial) if elsewhere else None
        found, note = ([], "") if attempt is None else await self._copies.listed(attempt)
        here: FileListing | None = None
        with contextlib.suppress(NotFound):
            here = await super().files(trial, elsewhere)
        if here is None and not found and not note:
            raise NotFound(f"Trial {trial} has no folder on this machine yet.")
        return merged(here or FileListing(()), found, note)

    async def bring(self, trial: str) -> None:
        attempt = await self._latest(trial)
        if attempt is not None:
            await self._copies.bring(attempt)

    async def bring_file(self, trial: str, path: str) -> None:
        number, _, inner = path.partition("/")
        _, attempts = await self.reader.trial(trial)
        for attempt in attempts:
            if str(attempt.number) == number and attempt.handle is not None and inner:
                await self._copies.bring_file(attempt, inner)

    async def _latest(self, trial: str) -> Attempt | None:
        """Return the latest attempt that a platform has had."""
        _, attempts = await self.reader.trial(trial)
        return next((attempt for attempt in reversed(attempts) if attempt.handle is not None), None)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Any:
        """Read the folder on this machine; if it has nothing, ask the service.

        Raises: NotFound, StoreError; ServiceError if the service cannot answer, for example since it is closed already.
        """
        piece = await super().output(trial, attempt, stream, offset, limit)
        if piece.total:
            return piece
        _, attempts = await self.reader.trial(trial)
        handles = [a.handle for a in attempts if a.handle is not None and attempt in (None, a.number)]
        if not handles or offset < 0:
            return piece
        try:
            found = await asyncio.wait_for(self._parts.service.logs(handles[-1], stream, offset, limit), 10.0)
        except asyncio.TimeoutError:
            return piece
        except NotFound:
            raise
        # A closed service has no threads and no connections any more, and says so in words of its own.
        except (NniliteError, OSError, RuntimeError) as error:
            raise ServiceError(f"The output of trial {trial} cannot be read from its platform now: {error}") from error
        return replace(piece, data=found, offset=offset, total=offset + len(found))


def _progress_of(rules: Rules) -> ExperimentProgress:
    return ExperimentProgress(
        state=rules.state,
        reason=rules.reason,
        duration_s=rules.duration_s,
        ended=rules.ended,
        limits=rules.settings.limits,
        counts=dict(rules.counts),
        best=rules.best,
        next_sequence=rules.next_sequence,
    )


def _answer(taken: Taken) -> CallbackAnswer:
    return CallbackAnswer(taken.cancel, taken.metrics, taken.output)


def _unknown(data: Sequence[Json], imported: Sequence[tuple[Json, Json]]) -> list[Json]:
    """Return those results that were not imported before. This takes a second for a hundred thousand."""
    known = {canonical(pair) for pair in imported}
    return [one for one in data if canonical((one["parameter"], one["value"])) not in known]
