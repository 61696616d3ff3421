"""A viewer's process: it shows an experiment that does not run, of nnilite or of NNI, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

from nnilite._engine.engine import CLEANUP_S
from nnilite._manager.log_limits import LogLimits, keep_logs_small
from nnilite._manager.served_experiment import LAST_WORDS_S, ServedExperiment
from nnilite._store.writer import Store, open_store
from nnilite._views.experiment_view import assemble_view
from nnilite._views.viewer import Viewer
from nnilite.config import CheckedConfig, load_stored
from nnilite.records import ExperimentState
from nnilite.services.module_command import module_command
from nnilite.services.task_ends import end_tasks


async def view(served: ServedExperiment) -> list[str]:
    """Show an experiment until the process is stopped. Raises: NniliteError.

    Return the command line of a manager that resumes the experiment if a user wants that, else [].
    """
    config = load_stored(served.directory, paths=False)
    store = open_store(served.directory, False, time.time())
    token = served.prepare(config)
    viewer = assemble_view(served.directory, config, store, token)
    served.files.created = viewer.profiles.about.created
    return await _show(served, viewer, store)


async def view_nni(served: ServedExperiment) -> list[str]:
    """Do the same with an experiment of Microsoft NNI."""
    from nnilite._nni import nni_view

    token = served.prepare_without_config(CheckedConfig.idle_timeout)  # NNI's configuration has no such field
    return await _show(served, *nni_view.open_view(served.directory, token))


async def _show(served: ServedExperiment, viewer: Viewer, store: Store) -> list[str]:
    # An open database has files next to it, which may not go away once the lock says that the folder is free.
    with contextlib.closing(store), contextlib.closing(viewer.results):
        server = served.listen(viewer)
        before = viewer.progress()
        viewer.show_as_viewed()
        served.files.write_state(ExperimentState.VIEWED, before.ended, viewed=before.state)
        served.tell_ready()
        limits = LogLimits(served.directory)
        watches = [asyncio.create_task(viewer.watch()), asyncio.create_task(keep_logs_small(limits))]
        is_resumed = await _await_resume_or_stop(served, viewer)
        await end_tasks(watches, CLEANUP_S)
        await server.end()
        served.files.write_state(before.state, before.ended)
        return _resume_command(served) if is_resumed else []


async def _await_resume_or_stop(served: ServedExperiment, viewer: Viewer) -> bool:
    resuming = viewer.control.resuming
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(event.wait()) for event in (served.stopping, resuming)]
    waits.append(asyncio.create_task(served.stop_when_idle(lambda: True)))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in waits:
        task.cancel()
    # The answer to the request for the resume has to be sent first.
    await asyncio.sleep(LAST_WORDS_S if resuming.is_set() else 0)
    return resuming.is_set() and not served.stopping.is_set()


def _resume_command(served: ServedExperiment) -> list[str]:
    """Return the command line of a manager that resumes the viewed experiment at the same address."""
    same = replace(served.options, port=served.address.port)
    words = module_command("nnilite._manager", "--directory", str(served.directory), "--mode", "resume")
    return [*words, *same.words(), *(["--with-parent"] if served.with_parent else [])]
