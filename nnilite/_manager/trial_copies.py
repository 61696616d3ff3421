"""Files of trials that lie on other machines: listed there, and copied here one by one, or all if a person asks for it.

The page lists a trial's folder where it is. It copies single files, up to `PAGE_FILE_BYTES` each. If a service cannot
list, the trial's folder is copied if it is not larger than that. All copies leave room on the disk, see
`nnilite.disk_room`, and nothing is left of one that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nnilite._rest.files import is_private
from nnilite._views.file_listing import incomplete, is_same
from nnilite.disk_room import DiskRoom
from nnilite.errors import Conflict, NniliteError, NotFound, ServiceError
from nnilite.foreign_files import (
    FILE,
    FOLDER,
    GROWING,
    LISTED_MAX,
    MOST_ENTRIES,
    EnclosedFolder,
    UnsafeName,
    open_below,
    parts_of,
)
from nnilite.records import Attempt
from nnilite.service import TrainingService, TrialFile
from nnilite.units import format_size

log = logging.getLogger(__name__)

PAGE_FILE_BYTES = 256 << 20
"""The largest file that is copied here to be viewed."""

_LIST_TIMEOUT_S = 20.0
_FILE_TIMEOUT_S = 600.0
_ALL_TIMEOUT_S = 3600.0
# How long the list of a running trial's files is not requested again; that of an ended one hardly changes.
_LISTED_FOR_S = 5.0
_ENDED_FOR_S = 60.0
_LOOK_EVERY_S = 1.0
_LEAST_BYTES = 4096  # least size that a file or folder counts with

Key = tuple[str, int]


class TrialCopies:
    """Copies on this machine, in `folder`/<trial>/<attempt>, of what attempts have written elsewhere."""

    def __init__(self, folder: Path, service: TrainingService) -> None:
        self._folder = folder
        self._service = service
        self._lists: dict[Key, tuple[float, Sequence[TrialFile]]] = {}
        self._whole: set[Key] = set()  # ended attempts that are here completely
        self._locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tidied: set[Key] = set()
        self._scratches = folder.with_name(".copies")
        self._is_tidy = False

    async def listed(self, attempt: Attempt) -> tuple[Sequence[TrialFile], str]:
        """List what an attempt has written elsewhere, and say what of it is not listed; ((), "") if all is here.

        Paths are relative to the folder of the trial.
        """
        if self._is_here(attempt):
            return (), ""
        async with self._locks[_key(attempt)]:
            try:
                found = await self._list(attempt)
                if found is None:
                    await self._fetch_small_folder(attempt)
                below = [replace(one, path=f"{attempt.number}/{one.path}") for one in found or ()]
                return below, incomplete(below)
            except NotFound as error:
                return (), f"Only what is on this machine is listed: {error}."
            except (NniliteError, OSError, asyncio.TimeoutError) as error:
                why = str(error).rstrip(".") or f"its machine has not answered within {_LIST_TIMEOUT_S:.0f} s"
                return (), f"Only what is on this machine is listed: {why}."

    async def fetch_file(self, attempt: Attempt, path: str) -> None:
        """Copy one file unless an equal one is here. Raises: Conflict if it is too large, ServiceError."""
        if self._is_here(attempt) or is_private([str(attempt.number), *path.split("/")]):
            return
        async with self._locks[_key(attempt)]:
            with _explain_failures(attempt, f"The file {path!r}"):
                listed = await self._list(attempt)
                known = next((one for one in listed or () if one.path == path and one.kind == FILE), None)
                if known is None or await asyncio.to_thread(self._has, attempt, known):
                    return
                _check_size(attempt, known)
                await self._tidy(attempt)
                await self._fetch_file(attempt, known)

    async def fetch_files(self, attempt: Attempt) -> None:
        """Copy all that an attempt has written. Raises: ServiceError."""
        key = _key(attempt)
        if self._is_here(attempt) or key in self._whole:
            return
        async with self._locks[key]:
            with _explain_failures(attempt, "The files"):
                await self._tidy(attempt)
                async with self._scratch() as scratch:
                    fetching = self._service.fetch(attempt.handle or {}, scratch)
                    await asyncio.wait_for(fetching, _ALL_TIMEOUT_S)
                    await asyncio.to_thread(_move, scratch, self._target(attempt))
                if attempt.ended is not None:
                    self._whole.add(key)

    async def _list(self, attempt: Attempt) -> Sequence[TrialFile] | None:
        """List the folder of an attempt where it is; None if its service cannot. Raises: NniliteError, TimeoutError."""
        key = _key(attempt)
        when, known = self._lists.get(key, (float("-inf"), ()))
        if time.monotonic() - when < (_LISTED_FOR_S if attempt.ended is None else _ENDED_FOR_S):
            return known
        found = await asyncio.wait_for(self._service.files(attempt.handle or {}), _LIST_TIMEOUT_S)
        if found is None:
            return None
        checked = [one for one in found[:LISTED_MAX] if _is_shown(attempt, one)]
        self._lists[key] = (time.monotonic(), checked)
        return checked

    async def _fetch_file(self, attempt: Attempt, known: TrialFile) -> None:
        target, handle = self._target(attempt), attempt.handle or {}
        if known.path not in GROWING:
            work = self._service.fetch_file(handle, known.path, target, PAGE_FILE_BYTES)
            await asyncio.wait_for(work, _FILE_TIMEOUT_S)
            await asyncio.to_thread(_stamp, target, known)
            return
        # The manager writes to these, too, as their lines come: a copy is laid over the beginning.
        async with self._scratch() as scratch:
            work = self._service.fetch_file(handle, known.path, scratch, PAGE_FILE_BYTES)
            await asyncio.wait_for(work, _FILE_TIMEOUT_S)
            await asyncio.to_thread(_merge_into, scratch, target, known.path)

    async def _fetch_small_folder(self, attempt: Attempt) -> None:
        """Copy the folder of an attempt whose service cannot list, unless it is large. Raises: NniliteError."""
        key = _key(attempt)
        when, _ = self._lists.get(key, (float("-inf"), ()))
        if key in self._whole or (attempt.ended is None and time.monotonic() - when < _LISTED_FOR_S):
            return
        await self._tidy(attempt)
        async with self._scratch() as scratch:
            work = self._service.fetch(attempt.handle or {}, scratch)
            await asyncio.wait_for(_run_bounded(work, scratch.parent), _FILE_TIMEOUT_S)
            await asyncio.to_thread(_move, scratch, self._target(attempt))
        self._lists[key] = (time.monotonic(), ())
        if attempt.ended is not None:
            self._whole.add(key)

    @contextlib.asynccontextmanager
    async def _scratch(self) -> AsyncIterator[Path]:
        """Yield a folder for a copy, which is removed with all that a service has put into it or next to it."""
        if not self._is_tidy:  # an earlier manager may have been killed
            self._is_tidy = True
            await asyncio.to_thread(shutil.rmtree, self._scratches, ignore_errors=True)
        self._scratches.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".copy-", dir=self._scratches))
        try:
            yield place / "files"
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, place, ignore_errors=True))

    async def _tidy(self, attempt: Attempt) -> None:
        """Remove what an earlier manager has left of copies that it had not finished. Raises: OSError."""
        if _key(attempt) not in self._tidied:
            await asyncio.to_thread(_remove_pieces, self._target(attempt))
            self._tidied.add(_key(attempt))

    def _is_here(self, attempt: Attempt) -> bool:
        """Return whether the service keeps the trial's folder where its copy would be."""
        return attempt.handle is not None and self._service.folder(attempt.handle) == self._target(attempt)

    def _target(self, attempt: Attempt) -> Path:
        return self._folder / attempt.trial / str(attempt.number)

    def _has(self, attempt: Attempt, known: TrialFile) -> bool:
        """Return whether the copy here is what is listed. Output may be longer here."""
        try:
            with EnclosedFolder(str(self._target(attempt))) as folder:
                facts = folder.look(known.path)
        except OSError:
            return False
        return is_same(TrialFile(known.path, facts.st_size, facts.st_mtime), known)


def _key(attempt: Attempt) -> Key:
    return attempt.trial, attempt.number


def _is_shown(attempt: Attempt, one: TrialFile) -> bool:
    """Return whether an entry that a worker lists can be a file, and is not the keeper's."""
    try:
        parts = parts_of(one.path)
    except UnsafeName:
        return False
    return bool(parts) and "/".join(parts) == one.path and not is_private([str(attempt.number), *parts])


def _check_size(attempt: Attempt, known: TrialFile) -> None:
    if known.size > PAGE_FILE_BYTES:
        raise Conflict(
            f"{known.path} has {format_size(known.size)}, and files over {format_size(PAGE_FILE_BYTES)} are not copied "
            f"from other machines to be viewed: copy the whole folder with `nnictl trial download -T {attempt.trial}`, "
            f"or get the file from its machine with scp"
        )


@contextlib.contextmanager
def _explain_failures(attempt: Attempt, what: str) -> Iterator[None]:
    """Turn any failure of a copy into one sentence."""
    try:
        yield
    except Conflict:
        raise
    except NotFound as error:
        log.warning("what is left of trial %s is on this machine: %s", attempt.trial, error)
    except (NniliteError, OSError, asyncio.TimeoutError) as error:
        reason = str(error).rstrip(".") or "it takes too long"
        raise ServiceError(f"{what} of trial {attempt.trial} cannot be copied here: {reason}.") from error


def _stamp(target: Path, known: TrialFile) -> None:
    """Give a copy the time that identifies it later."""
    with contextlib.suppress(OSError), EnclosedFolder(str(target)) as folder:
        folder.stamp(known.path, int(known.modified * 1e9))


def _merge_into(source: Path, target: Path, path: str) -> None:
    with open_below(source, path) as copy, EnclosedFolder(str(target), make=True) as folder:
        with folder.update(path) as file:
            shutil.copyfileobj(copy, file, 1 << 20)


def _is_small(folder: Path) -> bool:
    """Return whether a folder's content is below the limit of a copy for viewing. Each entry counts, too."""
    left = PAGE_FILE_BYTES
    with EnclosedFolder(str(folder)) as found:
        for entry in found.walk(PAGE_FILE_BYTES // _LEAST_BYTES + 1):
            left -= max(_LEAST_BYTES, entry.facts.st_size if entry.kind == FILE else 0)
            if left < 0:
                return False
    return True


async def _run_bounded(work: Awaitable[None], folder: Path) -> None:
    """Let a service copy, but end it if it brings too much. Raises: Conflict, NoRoom, and what `work` raises."""
    room = DiskRoom(folder)
    copying = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([copying], timeout=_LOOK_EVERY_S))[0]:
            room.need(0)
            await _check_small(folder)
        await copying
        await _check_small(folder)
    finally:
        copying.cancel()


async def _check_small(folder: Path) -> None:
    """Refuse a folder that is too large. Raises: Conflict."""
    if not await asyncio.to_thread(_is_small, folder):
        raise Conflict(
            f"its platform cannot list files, and the folder has more than {format_size(PAGE_FILE_BYTES)}, "
            f"the most that is copied to be viewed; copy all of it with `nnictl trial download`"
        )


def _move(source: Path, target: Path) -> None:
    """Move what was copied into the folder of the attempt. Output that comes by itself is laid over the beginning."""
    with contextlib.suppress(FileNotFoundError), EnclosedFolder(str(source)) as copy:
        with EnclosedFolder(str(target), make=True) as folder:
            for entry in copy.walk(MOST_ENTRIES + 1):
                if entry.kind == FOLDER:
                    folder.make_folder(entry.path)
                elif entry.path in GROWING:
                    _merge_into(source, target, entry.path)
                elif entry.kind == FILE:
                    if (target / entry.path).is_dir():
                        folder.remove(entry.path)
                    (source / entry.path).replace(target / entry.path)


def _remove_pieces(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError), EnclosedFolder(str(folder)) as target:
        target.remove_drafts(10 * LISTED_MAX)
    with contextlib.suppress(FileNotFoundError), EnclosedFolder(str(folder.parent)) as trial:
        for one in trial.walk(100, lambda parts: len(parts) > 1):
            if one.path.startswith((".copy-", ".azure-")):
                trial.remove(one.path)
