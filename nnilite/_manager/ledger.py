"""The store for the event loop: one thread writes, and the output of trials elsewhere goes to files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from nnilite._manager import steps as s
from nnilite._manager.intake import Cursor, JobKey
from nnilite._manager.store import Store
from nnilite._manager.tuner_host import History
from nnilite.records import Attempt, Output, Trial
from nnilite.tuner import Call

T = TypeVar("T")


class StoreLedger:
    """All use of the store's connection goes through one thread."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "store")
        self.revision = 0

    async def commit(self, records: Sequence[s.Record]) -> None:
        """Raises: StoreError; then nothing is written."""
        self.revision = await self._run(self._store.write, records)

    async def recall(self, key: JobKey) -> tuple[Trial, Attempt, Cursor] | None:
        """What is known of an attempt, or None if there is no such trial or attempt."""
        known = await self._run(self._store.attempt, *key)
        if known is None:
            return None
        trial, attempt, metrics = known
        return trial, attempt, Cursor(metrics, *_milestones(attempt), self._output_sizes(key))

    async def append_output(self, key: JobKey, chunks: Sequence[Output]) -> None:
        """Write output at its place. Raises: OSError."""
        await self._run(self._write_output, key, chunks)

    async def calls(self, until: int) -> list[Call]:
        return await self._run(self._store.calls, until)

    async def histories(self) -> list[History]:
        return await self._run(self._store.histories)

    async def put_meta(self, key: str, value: Any) -> None:
        await self._run(self._store.put_meta, key, value)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._store.close()

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _path(self, key: JobKey, stream: str) -> Path:
        return self._directory / "trials" / key[0] / str(key[1]) / f"trial.{stream}"

    def _output_sizes(self, key: JobKey) -> dict[str, int]:
        paths = {stream: self._path(key, stream) for stream in ("stdout", "stderr")}
        return {stream: path.stat().st_size for stream, path in paths.items() if path.is_file()}

    def _write_output(self, key: JobKey, chunks: Sequence[Output]) -> None:
        for chunk in chunks:
            path = self._path(key, chunk.stream)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with path.open("r+b" if path.exists() else "wb") as out:
                out.seek(chunk.offset)
                out.write(chunk.data)


def _milestones(attempt: Attempt) -> tuple[bool, bool]:
    """Whether the attempt's start and end were told by its keeper. An assumed end (LOST) was not."""
    return attempt.started is not None, attempt.state in ("SUCCEEDED", "FAILED", "CANCELED")
