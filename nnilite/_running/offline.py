"""Reads a stopped experiment. A thread of this process serves its REST interface read-only.

It takes no lock and writes nothing, so it affects neither a manager that is started meanwhile nor another program.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nnilite._experiments.nni_folders import NniExperiment
from nnilite._experiments.registry import RegistryEntry
from nnilite._running.manager_client import Client
from nnilite.errors import NniliteError

if TYPE_CHECKING:
    from nnilite._store.writer import Store
    from nnilite._views.viewer import Viewer

START_TIMEOUT_S = 60.0
_HOST = "127.0.0.1"


@contextmanager
def opened(entry: RegistryEntry) -> Iterator[Client]:
    """Yield a client of the stopped experiment. Raises: NniliteError if its folder cannot be read."""
    if not threading.main_thread().is_alive():  # Python refuses new work in pools of threads from then on
        raise NniliteError(
            f"{entry.directory} cannot be read, since the program's main thread has ended. Read the results before, as "
            "before `stop`, or let the main thread wait for the one that reads (thread.join())"
        )
    serving = _Serving(entry.directory, entry.origin)
    thread = threading.Thread(target=serving.run, name="offline", daemon=True)
    thread.start()
    url = serving.address.result(START_TIMEOUT_S)
    try:
        with Client(url, serving.token) as client:
            yield client
    finally:
        serving.end()
        thread.join(START_TIMEOUT_S)


class _Serving:
    """One thread with an event loop. `address` becomes the URL, or the error of the start."""

    def __init__(self, directory: Path, origin: NniExperiment | None) -> None:
        self.token = secrets.token_urlsafe(16)
        self.address: Future[str] = Future()
        self._directory = directory
        self._origin = origin
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except (NniliteError, OSError) as error:  # the other thread raises it
            self.address.set_exception(error)
        finally:
            if not self.address.done():
                self.address.set_exception(NniliteError(f"{self._directory} cannot be read."))

    def end(self) -> None:
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self) -> None:
        from nnilite._rest import ServerOptions, listen, make_application

        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        reading, store = self._open()
        server = listen(make_application(reading, ServerOptions(bind=_HOST)), _HOST, 0)
        self.address.set_result(f"http://{_HOST}:{server.port}")
        await self._over.wait()
        server.stop()
        reading.results.close()
        store.close()

    def _open(self) -> tuple[Viewer, Store]:
        from nnilite._nni import nni_import, nni_view
        from nnilite._store.database_file import FILE_NAME, refuse_newer_database
        from nnilite._store.writer import open_store
        from nnilite._views.experiment_view import assemble_view
        from nnilite.config import load_stored

        if self._origin is not None:
            nni_import.prepare(self._origin, self._directory)
            return nni_view.open_view(self._directory, self.token)
        refuse_newer_database(self._directory / FILE_NAME)
        config = load_stored(self._directory, paths=False)
        store = open_store(self._directory, False, time.time())
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(store.close)
            reading = assemble_view(self._directory, config, store, self.token)
            if_it_fails.pop_all()
        return reading, store
