"""The one way in for files that come from a worker, a trial, a shared storage or an archive.

They may have any name, kind and size. What is accepted here lies below the folder that the caller names, and nowhere
else: see `EnclosedFolder`. Links are left out, and so are devices, pipes and hard links. There are limits to the number
and depth of entries, and to the bytes; each write leaves room on the disk (`nnilite.disk_room`).

    take_tar(stream.read, target)                   a tar stream, as a worker sends the folder of an attempt
    copy_folder(source, target)                     a folder of a shared storage, while its trial keeps writing
    save_stream(stream.read, path)                  one file as it comes
    open_below(root, "0/trial.stdout")              a file of a trial, to read
    list_below(root)                                what there is
    open_log(path)                                  a log of one's own in a folder from elsewhere

All of it blocks: call it in a thread. A trial that still writes may see any of its files copied as they were for a
moment; a file that is being written is copied as far as it has come.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from nnilite._keeper.enclosed import (
    FILE,
    FOLDER,
    LINK,
    SPECIAL,
    EnclosedFolder,
    FoundEntry,
    UnsafeName,
    is_draft,
    parts_of,
    reader,
)
from nnilite._keeper.plain_file import NotRegularFile
from nnilite._keeper.tar_stream import DamagedTar, TarMember, TarStream
from nnilite._logging.log_file import open_log
from nnilite.disk_room import DiskRoom
from nnilite.errors import NotFound, ServiceError
from nnilite.units import format_size

__all__ = [
    "FILE",
    "FOLDER",
    "GROWING",
    "LINK",
    "LISTED_MAX",
    "MOST_ENTRIES",
    "BrokenStream",
    "EnclosedFolder",
    "ForeignRefusal",
    "NotRegularFile",
    "TakenFiles",
    "TrialFile",
    "UnsafeName",
    "copy_file",
    "copy_folder",
    "list_below",
    "listed",
    "listed_files",
    "open_below",
    "open_log",
    "parts_of",
    "put_file",
    "read_small",
    "save_below",
    "save_stream",
    "size_below",
    "take_tar",
]

MOST_ENTRIES = 200_000
"""How many files, folders and links are taken from one place."""

LISTED_MAX = 10_000
"""How many files are listed."""

_CHUNK_BYTES = 1 << 20
_MOST_TIME_S = 1e11
# Entries that are examined for one list: folders and what is left out count, too.
_LOOKED_AT_MAX = 10 * LISTED_MAX

_ENTRY_BYTES = 4096  # what a folder or an empty file occupies on most disks
GROWING = ("trial.stdout", "trial.stderr")
"""What the manager writes, too, as it comes: there may be more here than in a copy that was begun earlier."""


class ForeignRefusal(ServiceError):
    """The file is refused: its name leads outside of its folder, or it exceeds the limits."""


class BrokenStream(ServiceError):
    """A stream of files broke off, or is damaged."""


@dataclass(frozen=True)
class TrialFile:
    """One entry of a trial's folder, as a service lists it.

    `path` is relative to the folder of the attempt. `kind`: "file", "link" or "special", which is a pipe or a device.
    `target`: where a link leads, as text that is never followed. `modified`: seconds since the epoch.
    """

    path: str
    size: int = 0
    modified: float = 0.0
    kind: str = FILE
    target: str = ""


@dataclass
class TakenFiles:
    """What was accepted and left out.

    The number of entries and bytes, the entries left out as they are not files, and those that cannot be read.
    """

    entries: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    _folders: set[int] = field(default_factory=set)

    def count(self, name: str, kind: str, room: DiskRoom) -> None:
        """Count an entry and the folders that are new by it. Raises: ForeignRefusal beyond the limit, NoRoom.

        One name may create a hundred folders, and each of these occupies room on the disk, as an empty file does.
        """
        parts = parts_of(name)
        is_folder = kind == FOLDER
        named = {hash(tuple(parts[:depth])) for depth in range(1, len(parts) + is_folder)}
        new = len(named - self._folders) + (not is_folder)
        self._folders |= named
        self.entries += new
        if self.entries > MOST_ENTRIES:
            raise ForeignRefusal(f"sent more than {MOST_ENTRIES} files; {name!a:.200} and all that follows is refused")
        room.count(_ENTRY_BYTES * new)


def take_tar(source: Callable[[int], bytes], target: Path) -> TakenFiles:
    """Copy the files and folders of a tar stream into a folder, replacing what has the same names there.

    `source(n)` returns up to n bytes of the stream, and b"" at its end alone. A file is there whole or as it was
    before. Raises: BrokenStream, ForeignRefusal, NoRoom, OSError.
    """
    taken, room = TakenFiles(), DiskRoom(target)
    try:
        with EnclosedFolder(str(target), make=True) as folder:
            for member in TarStream(source):
                taken.count(member.name, member.kind, room)
                _write_member(member, folder, taken, _counter(taken, room))
    except DamagedTar as error:
        raise BrokenStream(f"the files are damaged on their way: {error}") from error
    except UnsafeName as error:
        raise ForeignRefusal(f"sent a file that cannot be accepted: {error}") from error
    return taken


def listed(entries: object) -> list[TrialFile]:
    """Check what a worker lists: [path, size, time, kind, target] of each entry. Raises: ForeignRefusal."""
    if not isinstance(entries, list):
        raise ForeignRefusal("its list of files is invalid")
    return [_checked(entry) for entry in entries[:LISTED_MAX]]


def _checked(entry: object) -> TrialFile:
    if isinstance(entry, list) and len(entry) == 5:
        path, size, modified, kind, target = entry
        texts = all(isinstance(one, str) for one in (path, kind, target))
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (size, modified))
        # NaN fails the comparisons.
        if texts and numbers and 0 <= size < 1 << 60 and abs(modified) < _MOST_TIME_S and kind in (FILE, LINK, SPECIAL):
            return TrialFile(path, int(size), float(modified), kind, target)
    raise ForeignRefusal(f"its list of files has {entry!r:.200}")


def read_small(source: Callable[[int], bytes], most_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of those files of a tar stream that have at most that many bytes. Raises: BrokenStream."""
    try:
        for member in TarStream(source):
            if member.kind == FILE and member.size <= most_bytes:
                yield member.name, b"".join(iter(member.read, b""))
    except DamagedTar as error:
        raise BrokenStream(str(error)) from error


def _counter(taken: TakenFiles, room: DiskRoom, most_bytes: int | None = None) -> Callable[[int], None]:
    def count(size: int) -> None:
        taken.size_bytes += size
        if most_bytes is not None and taken.size_bytes > most_bytes:
            raise ForeignRefusal(f"has more than {format_size(most_bytes)} of files")
        room.count(size)

    return count


def _write_member(member: TarMember, folder: EnclosedFolder, taken: TakenFiles, count: Callable[[int], None]) -> None:
    parts = parts_of(member.name)
    if _shadows_output(parts, member.kind):
        taken.left_out.append(member.name)
    elif member.kind == FOLDER:
        folder.make_folder(member.name)
    elif member.kind != FILE:
        taken.left_out.append(member.name)
    elif not parts:
        raise UnsafeName(f"{member.name!a:.200} names no file")
    elif "/".join(parts) in GROWING:
        _overwrite(folder, member, count)
    else:

        def piece() -> bytes:
            data = member.read()
            count(len(data))
            return data

        folder.write(member.name, piece, member.mode, member.mtime_ns)


def _shadows_output(parts: Sequence[str], kind: str) -> bool:
    """Return whether this would replace a file that the manager writes itself: a folder, or what is in it."""
    return bool(parts) and parts[0] in GROWING and (len(parts) > 1 or kind != FILE)


def _overwrite(folder: EnclosedFolder, member: TarMember, count: Callable[[int], None]) -> None:
    """Write over the beginning of a file that may be longer here."""
    with folder.update(member.name) as file:
        while piece := member.read():
            count(len(piece))
            file.write(piece)


def copy_folder(source: Path, target: Path, *left_out: str) -> TakenFiles:
    """Copy the files and folders of a folder into another one, replacing what has the same names there.

    Skip entries that match one of the patterns `left_out`, are neither file nor folder, vanish meanwhile, or may not be
    read by this user. Raises: NotFound if the folder is gone, ForeignRefusal, NoRoom, OSError.
    """
    taken, room = TakenFiles(), DiskRoom(target)

    def is_left_out(parts: Sequence[str]) -> bool:
        return is_draft(parts[-1]) or any(fnmatch.fnmatch(parts[-1], pattern) for pattern in left_out)

    with _opened(source) as here, EnclosedFolder(str(target), make=True) as there:
        for entry in here.walk(MOST_ENTRIES + 1, is_left_out, taken.unreadable.append):
            taken.count(entry.path, entry.kind, room)
            if _shadows_output(parts_of(entry.path), entry.kind):
                taken.left_out.append(entry.path)
            elif entry.kind == FOLDER:
                there.make_folder(entry.path)
            elif entry.kind == FILE:
                try:
                    _copy_one(here, there, entry, _counter(taken, room))
                except PermissionError:
                    taken.unreadable.append(entry.path)
            else:
                taken.left_out.append(entry.path)
    return taken


def copy_file(source: Path, path: str, target: Path, most_bytes: int | None = None) -> None:
    """Copy one file of a folder to the same name in the folder `target`.

    Raises: NotFound, ForeignRefusal, NoRoom, OSError.
    """
    with _opened(source) as here:
        try:
            facts = here.look(path)
            entry = FoundEntry(path, FILE, facts, "")
            with EnclosedFolder(str(target), make=True) as there:
                _copy_one(here, there, entry, _counted(target, most_bytes), must=True)
        except (FileNotFoundError, NotRegularFile, UnsafeName) as error:
            raise NotFound(f"there is no file {path!r} in the trial's folder") from error


def _copy_one(
    here: EnclosedFolder, there: EnclosedFolder, entry: FoundEntry, count: Callable[[int], None], must: bool = False
) -> None:
    try:
        file = here.open(entry.path)
    except (FileNotFoundError, NotRegularFile):
        if must:
            raise
        # It has gone, or something else is in its place now.
        return
    with file:
        there.write(entry.path, reader(file, count), entry.facts.st_mode, entry.facts.st_mtime_ns)


def put_file(root: Path, path: str, content: Path | bytes) -> None:
    """Write a file of our own into a folder where workers write, too, such as a mounted storage. All may read it.

    If workers have replaced folders or the file by links, these are not followed. Raises: OSError, UnsafeName.
    """
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(EnclosedFolder(str(root), make=True, folder_mode=0o755))
        source = io.BytesIO(content) if isinstance(content, bytes) else opened.enter_context(content.open("rb"))
        folder.write(path, reader(source), mode=0o644)


def size_below(root: Path, path: str) -> int | None:
    """Return the size of an ordinary file below a folder, None if there is none. Raises: OSError."""
    try:
        with EnclosedFolder(str(root)) as folder:
            facts = folder.look(path)
    except (FileNotFoundError, UnsafeName):
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def save_stream(
    source: Callable[[int], bytes],
    path: Path,
    most_bytes: int | None = None,
) -> int:
    """Write a stream to a file of the caller's own name, whole or not at all; return its size.

    Raises: ForeignRefusal if it has more than `most_bytes`, NoRoom, OSError; what `source` raises passes.
    """
    with EnclosedFolder(str(path.parent)) as folder:
        return _save(source, folder, path.name, _counted(path.parent, most_bytes))


def save_below(source: Callable[[int], bytes], root: Path, path: str, most_bytes: int) -> int:
    """Write a stream to a file below a folder, which is made if needed, whole or not at all; return its size.

    Raises: ForeignRefusal if it has more than `most_bytes`, or no name of a file; NoRoom, OSError, as `source` does.
    """
    try:
        with EnclosedFolder(str(root), make=True) as folder:
            return _save(source, folder, path, _counted(root, most_bytes))
    except UnsafeName as error:
        raise ForeignRefusal(str(error)) from error


def _save(source: Callable[[int], bytes], folder: EnclosedFolder, path: str, count: Callable[[int], None]) -> int:
    size = 0

    def piece() -> bytes:
        nonlocal size
        data = source(_CHUNK_BYTES)
        count(len(data))
        size += len(data)
        return data

    folder.write(path, piece)
    return size


def _counted(folder: Path, most_bytes: int | None) -> Callable[[int], None]:
    return _counter(TakenFiles(), DiskRoom(folder), most_bytes)


def open_below(root: Path, path: str) -> BinaryIO:
    """Open an ordinary file below a folder to read; no component of `path` may be a link. Raises: NotFound, OSError."""
    with _opened(root) as folder:
        try:
            return folder.open(path)  # type: ignore[return-value]
        except (FileNotFoundError, NotRegularFile, UnsafeName) as error:
            raise NotFound(f"there is no file {path!r} here") from error


def list_below(root: Path, left_out: Callable[[Sequence[str]], bool] = lambda parts: False) -> tuple[TrialFile, ...]:
    """Return what is below a folder but the folders themselves, at most `LISTED_MAX`, by path. Raises: NotFound."""
    with _opened(root) as folder:
        return listed_files(folder.walk(_LOOKED_AT_MAX, lambda parts: is_draft(parts[-1]) or left_out(parts)))


def listed_files(entries: Iterator[FoundEntry]) -> tuple[TrialFile, ...]:
    """Return the first `LISTED_MAX` of these entries that are not folders."""
    files: list[TrialFile] = []
    for entry in entries:
        if entry.kind != FOLDER:
            facts = entry.facts
            files.append(TrialFile(entry.path, facts.st_size, facts.st_mtime, entry.kind, entry.target))
        if len(files) >= LISTED_MAX:
            break
    return tuple(files)


@contextlib.contextmanager
def _opened(root: Path) -> Iterator[EnclosedFolder]:
    """Open the folder itself. Raises: NotFound if there is none, OSError."""
    try:
        folder = EnclosedFolder(os.fspath(root))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"the trial's folder {root} is gone") from error
    with folder:
        yield folder
