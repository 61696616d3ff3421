"""Copies the results of an experiment of Microsoft NNI into a folder of nnilite, as a database of nnilite.

`registry` says where that folder is. The results are copied again whenever NNI's database has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nnilite._experiments.documents import read_document, write_json
from nnilite._experiments.new_folders import make_own_folder
from nnilite._experiments.nni_folders import COPY, COPY_CURE, NniExperiment
from nnilite._store.database_file import FILE_NAME
from nnilite.errors import DamagedFile, UnreadableFile
from nnilite.records import ExperimentState, Json

if TYPE_CHECKING:
    from nnilite._nni.nni_copy import Stamp
    from nnilite._nni.nni_rows import NniProfile


def is_copy(directory: Path) -> bool:
    """Return whether a folder of nnilite represents an experiment of NNI."""
    return (directory / COPY).is_file()


def prepare(origin: NniExperiment, directory: Path) -> None:
    """Copy the results of an experiment of NNI into an nnilite folder, unless they are there.

    Raises: StoreError if NNI's database cannot be read, OSError.
    """
    from nnilite._nni import nni_copy

    stamp = nni_copy.stamp(origin.directory)
    known = _known(directory)
    same = {"stamp": stamp, "state": origin.state, "directory": str(origin.directory)}
    if same.items() <= known.items() and (directory / FILE_NAME).is_file():
        return
    make_own_folder(directory)
    (directory / COPY).unlink(missing_ok=True)
    found = nni_copy.make(origin.directory, directory / FILE_NAME, origin.id, ExperimentState(origin.state))
    write_json(directory / COPY, _about(origin, found, stamp))


def _known(directory: Path) -> Mapping[str, Json]:
    try:
        return read_document(directory / COPY, COPY_CURE).fields
    except (FileNotFoundError, DamagedFile, UnreadableFile):
        return {}


def _about(origin: NniExperiment, profile: NniProfile, stamp: Stamp) -> dict[str, Json]:
    """Return the content of that file. Passwords stay where they are."""
    from nnilite.config import masked

    config = masked({key: value for key, value in profile.params.items() if key != "searchSpace"})
    return {
        "stamp": stamp,
        "state": origin.state,
        "id": origin.id,
        "directory": str(origin.directory),
        "name": origin.name or str(profile.params.get("experimentName") or ""),
        "platform": origin.platform or ",".join(_platforms(profile.params)),
        "started": origin.started if origin.started is not None else profile.started,
        "ended": origin.ended if origin.ended is not None else profile.ended,
        "config": {**config, "searchSpace": profile.space},
    }


def _platforms(params: Mapping[str, Json]) -> list[str]:
    services = params.get("trainingService")
    sections = services if isinstance(services, list) else [services]
    found = [str(one.get("platform", "")) for one in sections if isinstance(one, dict)]
    return found or [str(params.get("trainingServicePlatform", ""))]
