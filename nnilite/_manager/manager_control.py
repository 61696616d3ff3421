"""Does what people ask of a running experiment: stop it, change its limits, add trials, end them or run them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnilite._answers.backend import TrialQuery, TrialRemarks
from nnilite._engine import messages
from nnilite._manager import known_results
from nnilite._manager.disk_reserve import DiskReserve
from nnilite._manager.manager_parts import ManagerParts, make_trial_id
from nnilite._store.reader import Reader
from nnilite._store.resume_reader import find_best
from nnilite._store.trial_remarks import write_remarks
from nnilite._views.profile_maker import ProfileMaker
from nnilite.errors import Conflict, Place, ServiceError
from nnilite.records import ExperimentState, Json, Trial, TrialState, count_nodes
from nnilite.space import SearchSpace
from nnilite.tuning.learning import canonical

log = logging.getLogger(__name__)

_OVER = (ExperimentState.ERROR, ExperimentState.STOPPING, ExperimentState.STOPPED)
_MOST_RERUN = 1000
# How long a stop waits for its commit, so that a database that is locked for a moment does not matter.
_STOP_PATIENCE_S = 3.0


class ManagerControl:
    """Implements `nnilite._answers.backend.Control` by messages to the engine."""

    def __init__(self, parts: ManagerParts, profiles: ProfileMaker, reader: Reader, reserve: DiskReserve) -> None:
        self._engine = parts.engine
        self._tuner = parts.tuner
        self._changes = parts.publisher.changes
        self._profiles = profiles
        self._reader = reader
        self._reserve = reserve
        self._stopping: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    async def resume(self) -> None:
        raise Conflict("The experiment has a running manager already.")

    async def remark(self, remarks: TrialRemarks) -> TrialRemarks:
        kept = await asyncio.to_thread(write_remarks, self._reader.path, remarks)
        self._changes.publish(kept)
        return kept

    async def update(self, changes: Mapping[str, Json]) -> None:
        space = changes.get("search_space")
        limits = {name: value for name, value in changes.items() if name != "search_space"}
        # One after the other, so that none has the settings from before another.
        async with self._changing:
            if space is not None:
                await self._check_space(space)
            settings = replace(self._engine.rules.settings, **limits)
            self._share_slots(settings)
            await self._engine.do(messages.Changed(settings, space))
            if space is not None:
                self._profiles.about = replace(self._profiles.about, space=space)

    def _share_slots(self, wanted: messages.Settings) -> None:
        """Have the service take changed slots and priority. Raises: ConfigError, ServiceError."""
        known = self._engine.rules.settings
        if (wanted.max_slots, wanted.priority) != (known.max_slots, known.priority):
            self._engine.caller.share_slots(wanted.max_slots, wanted.priority)

    async def _check_space(self, space: Json) -> None:
        """Try a search space: its later refusal would end the experiment. Raises: ConfigError, TunerError."""
        # A custom tuner may accept any search space.
        if not (self._profiles.about.config.get("tuner") or {}).get("className"):
            SearchSpace.parse(space, Place(field="searchSpace"))
        await self._tuner.try_space(space)

    async def stop(self) -> None:
        """Stop the experiment, also on a full disk, on which space is kept for that.

        Raises: ServiceError if the stop cannot be recorded yet; it follows once it can be.
        """
        patience_s = 0.0 if self._engine.commits_held_up else _STOP_PATIENCE_S
        stopping = asyncio.create_task(self._engine.do(messages.Stop(self._engine.now())))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        if not (await asyncio.wait([stopping], timeout=patience_s))[0] and self._engine.commits_held_up:
            await asyncio.to_thread(self._reserve.release)
            self._engine.commit_again()
        while not (await asyncio.wait([stopping], timeout=_STOP_PATIENCE_S))[0]:
            if self._engine.commits_held_up:
                # Nothing awaits this task any more, so its exception is fetched here, or asyncio would complain.
                stopping.add_done_callback(lambda done: done.cancelled() or done.exception())
                raise ServiceError(f"it will stop as soon as it can record that: {self._engine.commits_held_up}")
        try:
            await stopping
        except ServiceError:
            # It has stopped already, and this manager is about to end.
            if self._engine.rules.state is not ExperimentState.STOPPED:
                raise

    async def add_trial(self, parameters: Json) -> Trial:
        self._check_open()
        trial = make_trial_id()
        await self._engine.do(messages.Customized(trial, parameters, self._engine.now()))
        return (await self._reader.trial(trial))[0]

    async def cancel_trial(self, trial: str) -> Trial:
        found, _ = await self._reader.trial(trial)
        if not found.state.ended:
            await self._engine.do(messages.CancelTrial(trial, self._engine.now()))
        return (await self._reader.trial(trial))[0]

    async def interrupt_trial(self, trial: str) -> Trial:
        self._check_open()
        record, _ = await self._reader.trial(trial)
        live = self._engine.rules.live.get(trial)
        if live is None or not live.may_be_drilled:
            state = "being ended" if record.state is TrialState.RUNNING else record.state.value
            raise Conflict(f"Trial {trial} is {state}; only running trials can be interrupted.")
        if self._is_elastic and live.attempt is not None and live.attempt.handle is not None:
            handle = live.attempt.handle
            await self._engine.caller.ask(lambda service: service.take_node(handle))
            log.info("trial %s loses a node to a drill", trial)
            return record
        await self._engine.do(messages.Interrupt(trial, self._engine.now()))
        log.info("trial %s is interrupted by a drill", trial)
        return record

    @property
    def _is_elastic(self) -> bool:
        return count_nodes(self._profiles.about.config.get("distributed")).is_elastic

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        """Scale the running attempt only. The platform keeps the number, and a further attempt begins as configured."""
        found, _ = await self._reader.trial(trial)
        live = self._engine.rules.live.get(trial)
        if live is None:
            raise Conflict(f"Trial {trial} has ended.")
        if live.cancel is not None:
            raise Conflict(f"Trial {trial} is being stopped.")
        if live.attempt is None or live.attempt.handle is None:
            raise Conflict(
                f"Trial {trial} is not on its platform yet; it starts with the number of workers in its config."
            )
        handle = live.attempt.handle
        await self._engine.caller.ask(lambda service: service.scale(handle, workers))
        log.info("trial %s: %d workers were requested", trial, workers)
        return found

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        self._check_open()
        trials = [(await self._reader.trial(trial))[0] for trial in ids]
        if state is not None:
            page = await self._reader.trials(TrialQuery(states=(state,), limit=_MOST_RERUN))
            trials += page.trials
        running = [trial.id for trial in trials if not trial.state.ended]
        if running:
            raise Conflict(f"Trial {running[0]} has not ended; only ended trials can be run again.")
        for trial in trials:
            best = await self._find_best_other(trial.id)
            # Another request may have run it again, even to its end, while this one came to it.
            current, _ = await self._reader.trial(trial.id)
            await self._engine.do(messages.Rerun(current, self._engine.now(), best))
        return [(await self._reader.trial(trial.id))[0] for trial in trials]

    async def _find_best_other(self, trial: str) -> Trial | None:
        """Return the best trial without this one; None also if this is not the best."""
        rules = self._engine.rules
        if rules.best is None or rules.best.id != trial:
            return None
        return await self._reader.ask(find_best, rules.settings.maximize, trial)

    async def import_data(self, data: Sequence[tuple[Json, Json]]) -> tuple[int, int, str]:
        self._check_open()
        space = (
            None if (self._profiles.about.config.get("tuner") or {}).get("className") else self._profiles.about.space
        )
        found = await asyncio.to_thread(known_results.fit, [{"parameter": p, "value": v} for p, v in data], space)
        known = [pair for pairs in await self._reader.imported() for pair in pairs]
        new = await asyncio.to_thread(_unknown, found.taken, known)
        if new:
            await self._engine.do(messages.Imported(new))
        return len(new), len(found.taken) - len(new), "" if found.is_as_it_was else found.sentence

    def _check_open(self) -> None:
        rules = self._engine.rules
        if rules.state in _OVER:
            raise Conflict(f"The experiment is {rules.state.value} and accepts no further trials: {rules.reason}.")


def _unknown(data: Sequence[Json], imported: Sequence[tuple[Json, Json]]) -> list[Json]:
    """Return those results that were not imported before. This takes a second for a hundred thousand."""
    known = {canonical(pair) for pair in imported}
    return [one for one in data if canonical((one["parameter"], one["value"])) not in known]
