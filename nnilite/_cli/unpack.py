"""Loads a saved experiment from a zip file from any source.

Every name, type and size in the archive is checked before anything is written. The unpacked content (the configuration
and each row of the database) is checked before the experiment is moved to its place, in one step, so the experiment is
there whole or not at all. It is another experiment than the saved one (`_store.copies`); only its results and its id
are the same.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnilite._cli import unpack_nni
from nnilite._cli.archive import ABOUT, CONFIG, DATABASE, FORMAT, SAVED_CODE, is_kept, is_left_behind
from nnilite._cli.archive_entries import (
    LARGEST_ABOUT,
    ArchiveLimits,
    BoundedArchive,
    EntryPaths,
    UnpackTargets,
    check_amount,
    check_free,
    check_kind,
    check_parts,
    drafts,
    folds_case,
    foreign,
    unpack_one,
)
from nnilite._cli.progress_line import Work
from nnilite._experiments import registry, search_folder
from nnilite._experiments.documents import Document, read_document, write_json
from nnilite._experiments.registry import RegistryEntry
from nnilite.errors import ConfigError, DamagedFile, Place, StoreError
from nnilite.foreign_files import UnsafeName


def load(path: Path, folder: Path | None, code: Path | None, limits: ArchiveLimits, work: Work) -> RegistryEntry:
    """Unpack a saved experiment into the folder of experiments, and make it known on this machine.

    The bytes that are unpacked are counted in `work`.

    Raises: ConfigError if the file is not a saved experiment, Conflict if the experiment or its code exists already.
    """
    if path.is_dir():  # NNI's `save --path` makes a folder, and the zip file in it
        inside = sorted(path.glob("*.zip"))
        raise ConfigError(f"is a folder; give the zip file{f' {inside[0]}' if inside else ''}", Place(str(path)))
    with ExitStack() as opened:
        with explain_archive_errors(path):
            archive = opened.enter_context(zipfile.ZipFile(opened.enter_context(BoundedArchive(path, limits.files))))
            if unpack_nni.is_nni(archive):
                return unpack_nni.load(archive, path, folder, code, limits, work)
            about = _about(archive, path)
        experiment = about.text("id") or ""
        directory = ((folder or registry.root()) / experiment).absolute()
        code = (code or directory / SAVED_CODE).absolute()
        # Unpacking may take minutes, so a conflict is found before.
        check_free(experiment, directory, code)
        places = opened.enter_context(drafts(directory, code))
        with explain_archive_errors(path):
            _unpack(archive, path, places, limits, work)
        work.goes_on("Checking")
        _check_content(path, experiment, places)
        _put(about, places)
    return registry.find(experiment)


@contextmanager
def explain_archive_errors(path: Path) -> Iterator[None]:
    """Turn zipfile's errors on bytes that are not a whole archive into ConfigError."""
    try:
        yield
    except UnsafeName as error:
        raise ConfigError(f"{path} cannot be unpacked: {error}") from error
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"{path} is not a complete zip file: {error}") from error
    except RuntimeError as error:  # zipfile raises this for an archive with a password
        raise ConfigError(f"{path} cannot be unpacked: {error}") from error


def _about(archive: zipfile.ZipFile, path: Path) -> Document:
    other = ConfigError(f"{path} was not written by `nnictl experiment save` of this nnilite.")
    try:
        if archive.getinfo(ABOUT).file_size > LARGEST_ABOUT:
            raise other
        fields = json.loads(archive.read(ABOUT))
        about = Document(path, fields, "save the experiment again")
        known = about.whole("format", FORMAT, FORMAT) == FORMAT and registry.is_id(about.text("id"))
        # These are read last, when everything is unpacked: a wrong type is found here, before that.
        about.text("name"), about.text("platform"), about.time("started")
    except (KeyError, ValueError, AttributeError, RecursionError, DamagedFile):
        raise other from None
    if not known:
        raise other
    return about


def _unpack(archive: zipfile.ZipFile, path: Path, places: UnpackTargets, limits: ArchiveLimits, work: Work) -> None:
    """Unpack after a check of all names and sizes: a stranger's archive may name any path and unpack to any size."""
    check_amount(archive, path, limits)
    taken = EntryPaths(folds_case(places.draft))
    wanted = [(entry, target) for entry in archive.infolist() if (target := _target(entry, places, taken)) is not None]
    work.expect(sum(entry.file_size for entry, _ in wanted))
    for entry, (folder, inner) in wanted:
        unpack_one(archive, entry, folder, inner, work)


def _target(entry: zipfile.ZipInfo, places: UnpackTargets, taken: EntryPaths) -> tuple[Path, str] | None:
    """Return the folder for an entry and its path there, None if it is skipped.

    Raises: ConfigError for an entry that nnilite never saves.
    """
    parts = check_parts(entry, taken)
    if parts == (ABOUT,):
        return None
    check_kind(entry)
    if parts[0] == "code" and len(parts) > 1:
        return places.code_draft, "/".join(parts[1:])
    inner = parts[1:]
    if parts[0] != "experiment" or not inner:
        raise foreign(entry)
    # A folder is kept if a file in it would be.
    if is_kept(inner) or (entry.is_dir() and is_kept((*inner, "any"))) or inner == (f"{DATABASE}-wal",):
        return places.draft, "/".join(inner)
    if inner in (("token",), ("lock",), ("manager.json",)) or not is_left_behind(inner):  # `save` never wrote these
        raise foreign(entry)
    return None


def _check_content(path: Path, experiment: str, places: UnpackTargets) -> None:
    """Check the configuration, adapted to the folders here, and the database. Raises: ConfigError, PluginError."""
    from nnilite._store.copies import import_database
    from nnilite.config import load_stored

    _adapt(path, places)
    try:
        # The database first: it says whether a newer nnilite has written the config.
        import_database(places.draft / DATABASE, experiment, time.time())
        load_stored(places.draft, paths=False)
    except ConfigError as error:
        field = f"{error.place.field}: " if error.place.field else ""
        raise ConfigError(f"{path} contains an invalid configuration: {field}{error.message}") from error
    except StoreError as error:
        raise ConfigError(f"{path} does not contain a valid experiment: {error}") from error


def _adapt(path: Path, places: UnpackTargets) -> None:
    """Change the folders in the configuration, which are elsewhere now."""
    try:
        config = read_document(places.draft / CONFIG, "save the experiment again").fields
    except (FileNotFoundError, DamagedFile) as error:
        raise ConfigError(
            f"{path} contains no configuration of an experiment: {CONFIG} is missing or damaged"
        ) from error
    config["experimentWorkingDirectory"] = str(places.directory.parent)
    if places.code_draft.is_dir():
        services = config.get("trainingService", [])
        for section in (config, *(services if isinstance(services, list) else [services])):
            if section is config or (isinstance(section, dict) and "trialCodeDirectory" in section):
                section["trialCodeDirectory"] = str(places.code)
    write_json(places.draft / CONFIG, config)


def _put(about: Document, places: UnpackTargets) -> None:
    """Move the code and the experiment to their places and register it. A failure undoes the steps before."""
    with ExitStack() as undo:
        if places.code_draft.is_dir() and not places.code.is_relative_to(places.directory):
            places.code_draft.rename(places.code)
            undo.callback(shutil.rmtree, places.code, ignore_errors=True)
        if (places.draft / search_folder.FILE).is_file():
            # A program continues it, as without this folder only a manager would.
            (places.draft / search_folder.PROCESSES).mkdir(mode=0o700)
        places.draft.rename(places.directory)
        undo.callback(shutil.rmtree, places.directory, ignore_errors=True)
        name, platform = about.text("name") or "", about.text("platform") or ""
        registry.add(about.text("id") or "", name, places.directory, platform, about.time("started"))
        undo.pop_all()
