"""Writes and reads files below a folder without following a link on the way.

The names come from a worker, and so may what is in the folder already: a link that an earlier copy has left, or one
that is put there meanwhile. So no path is checked and then used. Each component is opened from the folder above it, by
`openat` with `O_NOFOLLOW`. Where a folder is wanted and something else is found, that is removed and a folder is made.

A file is written under another name and then renamed: a reader sees it whole, a failure leaves nothing of it, and a
link in its place is replaced and not followed.

It runs on workers, too: Python 3.8 and the standard library alone.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat

from .plain_file import NOT_REGULAR, NotRegularFile, require_regular
from .tree_removal import FOLDER_FLAGS, remove_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable, Iterator, List, Optional, Sequence, Tuple

MOST_DEPTH = 100
MOST_NAME_BYTES = 255
_MOST_PATH_BYTES = 4000
_CHUNK_BYTES = 1 << 20
_DRAFT, _DRAFT_END = ".nnilite-", ".part"
_DRAFT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a pipe does not block the caller.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UPDATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What the system says where a component is a link, a file or a pipe, and no folder.
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.ENXIO)

FILE, FOLDER, LINK, SPECIAL = "file", "folder", "link", "special"


class UnsafeName(ValueError):
    """A name that no file below a folder may have. The text is a clause that quotes it."""


class FoundEntry:
    """One entry of a walk. `path` is relative; `target` is where a link leads, as text."""

    __slots__ = ("facts", "kind", "path", "target")

    def __init__(self, path: str, kind: str, facts: os.stat_result, target: str) -> None:
        self.path = path
        self.kind = kind
        self.facts = facts
        self.target = target


def parts_of(name: str) -> List[str]:
    """Return the components of a relative name; [] stands for the folder itself. Raises: UnsafeName."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    try:
        sizes = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError:
        raise UnsafeName("{!a:.300} is not a file name".format(name)) from None
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UnsafeName("{!a:.300} would lie outside of its folder".format(name))
    if len(parts) > MOST_DEPTH or max(sizes, default=0) > MOST_NAME_BYTES or sum(sizes) > _MOST_PATH_BYTES:
        raise UnsafeName("{!a:.100}... is too long for the name of a file".format(name))
    return parts


def stays_inside(name: str, target: str) -> bool:
    """Return whether a link `name` to `target` stays in the folder, whatever other such links are there.

    The target may go up at its beginning only, and not above the folder. The link lies in a real folder, from which
    going up leads to real folders, and every further component goes down. So no chain of such links leads out.
    """
    try:
        depth = len(parts_of(name)) - 1
        parts = [part for part in target.split("/") if part not in ("", ".")]
        ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
        parts_of("/".join(parts[ups:]))
    except UnsafeName:
        return False
    return not target.startswith("/") and bool(target) and 0 <= ups <= depth


class FileDraft:
    """A file that is being written, under another name. A context manager: without `finish` nothing is left of it."""

    def __init__(self, folder: int, mode: Optional[int], put: Callable[[str], None]) -> None:
        self._folder = folder
        self._mode = mode
        self._put = put
        self._name = "{}{}{}".format(_DRAFT, os.urandom(8).hex(), _DRAFT_END)
        self._file = os.open(self._name, _DRAFT_FLAGS, 0o666 if mode is None else 0o600, dir_fd=folder)
        self._is_done = False

    def __enter__(self) -> FileDraft:
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self._file)
        if not self._is_done:
            _unlink(self._folder, self._name)

    def write(self, data: bytes) -> None:
        """Append bytes. Raises: OSError."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]

    def finish(self, mtime_ns: Optional[int] = None, sync: bool = False) -> None:
        """Put the file in its place. `sync`: its bytes are on the disk before. Raises: OSError."""
        if self._mode is not None and self._mode & 0o155:
            os.fchmod(self._file, 0o600 | (self._mode & 0o155))
        if mtime_ns is not None:
            os.utime(self._file, ns=(mtime_ns, mtime_ns))
        if sync:
            os.fsync(self._file)
        self._put(self._name)
        self._is_done = True


class EnclosedFolder:
    """A folder below which files are written and read. The path of the folder itself is the caller's, and trusted.

    With `linked` false, neither that folder nor the one above it may be a link: others may write in there, too.
    A context manager. Not for several threads at once. Paths are relative, with slashes.
    """

    def __init__(self, root: str, make: bool = False, folder_mode: int = 0o700, linked: bool = True) -> None:
        """Open the folder, and make it if it is missing and `make` is set. `folder_mode`: of folders that are made.

        Raises: OSError.
        """
        self._folder_mode = folder_mode
        if make:
            os.makedirs(root, mode=0o700, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if linked else _open_without_links(root)
        # The folder of the last file, since most files are in the same folder as the one before.
        self._last: Optional[Tuple[Tuple[str, ...], int]] = None

    def __enter__(self) -> EnclosedFolder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder."""
        self._forget_last()
        os.close(self._root)

    @property
    def descriptor(self) -> int:
        """The open folder."""
        return self._root

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it. Raises: UnsafeName, OSError."""
        self._folder(parts_of(path))

    def write(
        self,
        path: str,
        pieces: Callable[[], bytes],
        mode: Optional[int] = 0o600,
        mtime_ns: Optional[int] = None,
    ) -> None:
        """Write a file whole or not at all, in the place of whatever is there.

        `pieces` returns the next bytes, b"" at the end; what it raises passes. Of `mode` only the rights to read and
        to execute count; None leaves them to the process. Raises: UnsafeName, OSError.
        """
        with self.draft(path, mode) as draft:
            while True:
                piece = pieces()
                if not piece:
                    break
                draft.write(piece)
            draft.finish(mtime_ns)

    def draft(self, path: str, mode: Optional[int] = 0o600) -> FileDraft:
        """Begin a file, which is there once `finish` was called. No other file may be begun meanwhile.

        Raises: UnsafeName, OSError.
        """
        folder, name = self._place(path)
        return FileDraft(folder, mode, lambda draft: self._put(folder, draft, name))

    def update(self, path: str) -> IO[bytes]:
        """Open a file for reading and writing as it is, or a new one in the place of anything else.

        For a file that grows, to which others may already have added. Raises: UnsafeName, OSError.
        """
        folder, name = self._place(path)
        for _ in range(3):
            try:
                return require_regular(os.open(name, _UPDATE_FLAGS, 0o600, dir_fd=folder), path, "r+b")
            except (NotRegularFile, IsADirectoryError):
                self._clear(folder, name)
            except OSError as error:
                if error.errno not in _NO_FOLDER:
                    raise
                self._clear(folder, name)
        raise NotRegularFile(errno.EINVAL, "something else is repeatedly put in its place", path)

    def open(self, path: str) -> IO[bytes]:
        """Open an ordinary file to read. Raises: UnsafeName, FileNotFoundError, NotRegularFile, OSError."""
        parts = parts_of(path)
        folder = self._walk_to(parts[:-1], make=False)
        try:
            return require_regular(os.open(parts[-1] if parts else ".", _READ_FLAGS, dir_fd=folder), path)
        except OSError as error:
            if error.errno in _NO_FOLDER:
                raise NotRegularFile(errno.EINVAL, NOT_REGULAR, path) from error
            raise
        finally:
            self._close(folder)

    def look(self, path: str) -> os.stat_result:
        """Return the facts of an entry itself, not of what a link leads to. Raises: UnsafeName, OSError."""
        parts = parts_of(path)
        folder = self._walk_to(parts[:-1], make=False)
        try:
            return os.stat(parts[-1] if parts else ".", dir_fd=folder, follow_symlinks=False)
        finally:
            self._close(folder)

    def stamp(self, path: str, mtime_ns: int) -> None:
        """Set the time of the last change of a file. Raises: UnsafeName, OSError."""
        with self.open(path) as file:
            os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))

    def link(self, path: str, target: str) -> bool:
        """Make a link if it stays inside, see `stays_inside`; return whether it does. Raises: UnsafeName, OSError."""
        if not stays_inside(path, target):
            return False
        folder, name = self._place(path)
        self._clear(folder, name)
        os.symlink(target, name, dir_fd=folder)
        return True

    def unlink(self, path: str, folders: int = 0) -> None:
        """Remove a file or a link, if it is there, and as many folders above it that are empty then.

        Raises: UnsafeName, OSError.
        """
        parts = parts_of(path)
        self._forget_last()
        for depth in range(len(parts), len(parts) - 1 - folders, -1):
            try:
                folder = self._walk_to(parts[: depth - 1], make=False)
            except FileNotFoundError:
                return
            try:
                if depth == len(parts):
                    _unlink(folder, parts[-1])
                else:
                    os.rmdir(parts[depth - 1], dir_fd=folder)
            except OSError as error:
                if depth == len(parts) or error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise
                return
            finally:
                self._close(folder)

    def remove(self, path: str) -> None:
        """Remove a file, a link or a whole folder, if it is there. Raises: UnsafeName, OSError."""
        parts = parts_of(path)
        if not parts:
            raise UnsafeName("the folder itself cannot be removed")
        self._forget_last()
        try:
            folder = self._walk_to(parts[:-1], make=False)
        except FileNotFoundError:
            return
        try:
            remove_below(folder, parts[-1])
        finally:
            self._close(folder)

    def walk(
        self,
        most: int,
        left_out: Callable[[Sequence[str]], bool] = lambda parts: False,
        failed: Callable[[str], object] = lambda path: None,
    ) -> Iterator[FoundEntry]:
        """Return at most `most` entries below the folder, each folder before what is in it.

        `left_out` gets the components of a path and returns whether to pass over it, with all below. A folder that
        cannot be read, or lies too deep, is passed over, and `failed` gets its path.
        """
        return itertools.islice(_walk(os.dup(self._root), [], _WalkRules(left_out, failed, most)), most)

    def remove_drafts(self, most: int) -> None:
        """Remove what a killed process has left of files that it was writing; looks at `most` entries."""
        drafts = [entry.path for entry in self.walk(most) if is_draft(entry.path.rpartition("/")[2])]
        for path in drafts:
            self.remove(path)

    def _place(self, path: str) -> Tuple[int, str]:
        """Return the open folder of a file, made if needed, and the file's own name."""
        parts = parts_of(path)
        if not parts:
            raise UnsafeName("{!a:.300} names no file".format(path))
        return self._folder(parts[:-1]), parts[-1]

    def _folder(self, parts: Sequence[str]) -> int:
        if not parts:
            return self._root
        key = tuple(parts)
        if self._last is None or self._last[0] != key:
            found = self._walk_to(parts, make=True)
            self._forget_last()
            self._last = (key, found)
        return self._last[1]

    def _forget_last(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def _walk_to(self, parts: Sequence[str], make: bool) -> int:
        """Return an open folder, to be closed unless it is the root."""
        folder = self._root
        try:
            for part in parts:
                inner = _made(folder, part, self._folder_mode) if make else os.open(part, FOLDER_FLAGS, dir_fd=folder)
                self._close(folder)
                folder = inner
        except OSError as error:
            self._close(folder)
            if not make and error.errno in _NO_FOLDER:
                raise FileNotFoundError(errno.ENOENT, "there is no such folder", "/".join(parts)) from error
            raise
        return folder

    def _close(self, folder: int) -> None:
        """Close a folder of `_walk_to`."""
        if folder != self._root:
            os.close(folder)

    def _put(self, folder: int, draft: str, name: str) -> None:
        try:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            self._clear(folder, name)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _clear(self, folder: int, name: str) -> None:
        """Remove the entry. The folder that is kept open may be below it; it is closed unless it is `folder`."""
        if self._last is not None and self._last[1] != folder:
            self._forget_last()
        remove_below(folder, name)


def _open_without_links(root: str) -> int:
    above, name = os.path.split(root)
    # A user who may only traverse the folder above can open it with O_PATH alone.
    passing = getattr(os, "O_PATH", os.O_RDONLY)
    folder = os.open(above, passing | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)


def is_draft(name: str) -> bool:
    """Return whether a file's name is that of a file that is being written."""
    return name.startswith(_DRAFT) and name.endswith(_DRAFT_END)


def _made(folder: int, name: str, mode: int) -> int:
    """Return an open folder in another one. Anything else in its place is removed."""
    for _ in range(3):
        try:
            return os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            _unlink(folder, name)
        try:
            os.mkdir(name, mode, dir_fd=folder)
        except FileExistsError:
            continue
    raise NotADirectoryError(errno.ENOTDIR, "something else is repeatedly put in its place", name)


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


class _WalkRules:
    def __init__(self, left_out: Callable[[Sequence[str]], bool], failed: Callable[[str], object], most: int) -> None:
        self.left_out = left_out
        self.failed = failed
        self.most = most


def _walk(folder: int, above: List[str], rules: _WalkRules) -> Iterator[FoundEntry]:
    """Yield what is below an open folder, which is closed afterwards."""
    try:
        with os.scandir(folder) as found:
            # A trial may have made millions of files, whose names are not all to be held.
            names = sorted(entry.name for entry in itertools.islice(found, rules.most))
        for name in names:
            parts = [*above, name]
            if rules.left_out(parts):
                continue
            try:
                facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(facts.st_mode) else ""
            except OSError:
                # It has gone since it was listed.
                continue
            yield FoundEntry("/".join(parts), _kind(facts.st_mode), facts, target)
            if stat.S_ISDIR(facts.st_mode):
                try:
                    if len(parts) >= MOST_DEPTH:
                        raise OSError(errno.ENAMETOOLONG, "it lies too deep", name)
                    inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                except FileNotFoundError:
                    continue
                except OSError:
                    rules.failed("/".join(parts))
                    continue
                yield from _walk(inner, parts, rules)
    finally:
        os.close(folder)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return FILE
    if stat.S_ISDIR(mode):
        return FOLDER
    return LINK if stat.S_ISLNK(mode) else SPECIAL


def reader(file: IO[bytes], count: Callable[[int], object] = lambda size: None) -> Callable[[], bytes]:
    """Return a function that reads a file piece by piece, for `write`. `count` gets the size of each piece before."""

    def piece() -> bytes:
        data = file.read(_CHUNK_BYTES)
        count(len(data))
        return data

    return piece
