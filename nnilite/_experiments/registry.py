"""The experiments of this machine: one small file for each, and what their managers wrote last.

`~/nni-experiments/.nnilite/<id>.json` says where an experiment is kept, whatever its working directory. Those in
`~/nni-experiments` are found without it (`own_folders`). What a manager wrote last is in `manager_state`. A manager is
alive while it holds the lock of the experiment (`locking`). The files are checked like anything from outside: a damaged
one makes its own experiment DAMAGED in the list and affects no other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nnilite._experiments import experiment_remarks, locking, nni_folders, own_folders, search_folder
from nnilite._experiments.documents import (
    is_file,
    is_folder,
    list_documents,
    read_document,
    write_json,
)
from nnilite._experiments.experiment_remarks import Remarks
from nnilite._experiments.locking import ManagerLock, explain_no_lock
from nnilite._experiments.manager_state import find_manager_state, read_manager
from nnilite._experiments.new_folders import make_own_folder
from nnilite._experiments.nni_folders import NniExperiment
from nnilite._keeper.plain_file import is_folder_there
from nnilite._keeper.trials_folder import make_trials_folder
from nnilite.errors import Conflict, DamagedFile, NniliteError, NotFound, UnreadableFile
from nnilite.records import ExperimentState, Json
from nnilite.units.path_rules import find_home

FOLDERS = ("log", "trials", "code", "checkpoint")
"""The subfolders that every experiment's folder has from its beginning."""

NNI_LOGS = {
    "nnimanager.log": "manager.log",
    "nnictl_stdout.log": "manager.log",
    "nnictl_stderr.log": "manager.log",
    "dispatcher.log": "tuner.log",
}
"""Links in the folder `log`: NNI's names of the logs, and ours."""

DAMAGED = "DAMAGED"
UNREADABLE = "UNREADABLE"
"""Shown in place of a state if the files that have the state are damaged or gone."""

UNKNOWN = "UNKNOWN"
"""Shown in place of a state if the manager has died: its trials may still run."""

_HAS_LINK_OR_NONE = {errno.EEXIST, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}
_FINAL = {state.value for state in (ExperimentState.STOPPED, ExperimentState.DONE, ExperimentState.ERROR)}
_WITH_TRIALS = {state.value for state in ExperimentState} - _FINAL - {ExperimentState.VIEWED.value}
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
NO_REMARKS = Remarks()


@dataclass(frozen=True)
class RegistryEntry:
    """What is known of an experiment without asking its manager."""

    id: str
    name: str
    directory: Path
    platform: str = ""
    state: str = "STOPPED"
    port: int | None = None
    url: str | None = None
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    alive: bool = False
    damage: str = ""  # one sentence with a cure; "" if its files are whole
    # What Microsoft NNI left of it, if NNI has made it. `directory` is then the nnilite folder that represents it.
    origin: NniExperiment | None = None
    remarks: Remarks = NO_REMARKS  # tags, note and name that the user has given; `name` is that name, if there is one
    search: bool = False  # a Search in a Python program, without a manager

    @property
    def is_running(self) -> bool:
        """Whether anything works at it: a manager, or the processes of a search."""
        return self.alive or (self.search and self.state == ExperimentState.RUNNING.value)

    @property
    def lost_manager(self) -> str:
        """The sentence, with a cure, that its manager died before its trials were over; "" if not."""
        return explain_lost_manager(self.id) if self.state == UNKNOWN else ""

    @property
    def stop(self) -> str:
        """The sentence, with a cure, that its manager's process was stopped (SIGSTOP) and cannot answer; "" if not."""
        from nnilite._keeper.attempt_kill import describe_stop  # few commands need it

        return describe_stop(self.pid) if self.alive else ""

    @property
    def activity(self) -> str:
        """What its process does, to be said after the experiment's name."""
        if self.state == ExperimentState.VIEWED.value:
            return "is open for viewing"
        return "has a manager that still runs" if self.has_ended else "is running"

    @property
    def has_ended(self) -> bool:
        """Whether its trials are over, though its manager may still serve the page."""
        return self.state in _FINAL


def root() -> Path:
    """Return the folder of all experiments, unless the config says otherwise. NNILITE_HOME overrides it.

    Raises: NniliteError if there is no home folder either.
    """
    named = os.environ.get("NNILITE_HOME")
    if named:
        return Path(named)
    home = find_home()
    if home is None:
        raise NniliteError(f"user {os.geteuid()} has no home folder: set HOME or NNILITE_HOME to a folder of your own")
    return home / "nni-experiments"


def is_id(text: object) -> bool:
    """Return whether a text may be an experiment's id, which names folders, files and jobs."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def find_path(experiment: str) -> Path:
    """Return the path of the file that makes an experiment known on this machine."""
    return _folder() / f"{experiment}.json"


def about(experiment: str, name: str, directory: Path, platform: str, started: float | None) -> dict[str, object]:
    """Return the content of the file that makes an experiment known on this machine."""
    return {"id": experiment, "name": name, "directory": str(directory), "platform": platform, "started": started}


def add(experiment: str, name: str, directory: Path, platform: str, started: float | None) -> None:
    """Make an experiment known on this machine."""
    make_own_folder(_folder(), 0o755)
    write_json(find_path(experiment), about(experiment, name, directory, platform, started))


def remove(experiment: str) -> None:
    """Forget an experiment; its folder stays."""
    find_path(experiment).unlink(missing_ok=True)


def is_registered(directory: Path) -> bool:
    """Return whether the registry has this folder, or is what has made it."""
    if directory.is_relative_to(_folder()):
        return True
    try:
        return read_document(find_path(directory.name), "").folder("directory") == directory
    except (FileNotFoundError, DamagedFile, UnreadableFile):
        return False


def entries() -> list[RegistryEntry]:
    """Return all known experiments, newest first. Those with damaged files have a `damage`. Raises: UnreadableFile."""
    known = [entry for path in list_documents(_folder()) if (entry := _read(path)) is not None]
    lie_there = {one.name: one for one in own_folders.listed(root(), {one.id for one in known if not one.damage})}
    known = [one for one in known if one.id not in lie_there or not is_gone(one)]
    names = {one.id for one in known}
    found = [_found(folder) for name, folder in lie_there.items() if is_id(name) and name not in names]
    return sorted([*known, *found], key=lambda entry: entry.started or 0.0, reverse=True)


def list_all() -> list[RegistryEntry]:
    """Return all experiments on this machine, newest first, including those of Microsoft NNI."""
    ours = entries()
    known = {one.id for one in ours}
    taken = {one.id: one for one in nni_folders.taken(_folder() / "nni")}
    listed = {one.id: one for one in nni_folders.listed(root()) if one.started is not None or one.id not in taken}
    left = {**taken, **listed}
    theirs = [make_nni_entry(one) for name, one in left.items() if is_id(name) and name not in known]
    return sorted([*ours, *theirs], key=lambda entry: entry.started or 0.0, reverse=True)


def make_nni_entry(origin: NniExperiment) -> RegistryEntry:
    """Return an entry for an experiment of Microsoft NNI, which is read-only."""
    directory = _folder() / "nni" / origin.id
    made = RegistryEntry(origin.id, origin.name, directory, origin.platform, origin.state, origin=origin)
    made = replace(made, started=origin.started, ended=origin.ended)
    if not is_alive(directory):
        return made
    manager = find_manager_state(directory)
    return replace(
        made, alive=True, state=manager.state or made.state, port=manager.port, url=manager.url, pid=manager.pid
    )


def at(folder: Path) -> RegistryEntry:
    """Return the experiment in this folder, of nnilite or of Microsoft NNI. A moved one of nnilite is registered again.

    Raises: NotFound, Conflict if another experiment has its id.
    """
    folder = folder.absolute()
    origin = nni_folders.at(folder)
    if origin is not None and is_id(origin.id):
        return make_nni_entry(origin)
    if not is_file(folder / "config.json") or not is_id(folder.name):
        raise NotFound(f"{folder} is not the folder of an experiment.")
    known = entry(folder.name)
    if known is None or (known.directory != folder and not is_folder(known.directory)):
        _forget_token(folder)
        name, platform = (known.name, known.platform) if known else own_folders.name_and_platform(folder)
        add(folder.name, name, folder, platform, known.started if known else find_manager_state(folder).created)
    elif known.directory != folder:
        raise Conflict(f"Experiment {folder.name} is in {known.directory}; only one of the two folders can be it.")
    return find(folder.name)


def _forget_token(folder: Path) -> None:
    """Remove the token in a folder that becomes known here: who had the folder before knows it."""
    try:
        if not is_alive(folder):
            (folder / "token").unlink(missing_ok=True)
    except OSError as error:
        raise NniliteError(
            f"{folder} cannot be opened, as its token may be known to others and cannot be removed ({error.strerror}); "
            "copy the folder, and open the copy"
        ) from error


def explain_no_resume(experiment: str) -> str:
    """Return the message for an attempt to change an experiment of Microsoft NNI."""
    return (
        f"Experiment {experiment} was made by Microsoft NNI and can only be read: `nnictl view {experiment}` opens it. "
        f"A new experiment learns from it by `searchFrom: [{experiment}]` in its configuration."
    )


def entry(experiment: str) -> RegistryEntry | None:
    """Return the experiment with exactly this id; None if it is not known here."""
    known, folder = _read(find_path(experiment)), root() / experiment
    if (known is None or is_gone(known)) and is_id(experiment) and own_folders.is_experiment(folder):
        return _found(folder)
    return known


def find(
    prefix: str | None, *, running_only: bool = False, damaged: bool = False, read_only: bool = False
) -> RegistryEntry:
    """Return the experiment whose id is `prefix` or begins with it; without one, the only running one.

    `damaged`: also one whose folder is unknown or gone; `read_only`: also one of Microsoft NNI that has no view open.
    Raises: NotFound, NniliteError, or Conflict if several match, or the only one is of NNI and to be changed.
    """
    all_of_them = list_all()
    known = [entry for entry in all_of_them if entry.alive or not (running_only or prefix is None)]
    if prefix is None:
        fitting = known
    else:
        # An empty text, such as a variable of a script that is not set, names none.
        fitting = [e for e in known if e.id == prefix] or [e for e in known if prefix and e.id.startswith(prefix)]
    if len(fitting) == 1:
        if fitting[0].origin is not None and not (read_only or fitting[0].alive):
            raise Conflict(explain_no_resume(fitting[0].id))
        return _check_usable(fitting[0], damaged)
    if fitting:
        listed = ", ".join(f"{e.id} ({e.state})" for e in fitting)
        raise Conflict(f"Several experiments match, please give an id: {listed}.")
    if prefix is None:
        latest = f" Give the id of one, such as {all_of_them[0].id}, the latest:" if all_of_them else ""
        raise NotFound(f"No experiment is running.{latest} `nnictl experiment list --all` shows all of them.")
    word = "running experiment" if running_only else "experiment"
    cure = _guess_meant(prefix, known) or "`nnictl experiment list --all` shows all of them."
    raise NotFound(f"There is no {word} {prefix!r}; {cure}")


def _guess_meant(given: str, known: list[RegistryEntry]) -> str:
    """Return which id is meant by a name, an address, a port, or an id in capitals; "" if that is not clear."""
    port = re.fullmatch(r"(?:https?://[^/:]+:)?(\d+)(?:/.*)?", given)
    word = given.casefold()
    meant = [
        entry
        for entry in known
        if word in (entry.id.casefold(), entry.name.casefold())
        or (port is not None and entry.alive and entry.port == int(port[1]))
        or (len(word) > 1 and entry.id.casefold().startswith(word))
    ]
    return f"did you mean {meant[0].id}?" if len(meant) == 1 else ""


def _check_usable(entry: RegistryEntry, damaged: bool) -> RegistryEntry:
    # If it cannot be read now, its folder is unknown, so it cannot be deleted either.
    if entry.damage and (not damaged or entry.state == UNREADABLE) and not entry.directory.is_dir():
        raise NniliteError(entry.damage)
    return entry


def make_folders(directory: Path) -> None:
    """Make the missing subfolders of an experiment's folder. Raises: NotFound if that is missing itself, OSError."""
    if not is_folder_there(directory):
        raise NotFound(f"{directory}, the experiment's folder, is gone (deleted, moved or not mounted).")
    log = directory / "log"
    if log.is_symlink():  # in a folder from another person, it leads to where files of these names are written over
        raise OSError(errno.ELOOP, "is a link; remove it", str(log))
    for name in FOLDERS:
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    make_trials_folder(str(directory / "trials"))
    for name, target in NNI_LOGS.items():
        _add_link(log / name, target)


def _add_link(place: Path, target: str) -> None:
    """Add NNI's name of a log, unless the file system has no links, as FAT and exFAT. Raises: OSError."""
    try:
        place.symlink_to(target)
    except OSError as error:
        if error.errno not in _HAS_LINK_OR_NONE:
            raise


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[ManagerLock]:
    """Hold the manager's lock of an experiment. Raises: Conflict if it is held, NniliteError if there are no locks."""
    held = ManagerLock(directory)
    try:
        held.acquire()
    except BlockingIOError:
        from nnilite._keeper.attempt_kill import describe_stop

        manager = find_manager_state(directory)
        stop = describe_stop(manager.pid)
        raise Conflict(
            f"experiment {directory.name} has a manager already (process {manager.pid}, {manager.url}); "
            f"stop it first with `nnictl stop {directory.name}`." + (f" It does not answer: {stop}." if stop else "")
        ) from None
    except OSError as error:
        elsewhere = "keep the experiment on a disk with locks (experimentWorkingDirectory)"
        raise NniliteError(explain_no_lock(directory, error, "managers", elsewhere)) from error
    try:
        yield held
    finally:
        held.release()


def is_alive(directory: Path) -> bool:
    """Return whether a manager holds the lock of the experiment. Raises: UnreadableFile if that is unknown now."""
    return locking.is_held(directory)


def explain_lost_manager(experiment: str) -> str:
    return f"its manager has died, and trials may still run; `nnictl resume {experiment}` continues it"


def as_json(entry: RegistryEntry) -> dict[str, Json]:
    """Return an experiment as it is listed for programs."""
    return {
        "id": entry.id,
        "name": entry.name,
        "state": entry.state,
        "alive": entry.alive,
        "url": entry.url,
        "port": entry.port,
        "pid": entry.pid,
        "platform": entry.platform,
        "started": entry.started,
        "ended": entry.ended,
        "directory": str((entry.origin or entry).directory),
        "madeBy": "nni" if entry.origin else "nnilite",
        "damage": entry.damage,
        "tags": list(entry.remarks.tags),
        "note": entry.remarks.note,
    }


def _folder() -> Path:
    return root() / ".nnilite"


def _read(path: Path) -> RegistryEntry | None:
    """Return the experiment of a registry file; None if the file has just been removed."""
    name = path.name.removesuffix(".json")  # Pythons differ in the stem of `...json`
    cure = f"`nnictl experiment delete {name}` forgets the experiment, and its folder stays"
    try:
        document = read_document(path, cure)
        if not is_id(name) or document.text("id") != name:
            raise document.wrong("id", f"the file's name, {name!r}")
        entry = RegistryEntry(
            id=name,
            name=document.text("name") or "",
            directory=document.folder("directory"),
            platform=document.text("platform") or "",
            started=document.time("started"),
        )
    except FileNotFoundError:
        return None
    except (DamagedFile, UnreadableFile) as error:
        return RegistryEntry(id=name, name="", directory=path, state=_state_of(error), damage=str(error))
    return _add_manager_state(entry)


def is_gone(entry: RegistryEntry) -> bool:
    """Return whether the folder is not where the registry says, or the registry no longer says where it is."""
    return entry.state == DAMAGED and not entry.directory.is_dir()


def _found(folder: Path) -> RegistryEntry:
    """Return the experiment in a folder that the registry does not have."""
    name, platform = own_folders.name_and_platform(folder)
    return _add_manager_state(
        RegistryEntry(folder.name, name, folder, platform, started=find_manager_state(folder).created)
    )


def _add_manager_state(entry: RegistryEntry) -> RegistryEntry:
    """Complete an entry with what the experiment's own folder says."""
    directory = entry.directory
    try:
        alive = is_alive(directory)
        is_gone = not alive and not is_folder(directory)
    except UnreadableFile as error:
        return replace(entry, state=UNREADABLE, damage=str(error))
    if is_gone:
        forgets = (
            f"`nnictl view {entry.id} -e FOLDER` opens it where it is now, and `nnictl experiment delete {entry.id}` "
            "forgets the experiment"
        )
        return replace(entry, state=DAMAGED, damage=f"{directory} is gone (deleted, moved or not mounted); {forgets}.")
    try:
        manager, is_search = read_manager(directory), search_folder.is_search(directory)
    except (DamagedFile, UnreadableFile) as error:
        return replace(entry, state=_state_of(error), alive=alive, damage=str(error))
    # Where a viewer was killed, the experiment is what it was before.
    last = manager.state if alive else manager.viewed or manager.state
    state = last if last and (alive or last in _FINAL) else ExperimentState.STOPPED.value
    if not alive and last in _WITH_TRIALS:
        state = UNKNOWN
    remarks = experiment_remarks.read(directory)
    named = replace(entry, name=remarks.name or entry.name, remarks=remarks)
    known = replace(named, state=state, ended=manager.ended, alive=alive)
    if is_search:
        known = replace(known, search=True)
        if not alive:
            return _add_search_state(known)
    return replace(known, port=manager.port, url=manager.url, pid=manager.pid) if alive else known


def _add_search_state(entry: RegistryEntry) -> RegistryEntry:
    try:
        state, ended = search_folder.read_state(entry.directory)
    except (DamagedFile, UnreadableFile) as error:
        return replace(entry, state=_state_of(error), damage=str(error))
    return replace(entry, state=state.value, ended=ended)


def _state_of(trouble: DamagedFile | UnreadableFile) -> str:
    return DAMAGED if isinstance(trouble, DamagedFile) else UNREADABLE
