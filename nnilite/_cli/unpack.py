"""Loads a saved experiment from a zip file that anybody may have made.

Every name, type and size in the archive is checked before anything is written. The unpacked content (the configuration
and each row of the database) is checked before the experiment is moved to its place, in one step, so the experiment is
there whole or not at all. It is another experiment than the saved one (`_store.copies`); only its results and its id
are the same.
"""

from __future__ import annotations

import io
import json
import shutil
import stat
import struct
import tempfile
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from nnilite import _registry
from nnilite._cli.archive import ABOUT, CONFIG, DATABASE, FORMAT, SAVED_CODE, is_kept, is_left_behind
from nnilite._cli.long_work import Work
from nnilite._documents import Document, read_document, write_json
from nnilite._registry import RegistryEntry
from nnilite.disk_room import DiskRoom
from nnilite.errors import ConfigError, Conflict, DamagedFile, Place, StoreError
from nnilite.foreign_files import EnclosedFolder, UnsafeName
from nnilite.units import format_size

MOST_FILES = 200_000
MOST_BYTES = 50 << 30
MOST_RATIO = 100
"""Text with many repetitions shrinks to a fiftieth, and a file that was made to fill a disk to a thousandth."""

_ALWAYS_BYTES = 100 << 20  # any archive, however small, may unpack to so much
_LARGEST_ABOUT = 64 << 10
_ENTRY_BYTES = 400  # the size of a file's entry in the archive's directory: 46 bytes and its name
_DEEPEST = 100
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class ArchiveLimits:
    """How much an archive may unpack to. `bytes` None means as much as is likely for an archive of its size."""

    files: int = MOST_FILES
    bytes: int | None = None


@dataclass(frozen=True)
class Places:
    """The places of experiment and code, and the folders into which they are unpacked first."""

    directory: Path
    code: Path
    draft: Path
    code_draft: Path


def load(path: Path, folder: Path | None, code: Path | None, limits: ArchiveLimits, work: Work) -> RegistryEntry:
    """Unpack a saved experiment into the folder of experiments, and make it known on this machine.

    The bytes that are unpacked are counted in `work`.

    Raises: ConfigError if the file is not a saved experiment, Conflict if the experiment or its code exists already.
    """
    if path.is_dir():  # NNI's `save --path` makes a folder, and the zip file in it
        inside = sorted(path.glob("*.zip"))
        raise ConfigError(f"is a folder; give the zip file{f' {inside[0]}' if inside else ''}", Place(str(path)))
    with ExitStack() as opened:
        with told(path):
            archive = opened.enter_context(zipfile.ZipFile(opened.enter_context(_Bounded(path, limits.files))))
            from nnilite._cli import unpack_nni

            if unpack_nni.is_nni(archive):
                return unpack_nni.load(archive, path, folder, code, limits, work)
            about = _about(archive, path)
        experiment = about.text("id") or ""
        directory = ((folder or _registry.root()) / experiment).absolute()
        code = (code or directory / SAVED_CODE).absolute()
        check_free(experiment, directory, code)
        places = opened.enter_context(drafts(directory, code))
        with told(path):
            _unpack(archive, path, places, limits, work)
        work.goes_on("Checking")
        _check_content(path, experiment, places)
        _put(about, places)
    return _registry.find(experiment)


class _Bounded(io.BufferedReader):
    """The file of an archive, with a limit. zipfile reads an archive's directory as a whole and makes an object of each
    entry, which ten million entries must not reach."""

    def __init__(self, path: Path, most_files: int) -> None:
        super().__init__(path.open("rb", buffering=0))
        self._path, self._most_files = path, most_files

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most_files * _ENTRY_BYTES + _LARGEST_ABOUT:
            raise _too_many(self._path, self._most_files)
        return super().read(size)


def _too_many(path: Path, most_files: int) -> ConfigError:
    return ConfigError(f"{path} holds more than {most_files} files; if they are yours, --max-files NUMBER lets them in")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn zipfile's errors on bytes that are not a whole archive into ConfigError."""
    try:
        yield
    except UnsafeName as error:
        raise ConfigError(f"{path} cannot be unpacked: {error}") from error
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"{path} is not a whole zip file: {error}") from error
    except RuntimeError as error:  # zipfile raises this for an archive with a password
        raise ConfigError(f"{path} cannot be unpacked: {error}") from error


def _about(archive: zipfile.ZipFile, path: Path) -> Document:
    foreign = ConfigError(f"{path} was not written by `nnictl experiment save` of this nnilite.")
    try:
        if archive.getinfo(ABOUT).file_size > _LARGEST_ABOUT:
            raise foreign
        fields = json.loads(archive.read(ABOUT))
        about = Document(path, fields, "save the experiment again")
        known = about.whole("format", FORMAT, FORMAT) == FORMAT and _registry.is_id(about.text("id"))
        about.text("name"), about.text("platform"), about.time("started")
    except (KeyError, ValueError, AttributeError, RecursionError, DamagedFile):
        raise foreign from None
    if not known:
        raise foreign
    return about


def check_free(experiment: str, directory: Path, code: Path) -> None:
    """Raises: Conflict if the experiment is known, or something is in one of its places."""
    if _registry.entry(experiment) is not None:
        raise Conflict(
            f"Experiment {experiment} is on this machine already; `nnictl experiment delete {experiment}` makes room."
        )
    for path in (directory, code):
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise Conflict(f"{path} is there already; it is not overwritten.")


@contextmanager
def drafts(directory: Path, code: Path) -> Iterator[Places]:
    """Folders to unpack into, on the same disks as the places. Their remaining content is removed afterwards."""
    with ExitStack() as made:

        def beside(path: Path) -> Path:
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            made.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder / "new"

        draft = beside(directory)
        draft.mkdir(mode=0o700)
        inside = code.is_relative_to(directory)
        yield Places(directory, code, draft, draft / code.relative_to(directory) if inside else beside(code))


def _unpack(archive: zipfile.ZipFile, path: Path, places: Places, limits: ArchiveLimits, work: Work) -> None:
    """Unpack after a check of all names and sizes: a stranger's archive may name any path and unpack to any size."""
    check_amount(archive, path, limits)
    taken = EntryPaths(folds_case(places.draft))
    wanted = [(entry, target) for entry in archive.infolist() if (target := _target(entry, places, taken)) is not None]
    work.expect(sum(entry.file_size for entry, _ in wanted))
    for entry, (folder, inner) in wanted:
        unpack_one(archive, entry, folder, inner, work)


def check_amount(archive: zipfile.ZipFile, path: Path, limits: ArchiveLimits) -> None:
    """Check number and sizes of an archive's entries. Raises: ConfigError."""
    entries = archive.infolist()
    if len(entries) > limits.files:
        raise _too_many(path, limits.files)
    _check_size(path, sum(entry.file_size for entry in entries), limits)


def _check_size(path: Path, size: int, limits: ArchiveLimits) -> None:
    most = limits.bytes
    if most is None:
        most = min(MOST_BYTES, max(_ALWAYS_BYTES, MOST_RATIO * path.stat().st_size))
    if size > most:
        raise ConfigError(
            f"{path} would unpack to {format_size(size)}, and no more than {format_size(most)} is expected of it; "
            f"if it is yours, --max-size SIZE lets it"
        )


class EntryPaths:
    """The paths of an archive's entries: each may occur once, and none both as a file and as a folder."""

    def __init__(self, folds_case: bool) -> None:
        self._folds_case = folds_case
        self._files: set[tuple[str, ...]] = set()
        self._folders: set[tuple[str, ...]] = set()
        self._spelt: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, parts: tuple[str, ...], is_folder: bool) -> bool:
        """Add a path. False if it collides with another."""
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
    """Whether this disk does not distinguish `A` from `a`, so that two files of an archive could become one."""
    probe = folder / "probe-a"
    probe.touch()
    try:
        return probe.with_name("probe-A").exists()
    finally:
        probe.unlink()


def checked_parts(entry: zipfile.ZipInfo, taken: EntryPaths) -> tuple[str, ...]:
    """The parts of an entry's path. Raises: ConfigError if it leaves the archive, or collides with another."""
    parts = tuple(entry.filename.removesuffix("/").split("/"))
    odd = set(parts) & {"", ".", ".."} or entry.orig_filename != entry.filename or len(parts) > _DEEPEST
    if odd or not taken.add(parts, entry.is_dir()):
        raise _foreign(entry)
    return parts


def _target(entry: zipfile.ZipInfo, places: Places, taken: EntryPaths) -> tuple[Path, str] | None:
    """The folder for an entry and its path there, None if it is skipped.

    Raises: ConfigError for an entry that nnilite never saves.
    """
    parts = checked_parts(entry, taken)
    if parts == (ABOUT,):
        return None
    check_kind(entry)
    if parts[0] == "code" and len(parts) > 1:
        return places.code_draft, "/".join(parts[1:])
    inner = parts[1:]
    if parts[0] != "experiment" or not inner:
        raise _foreign(entry)
    if is_kept(inner) or (entry.is_dir() and is_kept((*inner, "any"))) or inner == (f"{DATABASE}-wal",):
        return places.draft, "/".join(inner)
    if inner in (("token",), ("lock",), ("manager.json",)) or not is_left_behind(inner):  # `save` never wrote these
        raise _foreign(entry)
    return None


def _foreign(entry: zipfile.ZipInfo) -> ConfigError:
    return ConfigError(f"The zip file names a path that no experiment has, or one twice: {entry.orig_filename!r:.200}.")


def check_kind(entry: zipfile.ZipInfo) -> None:
    """Raises: ConfigError for what is neither a file nor a folder, or encrypted."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    fitting = (0, stat.S_IFDIR) if entry.is_dir() else (0, stat.S_IFREG)
    if kind not in fitting or entry.compress_type not in _PLAIN or entry.flag_bits & 1:
        raise ConfigError(f"The zip file holds a link, a device or an encrypted file: {entry.filename!r:.200}.")


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


def _check_content(path: Path, experiment: str, places: Places) -> None:
    """Check the configuration, adapted to the folders here, and the database. Raises: ConfigError, PluginError."""
    from nnilite._manager.assembly import load_config
    from nnilite._store.copies import take_in

    _adapt(path, places)
    try:
        load_config(places.draft, paths=False)
        take_in(places.draft / DATABASE, experiment, time.time())
    except ConfigError as error:
        field = f"{error.place.field}: " if error.place.field else ""
        raise ConfigError(f"{path} holds a configuration that cannot work: {field}{error.message}") from error
    except StoreError as error:
        raise ConfigError(f"{path} holds no sound experiment: {error}") from error


def _adapt(path: Path, places: Places) -> None:
    """Change the folders in the configuration, which are elsewhere now."""
    try:
        config = read_document(places.draft / CONFIG, "save the experiment again").fields
    except (FileNotFoundError, DamagedFile) as error:
        raise ConfigError(f"{path} holds no configuration of an experiment: {CONFIG} is missing or damaged") from error
    config["experimentWorkingDirectory"] = str(places.directory.parent)
    if places.code_draft.is_dir():
        services = config.get("trainingService", [])
        for section in (config, *(services if isinstance(services, list) else [services])):
            if section is config or (isinstance(section, dict) and "trialCodeDirectory" in section):
                section["trialCodeDirectory"] = str(places.code)
    write_json(places.draft / CONFIG, config)


def _put(about: Document, places: Places) -> None:
    """Move the code and the experiment to their places and register it. A failure undoes the steps before."""
    with ExitStack() as undo:
        if places.code_draft.is_dir() and not places.code.is_relative_to(places.directory):
            places.code_draft.rename(places.code)
            undo.callback(shutil.rmtree, places.code, ignore_errors=True)
        places.draft.rename(places.directory)
        undo.callback(shutil.rmtree, places.directory, ignore_errors=True)
        name, platform = about.text("name") or "", about.text("platform") or ""
        _registry.add(about.text("id") or "", name, places.directory, platform, about.time("started"))
        undo.pop_all()
