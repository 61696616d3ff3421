"""The experiments of this machine: one small file each, and what their managers wrote last.

`~/nni-experiments/.nnilite/<id>.json` says where an experiment is kept, whatever its working directory;
`<experiment>/manager.json`, written by the manager alone, says how to reach it and its state. A manager is alive while
it holds the lock on `<experiment>/lock`: unlike a process id, a lock cannot be mistaken for another's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nnilite.errors import Conflict, NotFound
from nnilite.records import ExperimentState

_LOCK_TRIES = 10
_LOCK_PAUSE_S = 0.05
_FINAL = {state.value for state in (ExperimentState.STOPPED, ExperimentState.DONE, ExperimentState.ERROR)}


@dataclass(frozen=True)
class Entry:
    """One experiment, as far as it can be known without asking its manager."""

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


def root() -> Path:
    """Where experiments are kept unless the config says otherwise. NNILITE_HOME overrides it."""
    return Path(os.environ.get("NNILITE_HOME") or Path.home() / "nni-experiments")


def add(experiment: str, name: str, directory: Path, platform: str, started: float) -> None:
    """Make an experiment known on this machine."""
    about = {"id": experiment, "name": name, "directory": str(directory), "platform": platform, "started": started}
    write_json(_folder() / f"{experiment}.json", about)


def remove(experiment: str) -> None:
    """Forget an experiment; its folder stays."""
    (_folder() / f"{experiment}.json").unlink(missing_ok=True)


def entries() -> list[Entry]:
    """All known experiments, newest first. Files that cannot be read are passed over: they are not all lost."""
    found = [entry for path in _folder().glob("*.json") if (entry := _read(path)) is not None]
    return sorted(found, key=lambda entry: entry.started or 0.0, reverse=True)


def find(prefix: str | None, *, running_only: bool = False) -> Entry:
    """The experiment whose id is `prefix` or begins with it; without one, the only running experiment.

    Raises: NotFound, or Conflict if several fit.
    """
    known = [entry for entry in entries() if entry.alive or not (running_only or prefix is None)]
    if prefix is None:
        fitting = known
    else:
        fitting = [e for e in known if e.id == prefix] or [e for e in known if e.id.startswith(prefix)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(f"{e.id} ({e.state})" for e in fitting)
        raise Conflict(f"Several experiments fit, please give an id: {listed}.")
    if prefix is None:
        raise NotFound("There is no experiment running; `nnictl experiment list --all` shows all of them.")
    word = "running experiment" if running_only else "experiment"
    raise NotFound(f"There is no {word} {prefix!r}; `nnictl experiment list --all` shows all of them.")


def read_manager(directory: Path) -> dict[str, Any]:
    """What the manager of the experiment wrote last, {} if nothing."""
    try:
        about = json.loads((directory / "manager.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def write_json(path: Path, value: Any, mode: int = 0o600) -> None:
    """Replace a file in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
    temporary.replace(path)


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Be the only manager of an experiment. Raises: Conflict if there is one already."""
    with (directory / "lock").open("a") as file:
        try:
            _take(file)
        except BlockingIOError:
            about = read_manager(directory)
            raise Conflict(
                f"experiment {directory.name} has a manager already (process {about.get('pid')}, "
                f"{about.get('url')}); stop it first with `nnictl stop {directory.name}`."
            ) from None
        yield


def _take(file: IO[str]) -> None:
    """`is_alive` of another process may hold the lock for an instant: that is no manager."""
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_PAUSE_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_alive(directory: Path) -> bool:
    """Whether a manager holds the lock of the experiment."""
    try:
        with (directory / "lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _folder() -> Path:
    return root() / ".nnilite"


def _read(path: Path) -> Entry | None:
    try:
        known = json.loads(path.read_text("utf-8"))
        directory = Path(known["directory"])
        known_id = str(known["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    about, alive = read_manager(directory), is_alive(directory)
    state = str(about.get("state", "STOPPED"))
    return Entry(
        id=known_id,
        name=str(known.get("name", "")),
        directory=directory,
        platform=str(known.get("platform", "")),
        state=state if alive or state in _FINAL else ExperimentState.STOPPED.value,
        port=about.get("port") if alive else None,
        url=about.get("url") if alive else None,
        pid=about.get("pid") if alive else None,
        started=known.get("started"),
        ended=about.get("ended"),
        alive=alive,
    )
