"""A manager's process while it runs its experiment: from the folder to the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from nnilite._checkpoints.checkpoint_tidying import keep_tidy
from nnilite._engine.engine import CLEANUP_S
from nnilite._experiments.file_guard import Guard, GuardedFile
from nnilite._experiments.locking import ManagerLock
from nnilite._manager import assembly
from nnilite._manager.log_limits import LogLimits, keep_logs_small
from nnilite._manager.provenance_recording import record_start
from nnilite._manager.runtime_files import files_of
from nnilite._manager.served_experiment import ServedExperiment
from nnilite._manager.tuner_copy import TunerCopy
from nnilite._rest import CallbackSocket
from nnilite._side_processes.supervision import SupervisedProcess, supervise
from nnilite._store.settings_of_config import is_maximizing
from nnilite._store.writer import open_store
from nnilite._trackers import list_trackers
from nnilite._tuner_host.tuner_process import TunerProcess
from nnilite._webhooks import list_webhooks
from nnilite.config import CheckedConfig, load_stored
from nnilite.errors import Conflict, NniliteError, ServiceError, StoreError
from nnilite.records import ExperimentState
from nnilite.services.task_ends import end_tasks

log = logging.getLogger("nnilite.manager")

_CLOSE_TIMEOUT_S = 10.0
_MOST_NAMED = 5
_LOOK_S = 1.0


async def manage(served: ServedExperiment, lock: ManagerLock, copy: TunerCopy | None) -> None:
    """Run an experiment until it has stopped. Raises: NniliteError if it cannot begin or cannot continue.

    `copy`: the tuner's first process, if there is one yet.
    """
    config = load_stored(served.directory)
    # The tuner's process loads what it needs while everything else is put together.
    tuner = await assembly.start_tuner_ahead(served.directory, config, copy)
    try:
        await (await _assemble(served, lock, config, tuner)).run()
    finally:
        if tuner is not None:
            await tuner.end()


async def _assemble(
    served: ServedExperiment, lock: ManagerLock, config: CheckedConfig, tuner: TunerProcess | None
) -> ManagerRun:
    directory, is_new = served.directory, served.mode == "create"
    store = open_store(directory, is_new, time.time())
    token = served.prepare(config)
    if is_new:
        await asyncio.to_thread(assembly.take_results, config, store)
        await asyncio.to_thread(assembly.add_first_trials, config, store)
    await asyncio.to_thread(assembly.prepare_storage, directory, config, is_new)
    parts = assembly.assemble(
        directory, config, store, served.address, token, served.files.write_state, served.ready_pipe.packed
    )
    for one in config.without_effect:
        log.warning("%s", one.sentence)
    if tuner is not None:
        parts.tuner.adopt(tuner)
    about = parts.manager.profiles.about
    served.files.created = about.created
    guard = Guard(directory, lock, parts.keeper, files_of(directory, config, token, about))
    served.files.guard = guard
    return ManagerRun(served, config, parts, guard)


class ManagerRun:
    """The parts of a manager, together with what looks after them until the end."""

    def __init__(
        self, served: ServedExperiment, config: CheckedConfig, parts: assembly.Assembled, guard: Guard
    ) -> None:
        self._served = served
        self._parts = parts
        self._guard = guard
        maximize = is_maximizing(config.json().get("tuner") or {})
        self._side_processes: Sequence[SupervisedProcess] = [
            *list_trackers(served.directory, config),
            *list_webhooks(served.directory, config, maximize),
        ]
        self._record: Callable[[asyncio.Event], Coroutine[Any, Any, None]] = partial(
            record_start, served.directory, config
        )

    async def run(self) -> None:
        """Serve the experiment and run it, until it has stopped. Raises: NniliteError."""
        served, parts = self._served, self._parts
        server = served.listen(parts.manager)
        served.files.write("callback", GuardedFile(served.address.url.encode("ascii")))
        short_way = CallbackSocket(served.directory / "callback", parts.manager.callbacks)
        await short_way.listen()
        try:
            if served.mode == "create":
                await self._open()
            served.files.write_state(parts.engine.rules.state, None)
            await asyncio.to_thread(parts.manager.reserve.keep)
            served.tell_ready()
            await self._work()
            # Without this, clients might miss the last state.
            if parts.manager.changes.has_readers:
                parts.manager.changes.publish(await parts.manager.profile())
            await served.await_last_readers()
        finally:
            server.refuse_connections()
            short_way.close()
            parts.manager.reserve.release()
            # The thread of a look continues when its task is canceled.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(self._guard.close), _CLOSE_TIMEOUT_S)
            await close(served, parts)
            with contextlib.suppress(OSError):  # the tuner's process may have printed until its end
                self._limits().look()
            # The lock, which shows others that this manager is alive, is given back right after the port.
            await server.end()

    async def _open(self) -> None:
        """Open all parts, so that faults are reported before anything runs. Raises: NniliteError, also if stopped."""

        async def both() -> None:
            # Both start processes, which then load their modules at the same time.
            engine = self._parts.engine
            opened = [
                asyncio.create_task(self._parts.tuner.open(engine.rules.calls)),
                asyncio.create_task(engine.caller.open()),
            ]
            try:
                await asyncio.gather(*opened)
            finally:
                await end_tasks(opened, CLEANUP_S)

        opening, stopping = asyncio.create_task(both()), asyncio.create_task(self._served.stopping.wait())
        await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not opening.done():
            await end_tasks([opening], CLEANUP_S)
            raise Conflict("the experiment was stopped before it began")
        opening.result()

    async def _work(self) -> None:
        parts = self._parts
        watches = [
            asyncio.create_task(parts.publisher.run(parts.manager.profile)),
            asyncio.create_task(self._stop_when_asked()),
            asyncio.create_task(self._served.stop_when_idle(lambda: parts.engine.rules.state is ExperimentState.DONE)),
        ]
        over, limiting = asyncio.Event(), asyncio.create_task(keep_logs_small(self._limits()))
        beside = [
            asyncio.create_task(supervise(self._side_processes, over)),
            asyncio.create_task(keep_tidy(parts.tidiers, over)),
            asyncio.create_task(self._record(over)),
        ]
        works = [asyncio.create_task(parts.engine.run()), asyncio.create_task(self._look_after_files())]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks([*works, *watches], CLEANUP_S)
            # They end last, since they also get what is stored at the end of the experiment.
            over.set()
            await asyncio.gather(*beside)
            await end_tasks([limiting], CLEANUP_S)

    def _limits(self) -> LogLimits:
        others = [process.output for process in self._side_processes if process.output is not None]
        return LogLimits(self._served.directory, others)

    async def _look_after_files(self) -> None:
        """Look after the files that may be removed from outside. Raises: NniliteError when the manager has to end."""
        last_error = ""
        while True:
            await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(self._guard.look)
            await asyncio.to_thread(self._parts.manager.reserve.keep)
            try:
                await self._parts.store.keep_place()
            except StoreError as error:
                if not error.busy:
                    raise
                if str(error) != last_error:
                    log.error("%s", error)
                last_error = str(error)
            else:
                last_error = ""

    async def _stop_when_asked(self) -> None:
        await self._served.stopping.wait()
        try:
            await self._parts.manager.control.stop()
        except ServiceError as error:
            log.warning("asked to stop: %s", error)


async def close(served: ServedExperiment, parts: assembly.Assembled) -> None:
    """Close all parts, and record what a platform may still have of the experiment."""
    left = [_describe_unconfirmed(parts.engine.rules.abandoned)] if parts.engine.rules.abandoned else []
    for closing in (parts.tuner.close(committed=parts.store.settled), parts.service.close()):
        try:
            await asyncio.wait_for(closing, _CLOSE_TIMEOUT_S)
        except ServiceError as error:
            left.append(str(error))
        except (asyncio.TimeoutError, NniliteError, OSError) as error:
            log.warning("closing failed: %r", error)
    if left:
        log.warning("left behind: %s", "; ".join(left))
        served.files.write_left("; ".join(left))
    # The last writing connection moves the whole database into its main file, for which readers must be closed.
    parts.reader.close()
    parts.store.close()


def _describe_unconfirmed(trials: Sequence[str]) -> str:
    """Return a sentence on trials whose end the platform did not confirm in time."""
    named = ", ".join(trials[:_MOST_NAMED]) + (f" and {len(trials) - _MOST_NAMED} more" * (len(trials) > _MOST_NAMED))
    return f"the end of trial {named} was not confirmed by its platform, where it may still run: look there, and end it"
