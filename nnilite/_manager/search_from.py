"""Collects the results of other experiments, from which the tuner of a new one learns (`searchFrom`).

A source is the id of an experiment on this machine, of nnilite or of Microsoft NNI, or its folder, or a file that
`nnictl experiment export` of either has written.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nnilite._experiments import nni_folders, registry
from nnilite._experiments.documents import read_json_file
from nnilite._experiments.nni_folders import NniExperiment
from nnilite._nni import nni_import
from nnilite._store.database_file import FILE_NAME
from nnilite._store.results import read_succeeded
from nnilite.errors import ConfigError, DamagedFile, NotFound, Place
from nnilite.records import ExperimentState, Json


def collect(sources: Sequence[str]) -> list[Json]:
    """Return the results of all sources in order, as `{"parameter": ..., "value": ...}`.

    Raises: ConfigError, NniliteError.
    """
    found: list[Json] = []
    for number, source in enumerate(sources):
        try:
            found += results(source)
        except (NotFound, DamagedFile) as error:
            raise ConfigError(str(error), Place(field=f"searchFrom[{number}]")) from error
    return found


def results(source: str) -> list[Json]:
    """Return the results of one source. Raises: NotFound, NniliteError if it cannot be read."""
    path = Path(source)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:  # a name that is too long, or a folder of another user
        raise NotFound(f"{source!r:.80} cannot be looked for: {error.strerror}") from error
    if is_folder:
        return _collect_from_folder(path)
    if is_file:
        return read_results(path)
    if "/" in source or path.suffix.lower() in (".json", ".csv"):
        raise NotFound(f"there is no experiment folder or file {source!r}")
    entry = registry.find(source, read_only=True)
    return _of_nni(entry.origin, entry.directory) if entry.origin else read_succeeded(entry.directory / FILE_NAME)


def read_results(path: Path) -> list[Json]:
    """Return the results in a JSON file that was exported. Raises: DamagedFile, UnreadableFile."""
    cure = "export the experiment again"
    if path.suffix.lower() == ".csv":
        cure = "only JSON is read: `nnictl experiment export ID --type json -f results.json`"
    data = read_json_file(path, cure)
    if not isinstance(data, list) or not all(isinstance(item, dict) and "parameter" in item for item in data):
        raise DamagedFile(path, 'it is not a list of {"parameter": {...}, "value": ...}', cure)
    return [unwrap_metric(item) for item in data]


def unwrap_metric(item: Json) -> Json:
    """Return a result with its metric as a number, as tuners need it.

    NNI exports metrics as JSON texts, such as "0.98".
    """
    if not isinstance(item, dict) or not isinstance(item.get("value"), str):
        return item
    try:
        return {**item, "value": json.loads(item["value"])}
    except (ValueError, RecursionError):
        return item


def _collect_from_folder(folder: Path) -> list[Json]:
    if (folder / FILE_NAME).is_file():
        return read_succeeded(folder / FILE_NAME)
    origin = nni_folders.at(folder)
    if origin is None:
        raise NotFound(
            f"{folder} is not the folder of an experiment: it has neither {FILE_NAME} nor {nni_folders.DATABASE}"
        )
    from nnilite._nni import nni_copy

    with tempfile.TemporaryDirectory(prefix="nnilite-") as copy:
        database = Path(copy, FILE_NAME)
        nni_copy.make(origin.directory, database, origin.id, ExperimentState.STOPPED)
        return read_succeeded(database)


def _of_nni(origin: NniExperiment, directory: Path) -> list[Json]:
    nni_import.prepare(origin, directory)
    return read_succeeded(directory / FILE_NAME)
