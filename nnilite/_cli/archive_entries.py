"""The entries of a zip file from any source: names, types, sizes and number are checked, then unpacked."""

from __future__ import annotations

import io
import shutil
import stat
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from nnilite._cli.progress_line import Work
from nnilite._experiments import registry
from nnilite._experiments.new_folders import make_own_folder
from nnilite.disk_room import DiskRoom
from nnilite.errors import ConfigError, Conflict
from nnilite.foreign_files import EnclosedFolder
from nnilite.units import format_size

MOST_FILES = 200_000
MOST_BYTES = 50 << 30
MOST_RATIO = 100
"""Text with many repetitions shrinks to a fiftieth, and a file that was made to fill a disk to a thousandth."""

_ALWAYS_BYTES = 100 << 20  # any archive, however small, may unpack to this size
LARGEST_ABOUT = 64 << 10
_ENTRY_BYTES = 400  # the size of a file's entry in the archive's directory: 46 bytes and its name
_DEEPEST = 100
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class ArchiveLimits:
    """How much an archive may unpack to. `bytes` None means as much as is likely for an archive of its size."""

    files: int = MOST_FILES
    bytes: int | None = None


@dataclass(frozen=True)
class UnpackTargets:
    """The places of experiment and code, and the folders into which they are unpacked first."""

    directory: Path
    code: Path
    draft: Path
    code_draft: Path


class BoundedArchive(io.BufferedReader):
    """The file of an archive, with a limit.

    zipfile reads an archive's directory as a whole and makes an object of each entry, so an archive with ten million
    entries would fill the memory.
    """

    def __init__(self, path: Path, most_files: int) -> None:
        super().__init__(path.open("rb", buffering=0))
        self._path, self._most_files = path, most_files

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most_files * _ENTRY_BYTES + LARGEST_ABOUT:
            raise _make_too_many(self._path, self._most_files)
        return super().read(size)


def _make_too_many(path: Path, most_files: int) -> ConfigError:
    return ConfigError(
        f"{path} contains more than {most_files} files; if you trust it, raise the limit with --max-files NUMBER"
    )


def check_free(experiment: str, directory: Path, code: Path) -> None:
    """Check that the experiment is unknown and its places are empty. Raises: Conflict."""
    if registry.entry(experiment) is not None:
        raise Conflict(
            f"Experiment {experiment} is already on this machine; `nnictl experiment delete {experiment}` deletes it."
        )
    for path in (directory, code):
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise Conflict(f"{path} already exists; it is not overwritten.")


@contextmanager
def drafts(directory: Path, code: Path) -> Iterator[UnpackTargets]:
    """Yield folders to unpack into, on the same disks as the places. What remains in them is removed afterwards."""
    with ExitStack() as made:

        def beside(path: Path) -> Path:
            make_own_folder(path.parent, 0o755)
            folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            made.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder / "new"

        draft = beside(directory)
        draft.mkdir(mode=0o700)
        inside = code.is_relative_to(directory)
        yield UnpackTargets(directory, code, draft, draft / code.relative_to(directory) if inside else beside(code))


def check_amount(archive: zipfile.ZipFile, path: Path, limits: ArchiveLimits) -> None:
    """Check number and sizes of an archive's entries. Raises: ConfigError."""
    entries = archive.infolist()
    if len(entries) > limits.files:
        raise _make_too_many(path, limits.files)
    _check_size(path, sum(entry.file_size for entry in entries), limits)


def _check_size(path: Path, size: int, limits: ArchiveLimits) -> None:
    most = limits.bytes
    if most is None:
        most = min(MOST_BYTES, max(_ALWAYS_BYTES, MOST_RATIO * path.stat().st_size))
    if size > most:
        raise ConfigError(
            f"{path} would unpack to {format_size(size)}, more than the limit of {format_size(most)}; "
            f"if you trust it, raise the limit with --max-size SIZE"
        )


class EntryPaths:
    """The paths of an archive's entries: each may occur once, and none both as a file and as a folder."""

    def __init__(self, folds_case: bool) -> None:
        self._folds_case = folds_case
        self._files: set[tuple[str, ...]] = set()
        self._folders: set[tuple[str, ...]] = set()
        self._spelt: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, parts: tuple[str, ...], is_folder: bool) -> bool:
        """Add a path. Return False if it collides with another."""
        key = tuple(map(self._key, parts))
        above = {key[:count] for count in range(1, len(key))}
        clash = key in self._files or (key in self._folders and not is_folder) or bool(above & self._files)
        spelt = all(
            self._spelt.setdefault(key[:count], parts[:count]) == parts[:count] for count in range(1, len(key) + 1)
        )
        self._folders |= above | ({key} if is_folder else set())
        self._files |= set() if is_folder else {key}
        return spelt and not clash

    def _key(self, part: str) -> str:
        return unicodedata.normalize("NFC", part).casefold() if self._folds_case else part


def folds_case(folder: Path) -> bool:
    """Return whether this disk does not distinguish `A` from `a`, so that two files of an archive could become one."""
    probe = folder / "probe-a"
    probe.touch()
    try:
        return probe.with_name("probe-A").exists()
    finally:
        probe.unlink()


def check_parts(entry: zipfile.ZipInfo, taken: EntryPaths) -> tuple[str, ...]:
    """Return the parts of an entry's path. Raises: ConfigError if it leaves the archive, or collides with another."""
    parts = tuple(entry.filename.removesuffix("/").split("/"))
    odd = set(parts) & {"", ".", ".."} or entry.orig_filename != entry.filename or len(parts) > _DEEPEST
    if odd or not taken.add(parts, entry.is_dir()):
        raise foreign(entry)
    return parts


def foreign(entry: zipfile.ZipInfo) -> ConfigError:
    return ConfigError(
        f"The zip file contains a path that no experiment has, or the same path twice: {entry.orig_filename!r:.200}."
    )


def check_kind(entry: zipfile.ZipInfo) -> None:
    """Refuse an entry that is neither a file nor a folder, or is encrypted. Raises: ConfigError."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    fitting = (0, stat.S_IFDIR) if entry.is_dir() else (0, stat.S_IFREG)
    if kind not in fitting or entry.compress_type not in _PLAIN or entry.flag_bits & 1:
        raise ConfigError(f"The zip file contains a link, a device or an encrypted file: {entry.filename!r:.200}.")


def unpack_one(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, path: str, work: Work) -> None:
    """Unpack a checked entry to a path below the folder `target`, and count its bytes. Raises: NoRoom, OSError."""
    room = DiskRoom(target)
    with EnclosedFolder(str(target), make=True) as folder:
        if entry.is_dir():
            folder.make_folder(path)
            return
        # zipfile stops at the size that the entry names, so the checked sum of the sizes is not exceeded.
        mode = stat.S_IMODE(entry.external_attr >> 16)
        with archive.open(entry) as source, folder.draft(path, mode) as draft:

            def write(piece: bytes) -> None:
                room.count(len(piece))
                draft.write(piece)

            work.copy(cast(BinaryIO, source), write)
            draft.finish()
