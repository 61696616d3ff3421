"""The store for the event loop. One thread writes the database, and output of trials elsewhere goes to files."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nnilite._engine import messages
from nnilite._engine.dedupe import JobKey, MetricCursor
from nnilite._engine.messages import History
from nnilite._store.store_errors import RESUME, closed, cure_size_limit
from nnilite._store.writer import Store
from nnilite.errors import StoreError
from nnilite.foreign_files import EnclosedFolder, size_below
from nnilite.records import Attempt, JobState, Output, Trial
from nnilite.tuner import Call

T = TypeVar("T")

# The ends that a keeper has reported; LOST is the conclusion from its silence.
_REPORTED_ENDS = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RANK_LOG = re.compile(r"rank-[1-9][0-9]{0,3}\.log")


class AsyncStore:
    """Passes all use of the store's connection to one thread."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._trials = directory / "trials"
        self._thread = ThreadPoolExecutor(1, "store")
        self._closed = False
        self._settled = asyncio.Event()  # no commit is under way, or has failed and is to be tried again
        self._settled.set()
        self.revision = 0

    @property
    def settled(self) -> bool:
        """Whether all that was to be committed is."""
        return self._settled.is_set()

    async def commit(self, records: Sequence[messages.Record]) -> None:
        """Write records in one transaction. Raises: StoreError, and then nothing is written."""
        self._settled.clear()
        self.revision = await self._run(partial(self._store.write, retried=True), records)
        self._settled.set()

    async def find_attempt(self, key: JobKey) -> tuple[Trial, Attempt, MetricCursor] | None:
        """Return what is known of an attempt, or None if there is no such trial or attempt. Raises: StoreError."""
        known = await self._run(partial(self._store.resume_reader.attempt, retried=True), *key)
        if known is None:
            return None
        trial, attempt, metrics = known
        try:
            sizes = await self._run(self._measure_output, key)
        except OSError as error:
            problem = f"the output of trial {key[0]} cannot be read ({error.strerror}); retrying"
            raise StoreError(problem, busy=True) from error
        return trial, attempt, MetricCursor(metrics, *_read_milestones(attempt), sizes, attempt.run)

    async def append_output(self, key: JobKey, chunks: Sequence[Output], *, sync: bool) -> None:
        """Write output to its place, and with `sync` wait until it is on the disk. Raises: StoreError."""
        try:
            await self._run(self._write_output, key, chunks, sync)
        except OSError as error:
            where = (self._trials / _path(key, chunks[0].stream)).parent
            full = "free some disk space, then it continues" if error.errno in _FULL else "retrying"
            cure = f"{cure_size_limit()}, then {RESUME}" if error.errno == errno.EFBIG else full
            problem = f"the output of trial {key[0]} cannot be written to {where} ({error.strerror}); {cure}"
            raise StoreError(problem, busy=True) from error

    async def calls(self, until: int) -> list[Call]:
        """Return the calls up to this number, for a new tuner.

        They include those of a commit under way, which the old one knew.
        """
        await self._settled.wait()
        return await self._run(self._store.resume_reader.calls, until)

    async def histories(self) -> list[History]:
        """Return the intermediate results, for a new assessor or advisor; those of a commit under way, too."""
        await self._settled.wait()
        return await self._run(self._store.resume_reader.histories)

    async def keep_place(self) -> None:
        """Check that the database is in its place. Raises: StoreError while it is not."""
        await self._run(self._store.keep_place)

    def close(self) -> None:
        """Finish what was begun. What is asked afterwards raises StoreError."""
        self._closed = True
        self._thread.shutdown(wait=True)
        self._store.close()

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise closed(self._directory)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _measure_output(self, key: JobKey) -> dict[str, int]:
        paths = {stream: _path(key, stream) for stream in ("stdout", "stderr", "roles", *self._list_ranks(key))}
        sizes = {stream: size_below(self._trials, path) for stream, path in paths.items()}
        return {stream: size for stream, size in sizes.items() if size is not None}

    def _list_ranks(self, key: JobKey) -> list[str]:
        """Return the streams of ranks that have output. Raises: OSError."""
        try:
            names = [path.name for path in (self._trials / _path(key, "rank-1")).parent.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name.removesuffix(".log") for name in names if _RANK_LOG.fullmatch(name)]

    def _write_output(self, key: JobKey, chunks: Sequence[Output], sync: bool) -> None:
        with EnclosedFolder(str(self._trials), make=True) as folder:
            for chunk in chunks:
                with folder.update(_path(key, chunk.stream)) as out:
                    out.seek(chunk.offset)
                    out.write(chunk.data)
                    # The keeper's copy of the output goes with the end of its trial.
                    if sync:
                        out.flush()
                        os.fsync(out.fileno())


def _path(key: JobKey, stream: str) -> str:
    """Return the file of a stream, relative to the trials."""
    names = {"stdout": "trial.stdout", "stderr": "trial.stderr", "roles": "roles.json"}
    return f"{key[0]}/{key[1]}/{names.get(stream) or f'roles/{stream}.log'}"


def _read_milestones(attempt: Attempt) -> tuple[bool, bool]:
    """Return whether the keeper has reported the attempt's start and its end.

    An assumed end (LOST) was not reported.
    """
    return attempt.started is not None, attempt.state in _REPORTED_ENDS or attempt.reported_end is not None
