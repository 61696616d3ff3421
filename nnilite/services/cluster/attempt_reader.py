"""Reading what a trial has written, piece by piece, for trials that report by their folders."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from nnilite.records import KeeperEvent, Output
from nnilite.services.cluster.queue_watch import QueueWatch
from nnilite.services.cluster.shared_folder import SharedFolder
from nnilite.services.keeper_folder import SpoolCopy, read_events

GROWING = (".nni/metrics", "trial.stdout", "trial.stderr")
_MOST_BYTES = 4 << 20  # per file and look


class AttemptReader:
    """A copy of one attempt's reports, which grows as they do."""

    def __init__(self, files: SharedFolder, watch: QueueWatch) -> None:
        self._files = files
        self._watch = watch
        self._copy = tempfile.TemporaryDirectory(prefix="nnilite-")
        self._offsets = dict.fromkeys(GROWING, 0)
        (Path(self._copy.name) / ".nni").mkdir()
        self._spool = SpoolCopy(Path(self._copy.name))

    async def events(self, sizes: Mapping[str, int], with_output: bool) -> list[KeeperEvent]:
        """Return all reports, and the output that is new since the last call. Raises: ServiceError."""
        names = GROWING if with_output else GROWING[:1]
        output: list[Output] = []
        while wanted := list(self._unread(names, sizes)):
            found = await self._files.pieces(
                [(f"{self._watch.folder}/{name}", offset, size) for name, offset, size in wanted]
            )
            for (name, offset, _), data in zip(wanted, found, strict=True):
                if name == GROWING[0]:
                    await asyncio.to_thread(self._spool.add, data)
                else:
                    output.append(Output(name.removeprefix("trial."), offset, data))
                self._offsets[name] = offset + len(data)
        for name in (".nni/started", ".nni/exit"):
            if name in self._watch.notes:
                (Path(self._copy.name) / name).write_bytes(self._watch.notes[name])
        events = await asyncio.to_thread(read_events, Path(self._copy.name))
        run = next((event.run for event in events if event.run), "")
        return [*events, *(replace(piece, run=run) for piece in output)]

    def _unread(self, names: tuple[str, ...], sizes: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        for name in names:
            offset = self._offsets[name]
            if sizes.get(name, 0) > offset and (name != GROWING[0] or self._spool.wants_more):
                yield name, offset, min(sizes[name] - offset, _MOST_BYTES)

    def close(self) -> None:
        self._copy.cleanup()
