"""Loads an experiment from a zip file that NNI's own `nnictl experiment save` has written, for reading.

    experiment/           the experiment's folder, with its database
    nnictl/.experiment    NNI's entry of it, with its id
    code/, searchSpace/   copies of the user's files

The checks of names, types and sizes are those of `unpack`.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from contextlib import ExitStack
from pathlib import Path

from nnilite._cli import archive_entries as entries
from nnilite._cli.archive_entries import ArchiveLimits, UnpackTargets
from nnilite._cli.progress_line import Work
from nnilite._experiments import nni_folders, registry
from nnilite._experiments.registry import RegistryEntry
from nnilite.errors import ConfigError, Conflict, NotFound, StoreError

_LIST = f"nnictl/{nni_folders.LIST}"
_DATABASE = f"experiment/{nni_folders.DATABASE.as_posix()}"
_LARGEST_LIST = 1 << 20


def is_nni(archive: zipfile.ZipFile) -> bool:
    """Return whether NNI wrote the archive."""
    names = set(archive.namelist())
    return {_LIST, _DATABASE} <= names


def load(
    archive: zipfile.ZipFile, path: Path, folder: Path | None, code: Path | None, limits: ArchiveLimits, work: Work
) -> RegistryEntry:
    """Unpack an experiment of NNI into the folder of experiments. Raises: ConfigError, Conflict if it is there."""
    experiment = _id(archive, path)
    directory = ((folder or registry.root()) / experiment).absolute()
    target = (code or directory / "code").absolute()
    if any(one.id == experiment for one in registry.list_all()):
        raise Conflict(f"Experiment {experiment} is already on this machine.")
    entries.check_free(experiment, directory, target)
    with ExitStack() as opened:
        places = opened.enter_context(entries.drafts(directory, target))
        entries.check_amount(archive, path, limits)
        _unpack(archive, places, work)
        work.goes_on("Checking")
        # The experiment's folder comes last: with it the experiment exists, so a crash leaves no half one.
        if not places.code.is_relative_to(places.directory) and places.code_draft.is_dir():
            places.code_draft.rename(places.code)
        places.draft.rename(places.directory)
    return _opened(path, directory)


def _id(archive: zipfile.ZipFile, path: Path) -> str:
    """Return the id of the experiment, from the key of NNI's entry or from the entry itself. Raises: ConfigError."""
    try:
        # Some kilobytes of a zip file can expand to gigabytes.
        if archive.getinfo(_LIST).file_size > _LARGEST_LIST:
            raise ValueError
        entry = json.loads(archive.read(_LIST))
        found = entry.get("id") or next(iter(entry))
    except (ValueError, AttributeError, StopIteration, RecursionError):
        found = None
    if not registry.is_id(found):
        raise ConfigError(f"{path} has no id of an experiment in {_LIST}.")
    return str(found)


def _unpack(archive: zipfile.ZipFile, places: UnpackTargets, work: Work) -> None:
    names = entries.EntryPaths(entries.folds_case(places.draft))
    work.expect(sum(entry.file_size for entry in archive.infolist()))
    for entry in archive.infolist():
        parts = entries.check_parts(entry, names)
        entries.check_kind(entry)
        if parts[0] == "experiment" and len(parts) > 1:
            entries.unpack_one(archive, entry, places.draft, "/".join(parts[1:]), work)
        elif parts[0] == "code" and len(parts) > 1:
            entries.unpack_one(archive, entry, places.code_draft, "/".join(parts[1:]), work)


def _opened(path: Path, directory: Path) -> RegistryEntry:
    """Read the experiment's database and return the experiment. Raises: ConfigError, and then nothing of it is left."""
    from nnilite._nni import nni_import

    entry = registry.at(directory)
    try:
        if entry.origin is None:
            raise NotFound(f"{directory} is not the folder of an experiment of NNI")
        nni_import.prepare(entry.origin, entry.directory)
    except (StoreError, NotFound) as error:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(entry.directory, ignore_errors=True)
        raise ConfigError(f"{path} does not contain a valid experiment of NNI: {error}") from error
    return registry.at(directory)
