"""Read the files of trials on their workers, piece by piece or as a whole."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnilite.errors import NotFound, ServiceError
from nnilite.foreign_files import TrialFile, listed, save_below, take_tar
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle
from nnilite.services.keeper_folder import copied_events, missing_output
from nnilite_redis._api import Pool
from nnilite_redis._file_store import Files
from nnilite_redis._keys import name_worker_party
from nnilite_redis._mailbox import Mailbox, PoolMessage
from nnilite_redis._watch import PoolWatch

READ_LIMIT_BYTES = 4 << 20
"""The most that a worker gives at once."""

OUTPUTS = "outputs-"
"""What the names of outputs in the store begin with; the job's name follows."""

_GIVEN = "fetch-"
_ASK_S = 20.0
_FETCH_S = 50.0


@dataclass(frozen=True)
class TrialFiles:
    """Asks the workers of trials for them. All methods raise ServiceError or NotFound."""

    pool: Pool
    mail: Mailbox
    files: Files
    watch: PoolWatch
    has_store: bool

    async def read(self, handle: Handle, name: str, offset: int, limit: int) -> bytes:
        """Return a piece of a file of the trial's folder; b"" where there is nothing (yet)."""
        worker = await self._worker(handle)
        if not worker:
            return b""
        asked = {"do": "read", "name": name, "offset": offset, "limit": limit}
        return (await self._ask(worker, handle, asked, _ASK_S)).data

    async def events(self, handle: Handle, here: Path) -> Sequence[KeeperEvent]:
        """Return the events on the worker's disk, and the output that is not in the folder `here` yet.

        None where the worker never had it.
        """
        record = (await self.pool.jobs([str(handle["job"])]))[0]
        if record is None or record.fenced:
            return ()
        with tempfile.TemporaryDirectory(prefix="nnilite-reports-") as folder:
            events = await copied_events(
                Path(folder), lambda name, offset: self.read(handle, name, offset, READ_LIMIT_BYTES)
            )
        output = await missing_output(here, lambda name, at: self.read(handle, name, at, READ_LIMIT_BYTES), events)
        return [*output, *events]

    async def fetch(self, handle: Handle, target: Path) -> None:
        """Copy what the trial has written: from its worker, or, if that is gone, from the store."""
        name = f"{OUTPUTS}{handle['job']}"
        try:
            worker = await self._worker(handle)
            if not worker:
                raise NotFound("no worker has files of this trial")
            given = (await self._ask(worker, handle, {"do": "give"}, _FETCH_S)).text("name")
            if not given.startswith(_GIVEN):
                raise ServiceError(f"worker {worker} names {given!r:.100} in the place of the trial's files")
            name = given
        except (ServiceError, NotFound):
            if not (self.has_store and await self.files.has(name)):
                raise
        with tempfile.TemporaryDirectory(prefix="nnilite-fetch-") as folder:
            archive = Path(folder) / "files.tar"
            if not await self.files.get(name, archive):
                raise NotFound("the trial's files are gone")
            await asyncio.to_thread(_unpack, archive, target)
        if not name.startswith(OUTPUTS):
            await self.files.delete(name)

    async def listed(self, handle: Handle) -> list[TrialFile] | None:
        """Return the files in the trial's folder on its worker; None if only the store has it."""
        try:
            worker = await self._worker(handle)
            if not worker:
                raise NotFound("no worker has files of this trial")
            return listed((await self._ask(worker, handle, {"do": "list"}, _ASK_S)).head.get("files"))
        except (ServiceError, NotFound):
            if self.has_store and await self.files.has(f"{OUTPUTS}{handle['job']}"):
                return None
            raise

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        """Copy one file of the trial's folder from its worker."""
        loop, offset = asyncio.get_running_loop(), 0

        def piece(size: int) -> bytes:
            nonlocal offset
            asked = self.read(handle, path, offset, min(size, READ_LIMIT_BYTES))
            data = asyncio.run_coroutine_threadsafe(asked, loop).result(_ASK_S + _ASK_S)
            offset += len(data)
            return data

        await asyncio.to_thread(save_below, piece, target, path, most_bytes)

    async def _worker(self, handle: Handle) -> str:
        """Return the worker that has the trial's files; "" if none ever had."""
        record = (await self.pool.jobs([str(handle["job"])]))[0]
        if record is None:
            raise NotFound("no worker has files of this trial (any more)")
        if record.worker and record.worker not in {worker.id for worker in await self.pool.workers()}:
            raise ServiceError(f"worker {record.worker}, which has the trial's files, has left")
        if self.watch.is_quiet(record.worker):
            raise ServiceError(f"worker {record.worker}, which has the trial's files, does not answer")
        return record.worker

    async def _ask(self, worker: str, handle: Handle, asked: dict[str, Json], limit_s: float) -> PoolMessage:
        answer = await self.mail.ask(name_worker_party(worker), PoolMessage({**asked, "job": handle["job"]}), limit_s)
        if answer.text("error"):
            raise (NotFound if answer.text("kind") == "NotFound" else ServiceError)(answer.text("error"))
        return answer


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the files, but only into the folder. Raises: ServiceError, OSError."""
    with archive.open("rb") as file:
        take_tar(file.read, target)
