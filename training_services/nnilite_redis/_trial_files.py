"""Files of trials that lie with their workers: read piece by piece, or fetched as a whole."""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnilite.errors import NotFound, ServiceError
from nnilite.keeper_folder import missing_output, read_events
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle
from nnilite_redis._api import Pool
from nnilite_redis._file_store import Files
from nnilite_redis._keys import worker_party
from nnilite_redis._mail import Letter, Mailbox
from nnilite_redis._watch import PoolWatch

READ_LIMIT_BYTES = 4 << 20
"""The most that a worker gives at once."""

OUTPUTS = "outputs-"
"""What the names of outputs in the store begin with; the job's name follows."""

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
        """A piece of a file of the trial's folder; b"" where there is nothing (yet)."""
        worker = await self._worker(handle)
        if not worker:
            return b""
        asked = {"do": "read", "name": name, "offset": offset, "limit": limit}
        return (await self._ask(worker, handle, asked, _ASK_S)).data

    async def events(self, handle: Handle, here: Path) -> Sequence[KeeperEvent]:
        """What the keeper has noted on its worker's disk, and the output that has not come to the folder `here`.

        None where the worker never had it.
        """
        record = (await self.pool.jobs([str(handle["job"])]))[0]
        if record is None or record.fenced:
            return ()
        with tempfile.TemporaryDirectory(prefix="nnilite-reports-") as folder:
            inner = Path(folder) / ".nni"
            inner.mkdir()
            for name in ("exit", "started", "metrics"):
                with (inner / name).open("wb") as file:
                    while piece := await self.read(handle, f".nni/{name}", file.tell(), READ_LIMIT_BYTES):
                        file.write(piece)
            events = await asyncio.to_thread(read_events, Path(folder))
        output = await missing_output(here, lambda name, at: self.read(handle, name, at, READ_LIMIT_BYTES), events)
        return [*output, *events]

    async def fetch(self, handle: Handle, target: Path) -> None:
        """Copy what the trial has written: from its worker, or, if that is gone, from the store."""
        name = f"{OUTPUTS}{handle['job']}"
        try:
            worker = await self._worker(handle)
            if not worker:
                raise NotFound("no worker has files of this trial")
            name = (await self._ask(worker, handle, {"do": "give"}, _FETCH_S)).text("name")
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

    async def _worker(self, handle: Handle) -> str:
        """The worker that has the trial's files; "" if none ever had."""
        record = (await self.pool.jobs([str(handle["job"])]))[0]
        if record is None:
            raise NotFound("no worker has files of this trial (any more)")
        if record.worker and record.worker not in {worker.id for worker in await self.pool.workers()}:
            raise ServiceError(f"worker {record.worker}, which has the trial's files, has left")
        if self.watch.is_quiet(record.worker):
            raise ServiceError(f"worker {record.worker}, which has the trial's files, does not answer")
        return record.worker

    async def _ask(self, worker: str, handle: Handle, asked: dict[str, Json], limit_s: float) -> Letter:
        answer = await self.mail.ask(worker_party(worker), Letter({**asked, "job": handle["job"]}), limit_s)
        if answer.text("error"):
            raise (NotFound if answer.text("kind") == "NotFound" else ServiceError)(answer.text("error"))
        return answer


def _unpack(archive: Path, target: Path) -> None:
    """Only what stays within the folder. Raises: ServiceError, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise ServiceError(f"the trial's files were damaged on their way: {error}") from error
