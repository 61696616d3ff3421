"""The running managers of this machine, seen from outside: speak to one, stop one, wait for its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from nnilite import _launch, _registry
from nnilite._client import Client, Unreachable
from nnilite._registry import Entry
from nnilite.errors import Conflict, NniliteError
from nnilite.records import ExperimentState

ANSWER_TIMEOUT_S = 20.0
END_TIMEOUT_S = 90.0
"""How long a manager may take to end: it lets trials end and the tuner say good-bye first."""

_POLL_S = 0.02
_LAST_WORD_S = 3.0


class NotRunning(Conflict, RuntimeError):
    """The experiment has no running manager that could be asked."""


def connect(entry: Entry, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Client:
    """A client of the experiment's manager. Raises: NotRunning."""
    if not entry.alive or entry.url is None:
        raise NotRunning(f"Experiment {entry.id} is not running; `nnictl resume {entry.id}` lets it go on.")
    certificate = _registry.read_manager(entry.directory).get("tls_cert")
    return Client(
        entry.url,
        _launch.token(entry),
        timeout_s=timeout_s,
        certificate=Path(certificate) if certificate else None,
    )


def stop(entry: Entry) -> None:
    """Stop an experiment and wait until its manager has ended. Raises: NniliteError if it does not."""
    ask_to_stop(entry)
    wait_until_ended(entry)


def left_behind(entry: Entry) -> str:
    """What a platform could not end or remove at the stop, and what to do about it; "" if there is nothing."""
    return str(_registry.read_manager(entry.directory).get("left") or "")


def ask_to_stop(entry: Entry) -> None:
    """Ask the manager to end its trials and then itself; by a signal if it does not answer."""
    try:
        with connect(entry) as manager:
            manager.stop()
    except NotRunning:
        return
    except (Unreachable, Conflict):  # the manager of a view takes no such wish
        _terminate(entry)


def _terminate(entry: Entry) -> None:
    """The process id is only believed while the manager's lock is held: later it could be another's."""
    about = _registry.read_manager(entry.directory)
    if _registry.is_alive(entry.directory) and isinstance(about.get("pid"), int):
        with contextlib.suppress(ProcessLookupError):
            os.kill(about["pid"], signal.SIGTERM)


def was_stopped(entry: Entry) -> bool:
    """Whether the manager said, as its last word, that the experiment is stopped: else it has died."""
    return bool(_registry.read_manager(entry.directory).get("state") == ExperimentState.STOPPED.value)


def wait_until_ended(entry: Entry, timeout_s: float = END_TIMEOUT_S) -> None:
    """Raises: NniliteError if the manager is still there after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while _registry.is_alive(entry.directory):
        if time.monotonic() > deadline:
            raise NniliteError(
                f"The manager of experiment {entry.id} (process {entry.pid}) has not ended within {timeout_s:g} s; "
                f"{_hindrance(entry)}."
            )
        time.sleep(_POLL_S)


def _hindrance(entry: Entry) -> str:
    """What keeps a manager from ending: its own word, such as that the disk is full, or else where to look."""
    try:
        with connect(entry, timeout_s=_LAST_WORD_S) as manager:
            said = str(manager.profile()["reason"])
    except NniliteError:
        said = ""
    return f"it says: {said}" if said else f"{entry.directory / 'log' / 'manager.log'} may tell why"
