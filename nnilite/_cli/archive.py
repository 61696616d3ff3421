"""Saves an experiment as one zip file, which can be kept or taken to another machine; `unpack` loads it.

    nnilite.json    what it is: format, id, name, platform, when it started
    experiment/     its folder: database, logs, trials, code packages, configuration
    code/           its code directory, as far as `.nniignore` lets it, if that was asked for

Files of one running manager (address, token, lock, keeper, notes of services on jobs) are not saved, nor the secrets
from which tokens are derived. The configuration may hold passwords, so only its owner may read the file. Links are
left out, as they would point to nothing elsewhere.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnilite._cli import config_source, screen
from nnilite._cli.nnictl import warn
from nnilite._cli.progress_line import Work
from nnilite._experiments import provenance_reading, registry, search_folder
from nnilite._experiments.documents import read_document
from nnilite._experiments.registry import RegistryEntry
from nnilite.disk_room import DiskRoom
from nnilite.errors import ConfigError, Conflict, DamagedFile, NotFound

FORMAT = 1
ABOUT = "nnilite.json"
DATABASE = "nnilite.sqlite"
CONFIG = "config.json"
SAVED_CODE = "saved_code"
"""The folder into which `load` puts the code directory by default."""

_FILES = {DATABASE, CONFIG}
_OTHERS = {"remarks.json", provenance_reading.FILE_NAME, search_folder.FILE}  # files that not every experiment has
_FOLDERS = {"log", "trials", "code", "checkpoint", "checkpoints", SAVED_CODE}
KEPT = _FILES | _OTHERS | _FOLDERS
"""All that is saved of an experiment's folder, by its name there."""
_OF_A_MANAGER = {
    *("lock", "manager.json", "token", "callback", "keeper.pyz", "gpus.json", "fork-server.log", "stop-reserve"),
    config_source.FILE_NAME,
    *("search.lock", search_folder.PROCESSES),
}
_OF_A_SERVICE = ("-jobs.json", "-owed.json", "-elastic.json", "-shm", "-wal")
_OF_AN_ATTEMPT = {"spec.json", "job.json"}  # these have an attempt's token, and the place where it runs


def is_kept(parts: tuple[str, ...]) -> bool:
    """Return whether a file at this path of an experiment's folder is saved and loaded. No other file ever is."""
    if len(parts) == 1:
        return parts[0] in _FILES | _OTHERS
    return parts[0] in _FOLDERS and not _is_of_an_attempt(parts)


def is_left_behind(parts: tuple[str, ...]) -> bool:
    """Return whether a file is nnilite's own, but belongs to one running manager or job and must not be saved."""
    if len(parts) == 1:
        return parts[0] in _OF_A_MANAGER or parts[0].endswith(_OF_A_SERVICE)
    return parts[0].startswith(".nnilite-sdk-") or _is_of_an_attempt(parts)


def _is_of_an_attempt(parts: tuple[str, ...]) -> bool:
    return len(parts) == 4 and parts[0] == "trials" and parts[3] in _OF_AN_ATTEMPT


def save(entry: RegistryEntry, target: Path, work: Work, *, with_code: bool) -> Path:
    """Write the zip file to `target`, or into it if it is a folder, and count its bytes in `work`.

    Raises: Conflict if the file exists, NoRoom, OSError.
    """
    path = target / f"nni_experiment_{entry.id}.zip" if target.is_dir() else target
    if not path.parent.is_dir():
        raise ConfigError(f"--path {target}: its folder does not exist")
    if path.exists():
        raise Conflict(f"{path} already exists; it is not overwritten.")
    for name in sorted(_FILES):
        if not (entry.directory / name).is_file():
            raise NotFound(f"{entry.directory / name} is gone, and without it there is no experiment to save.")
    draft = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        # Others may read the target folder, and write in it: results and logs are this user's own all the same.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            _write(entry, file, work, DiskRoom(path.parent), with_code=with_code)
        draft.replace(path)
    except OSError as error:
        # A failed write does not say of what, and nobody knows the draft's name.
        error.filename = str(path) if error.filename in (None, draft) else error.filename
        raise
    finally:
        draft.unlink(missing_ok=True)
    return path


def _write(entry: RegistryEntry, file: Any, work: Work, room: DiskRoom, *, with_code: bool) -> None:
    about = {"format": FORMAT, "id": entry.id, "name": entry.name, "platform": entry.platform, "started": entry.started}
    # Files may be older than 1980, where the times of zip files begin.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.writestr(ABOUT, json.dumps(about))
        own = os.fstat(file.fileno())
        # A zip file in the packed folder would grow without end.
        found = [one for one in _content(entry, with_code=with_code) if not os.path.samestat(one[0].stat(), own)]
        work.expect(sum(path.stat().st_size for path, _ in found if path.is_file()))
        _write_database(entry, archive, work, room)
        for path, name in found:
            _add(archive, path, name, work, room)


def _add(archive: zipfile.ZipFile, path: Path, name: str, work: Work, room: DiskRoom) -> None:
    """Add a file, piece by piece, or an empty folder."""
    if path.is_dir():
        archive.write(path, name)
        return
    entry = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
    entry.compress_type = zipfile.ZIP_DEFLATED
    with path.open("rb") as source, archive.open(entry, "w") as packed:

        def write(piece: bytes) -> None:
            room.count(len(piece))
            packed.write(piece)

        work.copy(source, write)


def _write_database(entry: RegistryEntry, archive: zipfile.ZipFile, work: Work, room: DiskRoom) -> None:
    from nnilite._store.copies import copy_out

    with tempfile.TemporaryDirectory(prefix="nnilite-") as folder:
        copy = Path(folder, DATABASE)
        unfinished = copy_out(entry.directory / DATABASE, copy)
        work.expect(copy.stat().st_size)
        _add(archive, copy, f"experiment/{DATABASE}", work, room)
    if unfinished.trials or unfinished.removals:
        warn(
            f"{screen.amount(unfinished.trials, 'trials')} had not ended when the manager did, and "
            f"{screen.amount(unfinished.removals, 'ended jobs')} may "
            "still hold something on their platform. Both stay with this experiment: a copy runs those trials again. "
            f"To include their results, run `nnictl resume {entry.id}`, and stop the experiment before you save it."
        )


def _content(entry: RegistryEntry, *, with_code: bool) -> Iterator[tuple[Path, str]]:
    """Yield each file but the database, with its name in the zip file."""
    for path in _files(entry.directory):
        parts = path.relative_to(entry.directory).parts
        if is_kept(parts) and parts != (DATABASE,) and not (with_code and parts[0] == SAVED_CODE):
            yield path, "/".join(("experiment", *parts))
        elif len(parts) == 1 and not is_kept(parts) and not is_left_behind(parts) and parts[0] not in _FOLDERS:
            warn(f"{path} is not part of an experiment and is left out.")
    if with_code:
        yield from _code(entry)


def _files(directory: Path) -> Iterator[Path]:
    links = 0
    for folder, names, files in os.walk(directory):
        for name in sorted(files + [name for name in names if _has_no_children(Path(folder, name))]):
            path = Path(folder, name)
            if name in registry.NNI_LOGS and path.parent == directory / "log":
                continue  # made again by the next manager
            if not _can_be_saved(path):
                links += 1
            else:
                yield path
    if links:
        warn(f"{links} links, special files, and files with invalid or too long names in {directory} are left out.")


def _can_be_saved(path: Path) -> bool:
    """Return whether this is a file or a folder with a name that a zip file can have, and not too deep to be read."""
    try:
        path.name.encode("utf-8")
        return not path.is_symlink() and (path.is_file() or path.is_dir())
    except (UnicodeEncodeError, OSError):
        return False


def _has_no_children(folder: Path) -> bool:
    """Return whether a folder is to be saved as an empty one.

    Links to folders count as files, as they are not followed, and so does a folder that cannot be read.
    """
    try:
        return folder.is_symlink() or next(folder.iterdir(), None) is None
    except OSError:
        return True


def _code(entry: RegistryEntry) -> Iterator[tuple[Path, str]]:
    from nnilite.codedir import list_files

    path, cure = entry.directory / CONFIG, "save it without --code"
    try:
        document = read_document(path, cure)
        folder = document.text("trialCodeDirectory")
    except FileNotFoundError:
        raise DamagedFile(path, "it is gone", cure) from None
    if folder is None:
        raise document.wrong("trialCodeDirectory", "a folder")
    listed = list_files(folder)
    for file in listed.files:
        if file.target is None:
            yield listed.root / file.path, f"code/{file.path}"
    for note in listed.notes:
        warn(note)
