"""The list of the files of a code directory, and the package that is made of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nnilite._keeper.plain_file import NotRegularFile, open_code_file, open_regular
from nnilite.codedir._nniignore import FILE_NAME, IgnoreRules, split_lines
from nnilite.codedir._oversize import Size, advice, escape_path, megabytes
from nnilite.disk_room import DiskRoom, NoRoom
from nnilite.errors import CodeDirError

log = logging.getLogger(__name__)

DEFAULT_IGNORES = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[co]",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".venv/",
    ".DS_Store",
    ".nnilite/",  # in the folder of all experiments: where they are, and the token of the page of all
)
"""Left out unless a `.nniignore` takes it back, for example by a line `!.git/`."""

_EXPERIMENT_FILE = "nnilite.sqlite"  # marks the folder of an experiment
_MOST_OVER = 200_000  # files above the cap; enough to show what makes a folder too large
_RACY_S = 2.0  # files younger than this when they were read may change again without a change of their times
_GZIP_LEVEL = 4  # a fifth faster than 6 for 1 % more bytes
_CHUNK = 1 << 20
_MOST_RULES_BYTES = 1 << 20  # limit for one ignore file
_MOST_RULES = 10_000  # total for all ignore files
_MOST_TRIED = 1000  # each entry is compared with them
_GONE = (FileNotFoundError, NotADirectoryError)
"""A file or folder was removed or replaced since its folder was read."""
_NO_FILE = "is left out: it is neither a file nor a folder"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PackageLimits:
    """How much may be sent. A file, a link and an empty folder count as one file; a MB is 1024 * 1024."""

    max_files: int = 2000
    max_bytes: int = 300 * 1024**2


@dataclass(frozen=True)
class CodeFile:
    """One entry of the list: a file, a link that stays a link, or an empty folder."""

    path: str  # relative to the root, with "/"; undecodable bytes as `os.fsdecode` gives them
    size: int  # bytes; 0 for links and folders
    mode: int  # as st_mode, reduced to what is kept: kind, and 0o755 if the owner may execute it, else 0o644
    target: str | None = None  # target of a link, relative to its folder
    stamp: tuple[int, ...] = field(default=(), repr=False, compare=False)  # changes when the file does


@dataclass(frozen=True)
class FileList:
    """What will be sent, sorted by path."""

    root: Path
    files: tuple[CodeFile, ...]
    total_bytes: int
    notes: tuple[str, ...] = ()  # what was left out or changed though no rule says so; one sentence each

    def copy(self, target: Path) -> None:
        """Copy the files into a folder, which then has what workers would get. Raises: OSError, CodeDirError."""
        try:
            DiskRoom(target).need(self.total_bytes)
        except NoRoom as error:
            raise CodeDirError(f"cannot copy the code directory: {error}") from error
        for file in self.files:
            place = target / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.target is not None:
                place.symlink_to(file.target)
            elif stat.S_ISDIR(file.mode):
                place.mkdir(exist_ok=True)
            else:
                _copy_file(self.root / file.path, place, file.size)


@dataclass(frozen=True)
class CodePackage:
    """A packed code directory: `archive` is `<hash>.tar.gz`, with paths relative to the root."""

    root: Path
    hash: str  # SHA-256 in hex, of names, modes and bytes
    archive: Path
    files: tuple[CodeFile, ...]
    total_bytes: int  # size of the files, not of the archive
    notes: tuple[str, ...] = ()


class _Counter:
    """Counts the bytes that are read, for the caller's `progress`."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def add(self, n_bytes: int) -> None:
        self._done += n_bytes
        if self._progress is not None:
            self._progress(self._done, self._total)


class _ChangedError(Exception):
    """A file is not what it was when it was listed."""


def list_files(root: Path | str, limits: PackageLimits = PackageLimits()) -> FileList:
    """List what of the code directory would be sent.

    Raises: CodeDirError if there is no such folder, if something in it cannot be read, or if it is over the
    limits: then the message names what is largest in it, and the `.nniignore` lines that would help.

        >>> [file.path for file in list_files("examples/sklearn_digits").files]
        ['config.yaml', 'search_space.json', 'trial.py']
    """
    top = Path(root).absolute()
    if not top.is_dir():
        why = "is not a folder" if top.exists() else "does not exist"
        raise CodeDirError(f"the code directory {escape_path(str(top))} {why}")
    walk = _Walk(top)
    walk.go(limits.max_files + _MOST_OVER)
    if walk.unreadable:
        raise CodeDirError(_unreadable(walk.unreadable))
    files = tuple(sorted(walk.files, key=lambda file: os.fsencode(file.path)))
    size = Size(len(files), sum(file.size for file in files))
    cap = Size(limits.max_files, limits.max_bytes)
    if not size.is_within(cap):
        raise CodeDirError(advice([(file.path, file.size) for file in files], cap, str(top)))
    return FileList(top, files, size.n_bytes, tuple(walk.notes))


def pack(
    root: Path | str,
    cache_dir: Path | str,
    limits: PackageLimits = PackageLimits(),
    *,
    progress: Progress | None = None,
) -> CodePackage:
    """Pack the code directory to `<cache_dir>/<hash>.tar.gz`, unless that is there. It blocks: use a thread.

    The archive is the same, byte by byte, for the same content. A file that changes while it is read makes
    one new try. `progress`, if given, is called with the bytes that were read, and those that are to be read in all;
    each file is read twice. Raises: CodeDirError as `list_files` does, if files keep changing, or if the archive cannot
    be written.
    """
    cache = Path(cache_dir).absolute()
    changed = ""
    for _ in range(2):
        listing = list_files(root, limits)
        try:
            digest = _packed(listing, cache, _Counter(2 * listing.total_bytes, progress))
        except _ChangedError as error:
            changed = str(error)
            log.info("%s changed while it was packed", changed)
        else:
            archive = cache / f"{digest}.tar.gz"
            return CodePackage(listing.root, digest, archive, listing.files, listing.total_bytes, listing.notes)
    raise CodeDirError(
        f"{escape_path(changed)} keeps changing while {escape_path(str(root))} is packed. Stop what writes to it, "
        f"or leave it out by a line in {FILE_NAME}."
    )


class _Walk:
    """One pass over the tree. Links come last, since only then is it known what is sent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: list[CodeFile] = []
        self.notes: list[str] = []
        self.unreadable: list[str] = []
        self._links: list[str] = []
        self._folders = {""}
        self._lines = self._tried = 0  # total for all ignore files

    def go(self, most: int) -> None:
        """Fill `files`, `notes` and `unreadable`; stop at `most` files, to be quick on a whole disk."""
        folders = [("", IgnoreRules.parse(DEFAULT_IGNORES))]
        while folders and len(self.files) < most:
            folders += self._folder(*folders.pop())
        sent = {file.path for file in self.files} | self._folders
        for link in self._links:
            self._link(link, sent)

    def _folder(self, folder: str, outer: IgnoreRules) -> list[tuple[str, IgnoreRules]]:
        """Take the files of one folder; return the folders in it."""
        try:
            with os.scandir(self.root / folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except _GONE:
            return []
        except OSError:  # no permission, a path that is too long, a disk in trouble
            self.unreadable.append(f"{folder}/")
            return []
        if folder and any(entry.name == _EXPERIMENT_FILE for entry in entries):
            self._note(folder, "is left out: it is the folder of an experiment")
            return []
        return self._entries(folder, entries, self._rules(folder, outer))

    def _entries(
        self, folder: str, entries: Sequence[os.DirEntry[str]], rules: IgnoreRules
    ) -> list[tuple[str, IgnoreRules]]:
        self._folders.add(folder)
        inner = []
        before = len(self.files) + len(self._links)
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules.leave_out(path, is_folder):
                continue
            if is_folder:
                inner.append((path, rules))
            else:
                self._entry(path, entry)
        if folder and not inner and before == len(self.files) + len(self._links):
            self.files.append(CodeFile(folder, 0, stat.S_IFDIR | 0o755))
        return inner

    def _rules(self, folder: str, outer: IgnoreRules) -> IgnoreRules:
        place = self.root / folder / FILE_NAME
        try:
            with open_code_file(place) as file:
                text = file.read(_MOST_RULES_BYTES + 1)
        except OSError:  # the walk comes to this file and reports it
            return outer
        lines = split_lines(text)
        self._lines += len(lines)
        if len(text) > _MOST_RULES_BYTES or self._lines > _MOST_RULES:
            others = "" if self._lines == len(lines) else ", with those in other folders,"
            raise CodeDirError(
                f"{escape_path(str(place))}{others} has more than {_MOST_RULES:,} lines or "
                f"{megabytes(_MOST_RULES_BYTES)}. Leave out whole folders, or use patterns, instead of single files."
            )
        rules = IgnoreRules.parse(lines, folder, outer)
        self._tried += rules.tried
        if self._tried > _MOST_TRIED:
            raise CodeDirError(
                f"{escape_path(str(place))} and those in other folders have more than {_MOST_TRIED:,} patterns with "
                "wildcards that are tried for each file. Use names, paths, and patterns such as *.txt."
            )
        return rules

    def _entry(self, path: str, entry: os.DirEntry[str]) -> None:
        if entry.is_symlink():
            self._links.append(path)
        elif entry.is_file(follow_symlinks=False):
            self._file(path)
        else:
            self._note(path, _NO_FILE)

    def _file(self, path: str) -> None:
        place = self.root / path
        try:
            facts = place.stat()
        except _GONE:
            return
        except OSError:
            self.unreadable.append(path)
            return
        if not stat.S_ISREG(facts.st_mode):
            self._note(path, _NO_FILE)
            return
        if not os.access(place, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            self.unreadable.append(path)
            return
        mode = stat.S_IFREG | (0o755 if facts.st_mode & stat.S_IXUSR else 0o644)
        self.files.append(CodeFile(path, facts.st_size, mode, None, _stamp(facts)))

    def _link(self, path: str, sent: set[str]) -> None:
        real = os.path.realpath(self.root / path)
        inside = os.path.relpath(real, os.path.realpath(self.root))
        if not os.path.exists(real):  # noqa: PTH110 - Path.exists raises for a loop of links
            self._note(path, f"is left out: it is a link to {escape_path(real)}, which does not exist")
        elif inside != ".." and not inside.startswith("../"):
            self._add_inner_link(path, "" if inside == "." else inside, sent)
        elif os.path.isfile(real):  # noqa: PTH113
            self._note(path, f"is a link to {escape_path(real)}, outside the code directory: sent as a file")
            self._file(path)
        else:
            self._note(path, f"is left out: it is a link to {escape_path(real)}, outside the code directory")

    def _add_inner_link(self, path: str, target: str, sent: set[str]) -> None:
        if target in sent:
            text = os.path.relpath(target or ".", os.path.dirname(path) or ".")  # noqa: PTH120
            self.files.append(CodeFile(path, 0, stat.S_IFLNK | 0o777, text))
        else:
            self._note(path, f"is left out: it is a link to {escape_path(target)}, which is left out")

    def _note(self, path: str, what: str) -> None:
        self.notes.append(f"{escape_path(path)} {what}")


def _copy_file(source: Path, target: Path, most: int) -> None:
    """Copy the first `most` bytes: another program may write to the file without end. Raises: OSError."""
    with open_code_file(source) as stream, target.open("wb") as copy:
        while piece := stream.read(min(_CHUNK, most)):
            copy.write(piece)
            most -= len(piece)
    shutil.copystat(source, target)


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    return (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_mode)


def _unreadable(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return (
        f"cannot read {', '.join(map(escape_path, paths[:5]))}{more} in the code directory. "
        f"Make it readable, or leave it out by a line in {FILE_NAME}."
    )


def _packed(listing: FileList, cache: Path, counter: _Counter) -> str:
    """Return the hash of the listed files, once their archive is in the cache."""
    index = _Index(listing, cache)
    digest = index.read_hash()
    if digest is None:
        began = time.time()
        digest = _digest(listing, counter)
        if not (cache / f"{digest}.tar.gz").exists():
            _write(listing, cache, digest, counter)
        index.store(digest, began)
    return digest


class _SourceFile:
    """A listed file being read. Reading less than was listed raises _ChangedError."""

    def __init__(self, stream: IO[bytes], file: CodeFile, digest: hashlib._Hash, counter: _Counter) -> None:
        self._stream = stream
        self._counter = counter
        self._file = file
        self._left = file.size
        self._digest = digest

    def read(self, n_bytes: int = _CHUNK) -> bytes:
        wanted = min(n_bytes, self._left)
        try:
            data = self._stream.read(wanted)
        except OSError as error:
            raise CodeDirError(f"cannot read {escape_path(self._file.path)}: {error.strerror}") from error
        if len(data) < wanted:
            raise _ChangedError(self._file.path)
        self._left -= len(data)
        self._digest.update(data)
        self._counter.add(len(data))
        return data


@contextmanager
def _reading(listing: FileList, file: CodeFile, digest: hashlib._Hash, counter: _Counter) -> Iterator[_SourceFile]:
    """Open a listed file; _ChangedError if it is another one, or becomes another one meanwhile."""
    try:
        stream = open_code_file(listing.root / file.path)
    except (*_GONE, NotRegularFile):
        raise _ChangedError(file.path) from None
    except OSError as error:
        raise CodeDirError(_unreadable([file.path])) from error
    with stream:
        if _stamp(os.fstat(stream.fileno())) != file.stamp:
            raise _ChangedError(file.path)
        yield _SourceFile(stream, file, digest, counter)
        if _stamp(os.fstat(stream.fileno())) != file.stamp:
            raise _ChangedError(file.path)


def _make_header(file: CodeFile) -> bytes:
    """Return the identity of this entry without its bytes: its parts cannot run into each other."""
    parts = (os.fsencode(file.path), b"%o" % file.mode, b"%d" % file.size, os.fsencode(file.target or ""))
    return b"\0".join(parts) + b"\0"


def _digest(listing: FileList, counter: _Counter) -> str:
    digest = hashlib.sha256(b"nnilite code 1\0")
    for file in listing.files:
        digest.update(_make_header(file))
        if stat.S_ISREG(file.mode):
            with _reading(listing, file, digest, counter) as source:
                while source.read():
                    pass
    return digest.hexdigest()


def _write(listing: FileList, cache: Path, expected: str, counter: _Counter) -> None:
    """Write the archive under another name first, so that a half-written one is never mistaken for it."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        DiskRoom(cache).need(0)
        with tempfile.NamedTemporaryFile(dir=cache, prefix=".packing-", delete=False) as target:
            try:
                if _fill(listing, target, counter) != expected:
                    raise _ChangedError("a file")
                Path(target.name).replace(cache / f"{expected}.tar.gz")
            except BaseException:
                Path(target.name).unlink(missing_ok=True)
                raise
    except NoRoom as error:
        raise CodeDirError(f"cannot write the packed code directory: {error}") from error
    except OSError as error:
        raise CodeDirError(f"cannot write the packed code directory to {cache}: {error.strerror}") from error


def _fill(listing: FileList, target: IO[bytes], counter: _Counter) -> str:
    digest = hashlib.sha256(b"nnilite code 1\0")
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as archive:
            for file in listing.files:
                digest.update(_make_header(file))
                _add(archive, listing, file, digest, counter)
    target.flush()
    return digest.hexdigest()


def _add(archive: tarfile.TarFile, listing: FileList, file: CodeFile, digest: hashlib._Hash, counter: _Counter) -> None:
    entry = tarfile.TarInfo(file.path)
    entry.size = file.size
    entry.mode = stat.S_IMODE(file.mode)
    if stat.S_ISREG(file.mode):
        with _reading(listing, file, digest, counter) as source:
            archive.addfile(entry, source)
    else:
        entry.type = tarfile.SYMTYPE if stat.S_ISLNK(file.mode) else tarfile.DIRTYPE
        entry.linkname = file.target or ""
        archive.addfile(entry)


class _Index:
    """Remembers which hash a listing had, by the times of its files: one small JSON file for each root."""

    def __init__(self, listing: FileList, cache: Path) -> None:
        name = hashlib.sha256(os.fsencode(listing.root)).hexdigest()[:16]
        self._place = cache / f"{name}.json"
        self._cache = cache
        self._files = [[file.path, file.mode, file.target, *file.stamp] for file in listing.files]
        self._youngest_s = max((max(f.stamp[1:3]) for f in listing.files if f.stamp), default=0) / 1e9

    def read_hash(self) -> str | None:
        """Return the hash, if an archive was made of exactly these files and none was being written at that time."""
        try:
            with open_regular(str(self._place)) as file:
                record = json.load(file)
            digest = str(record["hash"])
            same = record["files"] == self._files and self._youngest_s + _RACY_S < record["began"]
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the index %s cannot be read now and will be made again: %s", self._place, error.strerror)
            return None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("the index %s is broken and will be made again: %s", self._place, error)
            return None
        return digest if same and (self._cache / f"{digest}.tar.gz").exists() else None

    def store(self, digest: str, began: float) -> None:
        text = json.dumps({"hash": digest, "began": began, "files": self._files})
        draft = self._place.with_suffix(f".{os.getpid()}.new")
        try:
            draft.write_text(text, encoding="ascii")
            draft.replace(self._place)
        except OSError as error:  # costs time at the next start, nothing else
            log.warning("cannot write the index %s: %s", self._place, error)
