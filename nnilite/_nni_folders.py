"""Finds the experiments that Microsoft NNI has left on this machine. Nothing in their folders is ever changed.

NNI lists its experiments in the file `.experiment` of the folder of experiments, and keeps each in `<folder>/<id>`
with a database `db/nni.sqlite`. The list may be lost, so folders with such a database are found without it, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nnilite._documents import Document, read_document
from nnilite.errors import DamagedFile, UnreadableFile
from nnilite.records import ExperimentState, Json

LIST = ".experiment"
DATABASE = Path("db") / "nni.sqlite"
COPY = "nni.json"
"""In the folder of ours that stands for an experiment of NNI: where that is, and what NNI recorded beside results."""
COPY_CURE = "remove it, and it is made again"
MIXED_UP = "NNI recorded the wrong parameters for this trial"
UNCERTAIN = "which ones it had cannot be told"
"""The reason of a trial that reported with other parameters than NNI recorded for it begins and may end with these."""

_OVER = {state.value for state in (ExperimentState.STOPPED, ExperimentState.DONE, ExperimentState.ERROR)}
_STATES = {state.value for state in ExperimentState}


@dataclass(frozen=True)
class NniExperiment:
    """An experiment of NNI. `directory` is its own folder. Times are seconds since the epoch."""

    id: str
    directory: Path
    name: str = ""
    platform: str = ""
    state: str = ExperimentState.STOPPED.value
    started: float | None = None
    ended: float | None = None


def listed(root: Path) -> list[NniExperiment]:
    """All experiments of NNI that are listed in a folder of experiments, or lie in it."""
    found = {one.id: one for one in _from_list(root)}
    for database in root.glob(f"*/{DATABASE.as_posix()}"):
        directory = database.parents[1]
        if directory.name not in found and not directory.is_symlink():
            found[directory.name] = NniExperiment(directory.name, directory)
    return [one for one in found.values() if (one.directory / DATABASE).is_file()]


def at(directory: Path) -> NniExperiment | None:
    """The experiment of NNI in this folder; None if there is none."""
    directory = directory.absolute()
    if not (directory / DATABASE).is_file():
        return None
    beside = (replace(one, directory=directory) for one in _from_list(directory.parent) if one.id == directory.name)
    return next(beside, NniExperiment(directory.name, directory))


def taken(folder: Path) -> list[NniExperiment]:
    """The experiments of NNI that were opened before, wherever they are. `folder` has a folder of ours for each."""
    found = []
    for path in folder.glob(f"*/{COPY}"):
        try:
            known = read_document(path, COPY_CURE)
            origin = at(known.folder("directory"))
            if origin is not None:
                found.append(_completed(origin, known))
        except (FileNotFoundError, DamagedFile, UnreadableFile):
            continue  # it is made again when the experiment is opened
    return found


def _completed(origin: NniExperiment, known: Document) -> NniExperiment:
    """An experiment that NNI's list does not have, with what its database said."""
    if origin.started is not None:
        return origin
    name, platform = known.text("name") or "", known.text("platform") or ""
    return replace(origin, name=name, platform=platform, started=known.time("started"), ended=known.time("ended"))


def trial_folder(experiment: Path, trial: str) -> Path | None:
    """The folder of a trial: NNI 3 puts it below its environment, older versions and other platforms below `trials`."""
    places = [experiment / "trials", *sorted(experiment.glob("environments/*/trials"))]
    folders = (place / trial for place in places)
    return next((folder for folder in folders if folder.is_dir() and not folder.is_symlink()), None)


def is_uncertain(reason: str) -> bool:
    """Whether a trial's reason says that its parameters are known to be wrong."""
    return reason.startswith(MIXED_UP) and reason.endswith(UNCERTAIN)


def _from_list(root: Path) -> Iterator[NniExperiment]:
    try:
        entries = read_document(root / LIST, "NNI wrote it; nnilite does not need it").fields
    except (FileNotFoundError, DamagedFile, UnreadableFile):
        return  # The folders are found without it.
    for name, entry in entries.items():
        if isinstance(entry, dict) and "/" not in name and name not in ("", ".", ".."):
            yield _one(root, name, entry)


def _one(root: Path, name: str, entry: Mapping[str, Json]) -> NniExperiment:
    folders: Iterable[Path] = [Path(entry["logDir"]) / name] if isinstance(entry.get("logDir"), str) else []
    directory = next((folder for folder in folders if folder.is_dir()), root / name)
    return NniExperiment(
        id=name,
        directory=directory.absolute(),
        name=_text(entry.get("experimentName")),
        platform=_text(entry.get("platform")),
        state=_state(entry.get("status"), entry.get("pid")),
        started=seconds(entry.get("startTime")),
        ended=seconds(entry.get("endTime")),
    )


def _state(status: Json, process: Json) -> str:
    """What NNI wrote last, unless its manager died without a word."""
    if status in _OVER:
        return str(status)
    return str(status) if status in _STATES and _is_there(process) else ExperimentState.STOPPED.value


def _is_there(process: Json) -> bool:
    if type(process) is not int or process < 2:
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def seconds(milliseconds: Json) -> float | None:
    """A time of NNI in seconds; None for "N/A" and whatever else is no time."""
    if type(milliseconds) not in (int, float) or not math.isfinite(milliseconds) or not 0 <= milliseconds < 1e14:
        return None
    return float(milliseconds) / 1000


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
