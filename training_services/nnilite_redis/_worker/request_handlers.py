"""Answer requests to a worker: of keepers to pass on their requests, of managers for files and to check its jobs."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nnilite.errors import NniliteError, NotFound, ServiceError
from nnilite.foreign_files import list_below, open_below
from nnilite.services.worker_side import is_folder_there, is_there
from nnilite_redis._api import Pool
from nnilite_redis._file_store import Files, files_of
from nnilite_redis._keys import name_manager_party
from nnilite_redis._mailbox import Mailbox, PoolMessage
from nnilite_redis._relay import LIMIT_S
from nnilite_redis._trial_files import OUTPUTS, READ_LIMIT_BYTES
from nnilite_redis._worker.attempt import OURS, SENT, WorkerAttempt
from nnilite_redis._worker.checkpoints import Checkpoints, pack_folder
from nnilite_redis._worker.held_attempts import HeldAttempts

log = logging.getLogger(__name__)

READABLE = ("trial.stdout", "trial.stderr", ".nni/started", ".nni/exit", ".nni/metrics")

_LISTED_CHARS = 4_000_000
_STORE_S = 120.0  # for last files that the store or Redis does not take at once


@dataclass(frozen=True)
class Handlers:
    """Answers both sides."""

    pool: Pool
    holdings: HeldAttempts
    checkpoints: Checkpoints
    folder: Path
    worker: str
    look: Callable[[], None]  # checks Redis for news of jobs

    async def hand_on(self, mail: Mailbox, job: str, message: PoolMessage) -> PoolMessage | None:
        """Pass a keeper's request on to its manager; None if there is no such job here. Raises: NniliteError."""
        attempt = self.holdings.get(job)
        if attempt is None:
            return None
        experiment = attempt.task.job.experiment
        with self.pool.asking():
            present = await self.pool.client.exists(self.pool.keys.manager(experiment))
        if not present:
            raise ServiceError("the manager is unavailable")
        if attempt.over:
            await self._last_files(attempt)
        answer = await mail.ask(name_manager_party(experiment), message, LIMIT_S)
        if message.text("method") == "POST":
            attempt.confirmations.note(answer)
        return answer

    async def _last_files(self, attempt: WorkerAttempt) -> None:
        """Store the last files before the end is reported, however many requests wait for it.

        That may start another attempt, which needs the checkpoints. Raises: ServiceError if they are to wait longer.
        """
        async with attempt.storing:
            if attempt.saved or not attempt.begun:
                return
            attempt.store_until = attempt.store_until or time.monotonic() + _STORE_S
            saved = True
            try:
                saved = await self._store_last_files(attempt)
            finally:
                attempt.saved = saved
            if not saved:
                raise ServiceError("the trial's last checkpoint cannot be stored now")

    async def _store_last_files(self, attempt: WorkerAttempt) -> bool:
        """Return False if the checkpoints are to be tried again first. Raises: NniliteError, OSError."""
        files = files_of(self.pool, attempt.task.files)
        is_done = not attempt.task.checkpoint_s or await self.checkpoints.save(attempt.task, files)
        if not is_done and time.monotonic() < attempt.store_until:
            return False
        outputs = attempt.outputs()
        if outputs and attempt.task.keep_outputs and "bucket" in attempt.task.files:
            try:
                await self._give(outputs, files, OUTPUTS + attempt.name)
                attempt.stored = True
            except NniliteError as error:  # they stay in the folder
                log.warning("the outputs of %s are not in the store: %s", attempt.name, error)
        return True

    async def serve(self, message: PoolMessage) -> PoolMessage | None:
        """Answer a manager. Raises: NniliteError."""
        if message.text("do") == "look":
            self.look()
            return None
        try:
            return await self._serve_files(message)
        except OSError as error:
            raise ServiceError(f"worker {self.worker} cannot read the trial's folder now: {error}") from error

    async def _serve_files(self, message: PoolMessage) -> PoolMessage:
        """Answer for the files of a trial. Raises: NniliteError, OSError."""
        what, attempt = message.text("do"), self.holdings.get(message.text("job"))
        if attempt is None or not is_folder_there(attempt.path):
            raise NotFound(f"worker {self.worker} has no files of this trial (any more)")
        if what == "read":
            return await asyncio.to_thread(_read, attempt, message)
        if what == "list":
            return await asyncio.to_thread(_listed, attempt)
        if what == "give":
            return await self._give_folder(attempt)
        raise ServiceError(f"worker {self.worker} cannot {what!r:.50}: it may be of another version of nnilite")

    async def _give_folder(self, attempt: WorkerAttempt) -> PoolMessage:
        """Put the trial's files where its manager can fetch them."""
        name = f"fetch-{attempt.name}-{secrets.token_hex(4)}"
        sent = [attempt.path / name for name in SENT if is_there(attempt.path / name)]
        await self._give([*sent, *attempt.outputs()], files_of(self.pool, attempt.task.files), name)
        return PoolMessage({"name": name})

    async def _give(self, paths: list[Path], files: Files, name: str) -> None:
        """Put files into an archive that others can fetch by its name. Raises: NniliteError."""
        archive = self.folder / "cache" / f".{secrets.token_hex(8)}.tar"
        try:
            await asyncio.to_thread(pack_folder, paths, archive)
            await files.put(name, archive, "the trial's folder")
        except OSError as error:
            raise ServiceError(f"worker {self.worker} cannot pack the trial's folder: {error}") from error
        finally:
            archive.unlink(missing_ok=True)

    async def save_checkpoints(self, attempt: WorkerAttempt) -> None:
        """Store what a running trial has saved, once its manager has the reports before.

        Errors are shown with the worker.
        """
        try:
            files = files_of(self.pool, attempt.task.files)
        except NniliteError as error:
            self.checkpoints.trouble = str(error)
        else:
            await self.checkpoints.save(attempt.task, files, lambda: attempt.confirmations.come(lambda: attempt.over))


def _read(attempt: WorkerAttempt, message: PoolMessage) -> PoolMessage:
    """Return a piece of a file of the trial, or of its keeper."""
    name, offset, limit = message.text("name"), message.head.get("offset"), message.head.get("limit")
    is_known = name in READABLE or name.split("/")[0] not in OURS
    if not is_known or not (isinstance(offset, int) and isinstance(limit, int) and offset >= 0):
        raise NotFound(f"there is no file {name!r:.50}")
    try:
        with open_below(attempt.path, name) as file:
            file.seek(offset)
            return PoolMessage({}, file.read(max(0, min(limit, READ_LIMIT_BYTES))))
    except NotFound:
        if name not in READABLE:
            raise
        # It is not there yet.
        return PoolMessage({})


def _listed(attempt: WorkerAttempt) -> PoolMessage:
    """Return the trial's own files in its folder: see `nnilite.foreign_files.listed`."""
    found, chars = [], 0
    for one in list_below(attempt.path, lambda parts: len(parts) == 1 and parts[0] in OURS):
        chars += len(one.path) + len(one.target)
        if chars > _LISTED_CHARS:
            break
        found.append([one.path, one.size, one.modified, one.kind, one.target])
    return PoolMessage({"files": found})
