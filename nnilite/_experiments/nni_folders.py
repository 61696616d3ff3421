"""Finds the experiments that Microsoft NNI has left on this machine. Nothing in their folders is ever changed.

NNI lists its experiments in the file `.experiment` of the folder of experiments, and keeps each in `<folder>/<id>`
with a database `db/nni.sqlite`. The list may be lost, so folders with such a database are found without it, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nnilite._experiments.documents import Document, is_file, is_folder, may_be_path, read_document
from nnilite.errors import DamagedFile, UnreadableFile
from nnilite.records import ExperimentState, Json
from nnilite.records.record_types import TIME_MAX

LIST = ".experiment"
DATABASE = Path("db") / "nni.sqlite"
COPY = "nni.json"
"""In nnilite's folder for an experiment of NNI: where NNI's folder is, and what NNI recorded besides results."""
COPY_CURE = "remove it, and it is made again"
MIXED_UP = "NNI recorded the wrong parameters for this trial"
UNCERTAIN = "its real parameters are unknown"
"""The reason of a trial that reported with other parameters than NNI recorded for it begins and may end with these."""

_LIST_CURE = "NNI wrote it, and nnilite reads experiments without it"
_LARGEST_PID = 2**31 - 1
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
    """Return all experiments of NNI that are listed in a folder of experiments, or lie in it."""
    by_id = {one.id: one for one in read_list(root).experiments}
    for database in root.glob(f"*/{DATABASE.as_posix()}"):
        directory = database.parents[1]
        if directory.name not in by_id and not directory.is_symlink():
            by_id[directory.name] = NniExperiment(directory.name, directory)
    return [one for one in by_id.values() if _is_seen(one.directory / DATABASE, is_file)]


def at(directory: Path) -> NniExperiment | None:
    """Return the experiment of NNI in this folder; None if there is none."""
    directory = directory.absolute()
    if not _is_seen(directory / DATABASE, is_file):
        return None
    listed_there = read_list(directory.parent).experiments
    beside = (replace(one, directory=directory) for one in listed_there if one.id == directory.name)
    return next(beside, NniExperiment(directory.name, directory))


def taken(folder: Path) -> list[NniExperiment]:
    """Return the experiments of NNI that were opened before, wherever they are.

    `folder` has an nnilite folder for each.
    """
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
    """Return an experiment that NNI's list does not have, with the facts from its database."""
    if origin.started is not None:
        return origin
    name, platform = known.text("name") or "", known.text("platform") or ""
    return replace(origin, name=name, platform=platform, started=known.time("started"), ended=known.time("ended"))


def find_trial_folder(experiment: Path, trial: str) -> Path | None:
    """Return a trial's folder. NNI 3 puts it below its environment, older versions and other platforms below `trials`.

    The name comes from NNI's database, which may be a stranger's: a name that leads out of the folder gives None.
    """
    if "/" in trial or trial in ("", ".", "..") or not may_be_path(trial):
        return None
    places = [experiment / "trials", *sorted(experiment.glob("environments/*/trials"))]
    folders = (place / trial for place in places)
    return next((folder for folder in folders if folder.is_dir() and not folder.is_symlink()), None)


def is_uncertain(reason: str) -> bool:
    """Return whether a trial's reason says that its parameters are known to be wrong."""
    return reason.startswith(MIXED_UP) and reason.endswith(UNCERTAIN)


@dataclass(frozen=True)
class NniList:
    """The content of NNI's list. `troubles`: a sentence for each entry that is left out, or for the whole file."""

    experiments: tuple[NniExperiment, ...] = ()
    troubles: tuple[str, ...] = ()


def read_list(root: Path) -> NniList:
    """Read NNI's list in a folder of experiments. An entry with a wrong field is left out, and so is a damaged file."""
    path = root / LIST
    try:
        entries = read_document(path, _LIST_CURE).fields
    except FileNotFoundError:
        return NniList()
    except (DamagedFile, UnreadableFile) as error:
        return NniList(troubles=(str(error),))
    found, troubles = [], []
    for name, fields in entries.items():
        try:
            if not isinstance(fields, dict):
                raise DamagedFile(path, "the entry is not a JSON object", _LIST_CURE)
            found.append(_one(root, name, Document(path, fields, _LIST_CURE)))
        except DamagedFile as error:
            troubles.append(f"The entry {name!r:.70} is left out: {error}")
    return NniList(tuple(found), tuple(troubles))


def _one(root: Path, name: str, entry: Document) -> NniExperiment:
    """Check an entry of NNI's list. Raises: DamagedFile."""
    if "/" in name or name in ("", ".", "..") or not may_be_path(name):
        raise DamagedFile(entry.path, "the entry's name is not an id", entry.cure)
    place = entry.text("logDir") or ""
    beside = Path(place) / name if place.startswith("/") and may_be_path(place) else root / name
    return NniExperiment(
        id=name,
        directory=(beside if _is_seen(beside, is_folder) else root / name).absolute(),
        name=entry.text("experimentName") or "",
        platform=entry.text("platform") or "",
        state=_state(entry.text("status"), entry.whole("pid", -1, _LARGEST_PID)),
        started=_time(entry, "startTime"),
        ended=_time(entry, "endTime"),
    )


def _time(entry: Document, name: str) -> float | None:
    """Return a time in milliseconds as seconds; None for a text, since versions write a missing time differently."""
    value = entry.fields.get(name)
    if value is None or isinstance(value, str):
        return None
    found = seconds(value)
    if found is None:
        raise entry.wrong(name, "a time in milliseconds since 1970")
    return found


def _is_seen(path: Path, look: Callable[[Path], bool]) -> bool:
    """Return whether a path exists and can be examined: other experiments are not listed."""
    try:
        return look(path)
    except UnreadableFile:
        return False


def _state(status: str | None, process: int | None) -> str:
    """Return the state that NNI wrote last, unless its manager died without writing one."""
    if status in _OVER:
        return str(status)
    return str(status) if status in _STATES and _is_there(process) else ExperimentState.STOPPED.value


def _is_there(process: int | None) -> bool:
    if process is None or process < 2:
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return True


def seconds(milliseconds: Json) -> float | None:
    """Return a time of NNI in seconds; None for "N/A" and anything else that is not a time."""
    # NaN fails both comparisons, and a whole number is compared before it becomes a float, which it may not fit.
    if type(milliseconds) not in (int, float) or not 0 <= milliseconds <= 1000 * TIME_MAX:
        return None
    return float(milliseconds) / 1000
