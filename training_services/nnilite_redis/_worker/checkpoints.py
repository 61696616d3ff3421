"""Store what trials save where other workers find it, since this machine may be gone when it is needed.

One archive for each attempt: a further attempt takes the newest one, unless its trial's folder here has what that
attempt wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from nnilite.errors import ConfigError, NniliteError, ServiceError
from nnilite.services.worker_side import DamagedTar, unpack_checkpoint
from nnilite_redis._file_store import Files
from nnilite_redis._worker.task import WorkerTask

log = logging.getLogger(__name__)

_MOST_EARLIER = 20
Confirmed = Callable[[], Awaitable[bool]]
Signature = tuple[tuple[str, int, int], ...]


class Checkpoints:
    """The checkpoints of all trials of one worker, in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saved: dict[str, Signature] = {}  # signature of what was stored last, by job
        self._next_s: dict[str, float] = {}
        self._turns: dict[str, asyncio.Lock] = {}  # by job
        self.trouble = ""

    def place(self, task: WorkerTask) -> Path:
        """Return the folder that the trial writes to."""
        return self._folder / task.job.experiment / "checkpoints" / task.job.trial

    def _by(self, task: WorkerTask) -> Path:
        place = self.place(task)
        return place.with_name(f"{place.name}.by")

    async def fetch(self, task: WorkerTask, files: Files) -> None:
        """Provide the attempt with what the one before it saved. Raises: NniliteError, OSError."""
        place = self.place(task)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        here = _read_number(self._by(task))
        for number in range(task.job.attempt - 1, max(-1, task.job.attempt - 1 - _MOST_EARLIER), -1):
            if number == here or await self._restore(_name(task, number), place, files):
                break
        self._by(task).write_text(str(task.job.attempt), "ascii")
        self._saved[task.name] = await asyncio.to_thread(_make_signature, place)

    async def _restore(self, name: str, place: Path, files: Files) -> bool:
        with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=place.parent) as scratch:
            archive = Path(scratch) / "checkpoint.tar"
            if not await files.get(name, archive):
                return False
            await asyncio.to_thread(_unpack, archive, Path(scratch) / "new", place)
        return True

    def is_due(self, task: WorkerTask) -> bool:
        """Return whether it is time to store what has changed; it is again after a while."""
        if time.monotonic() < self._next_s.get(task.name, 0.0):
            return False
        self._next_s[task.name] = time.monotonic() + task.checkpoint_s
        return True

    async def save(self, task: WorkerTask, files: Files, confirmed: Confirmed | None = None) -> bool:
        """Store what has changed since the last time. Errors are reported, and the next due time tries again.

        `confirmed` is awaited before it is stored, and says whether it is to be. Without it, this is the last time:
        return False then if another try may succeed.
        """
        turn = self._turns.setdefault(task.name, asyncio.Lock())
        if turn.locked() and confirmed is not None:
            return True
        async with turn:
            try:
                place = self.place(task)
                signature = await asyncio.to_thread(_make_signature, place)
                if signature and signature != self._saved.get(task.name):
                    if not await self._store(task, place, files, confirmed):
                        return True
                    self._saved[task.name] = signature
                self.trouble = ""
            except (NniliteError, OSError, tarfile.TarError) as error:
                self.trouble = f"checkpoints of trial {task.job.trial} stay on this worker alone: {error}"
                log.warning("%s", self.trouble)
                return isinstance(error, ConfigError)
        return True

    async def _store(self, task: WorkerTask, place: Path, files: Files, confirmed: Confirmed | None) -> bool:
        with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=place.parent) as scratch:
            archive = Path(scratch) / "checkpoint.tar"
            await asyncio.to_thread(pack_folder, [*sorted(place.iterdir())], archive)
            if confirmed is not None and not await confirmed():
                return False
            await files.put(_name(task, task.job.attempt), archive, "the checkpoint")
        return True

    def forget(self, task: WorkerTask) -> None:
        self._saved.pop(task.name, None)
        self._turns.pop(task.name, None)
        self._next_s.pop(task.name, None)

    def remove(self, experiment: str) -> None:
        """Remove the checkpoints of an ended experiment without trials here."""
        shutil.rmtree(self._folder / experiment / "checkpoints", ignore_errors=True)
        with contextlib.suppress(OSError):
            (self._folder / experiment).rmdir()


def pack_folder(paths: list[Path], archive: Path) -> None:
    """Pack files, folders and links, each under its own name. Raises: OSError, tarfile.TarError."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.inodes = _SplitHardLinks()  # type: ignore[attr-defined]
        for path in paths:
            tar.add(path, arcname=path.name, filter=_filter_sendable)


class _SplitHardLinks(dict[object, str]):
    """Makes each name of a file with several (hard links) a file of its own: hard links are not unpacked."""

    def __contains__(self, inode: object) -> bool:
        return False


def _filter_sendable(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isreg() or member.isdir() or member.issym() else None


def _name(task: WorkerTask, attempt: int) -> str:
    return f"checkpoint-{task.job.experiment}-{task.job.trial}-{attempt}"


def _unpack(archive: Path, draft: Path, place: Path) -> None:
    """Put the archive's content in the place of what is there. Raises: OSError, ServiceError."""
    try:
        unpack_checkpoint(str(archive), str(draft))
    except DamagedTar as error:
        raise ServiceError(f"the checkpoint is damaged: {error}") from error
    shutil.rmtree(place, ignore_errors=True)
    draft.replace(place)


def _make_signature(place: Path) -> Signature:
    """Return a value that changes when a file does; () if there are none."""
    found = []
    for folder, _, names in os.walk(place):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                facts = path.lstat()
                found.append((str(path.relative_to(place)), facts.st_size, facts.st_mtime_ns))
    return tuple(sorted(found))


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
