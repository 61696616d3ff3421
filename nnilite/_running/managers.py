"""The running managers of this machine, seen from outside: connect to one, stop one, wait for its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnilite._experiments import registry, search_folder
from nnilite._experiments.manager_state import find_manager_state, read_manager
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import ManagerError, Unreachable
from nnilite.errors import Conflict, DamagedFile, NniliteError, ServiceError, UnreadableFile
from nnilite.records import ExperimentState

ANSWER_TIMEOUT_S = 20.0
END_TIMEOUT_S = 90.0
"""How long a manager may take to end: its trials and its tuner end first."""

_POLL_S = 0.02
_ASK_EVERY_S = 3.0
_KILLED_S = 10.0  # how long the system may take to remove a killed process
_REMOVED_S = 1.0  # ... and how long it usually takes at most
_LAST_WORD_S = 3.0
_STOPPED_TIMEOUT_S = 2.0  # a manager may be stopped for an instant only, as by a debugger


class NotRunning(Conflict, RuntimeError):
    """The experiment has no running manager that could be asked."""


def connect(entry: RegistryEntry, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Client:
    """Return a client of the experiment's manager.

    Raises: NotRunning; NniliteError if the files with its address are bad.
    """
    if entry.alive and entry.damage:
        raise NniliteError(entry.damage)
    if entry.search and not entry.alive:
        raise NotRunning(search_folder.explain_no_resume_of_search(entry.id, entry.directory))
    if entry.alive and entry.url is None:
        raise NotRunning(f"The manager of experiment {entry.id} is starting; try again in a moment.")
    if not entry.alive or entry.url is None:
        raise NotRunning(f"Experiment {entry.id} is not running; `nnictl resume {entry.id}` resumes it.")
    token, certificate = launch.token(entry), _certificate(entry)
    users = _list_users(entry.directory)
    if entry.stop:
        timeout_s = min(timeout_s, _STOPPED_TIMEOUT_S)
    return Client(entry.url, token, timeout_s=timeout_s, certificate=certificate, process=entry.pid, users=users)


def _list_users(directory: Path) -> set[int]:
    """Return the users whose program an experiment's manager may be: this one, and the one who has its folder."""
    users = {os.geteuid()}
    with contextlib.suppress(OSError):
        users.add(directory.stat().st_uid)
    return users


def _certificate(entry: RegistryEntry) -> Path | None:
    path = read_manager(entry.directory).tls_cert
    return Path(path) if path else None


def find_page_address(entry: RegistryEntry) -> str:
    """Return the address at which this user opens the web page. If a token is needed, it has a key that signs in once.

    A user who has logged in from another machine opens it there, through a forwarded port, and so needs the key. It is
    only shown to people, so if the manager does not answer, it is the plain address.
    """
    try:
        with connect(entry) as manager, Client(manager.url, certificate=_certificate(entry)) as unknown:
            if is_remote_shell():
                return manager.sign_in_link()
            try:
                unknown.version()
            except ManagerError:  # this user has to sign in first
                return manager.sign_in_link()
            return manager.url
    except NniliteError:
        return entry.url or ""


def is_remote_shell() -> bool:
    """Return whether this program was started from a login by SSH."""
    return "SSH_CONNECTION" in os.environ


@contextlib.contextmanager
def starting(experiment: str) -> Iterator[None]:
    """Start an experiment in the block. What a signal handler raises there, such as a time limit, leaves none running.

    It may come when the manager runs already, and the block does not know of it yet.
    """
    others = _find_running(experiment)
    try:
        yield
    except NniliteError:  # it has not begun: if one runs now, another program has begun it
        raise
    except BaseException:
        begun = _find_running(experiment)
        if begun is not None and others is None:
            stop(begun)
        raise


def _find_running(experiment: str) -> RegistryEntry | None:
    found = registry.entry(experiment) if registry.is_id(experiment) else None
    return found if found is not None and found.alive else None


def stop(entry: RegistryEntry) -> None:
    """Stop an experiment and wait until its manager has ended. Raises: NniliteError if it does not."""
    ask_to_stop(entry)
    wait_until_ended(entry)


def left_behind(entry: RegistryEntry) -> str:
    """Return a sentence on what a platform could not end or remove at the stop, with a cure; "" if there is nothing."""
    return find_manager_state(entry.directory).left


def is_view(entry: RegistryEntry) -> bool:
    """Return whether the experiment's manager only shows it."""
    return find_manager_state(entry.directory).mode == "view"


def ask_to_stop(entry: RegistryEntry) -> None:
    """Ask the manager to end its trials and then itself; by a signal if it does not answer.

    Raises: ServiceError if it cannot do so now.
    """
    if entry.stop:
        _terminate(entry)
        return
    try:
        with connect(entry) as manager:
            manager.stop()
    except NotRunning:
        # A manager that has just been started has not reported yet where it listens.
        _terminate(entry)
    except ServiceError as error:
        raise ServiceError(f"{str(error).rstrip('.')}. {_force(entry)}") from error
    # The manager of a view refuses to stop, and a damaged token opens nothing: a signal still works.
    except (Unreachable, Conflict, DamagedFile, UnreadableFile):
        _terminate(entry)


def _terminate(entry: RegistryEntry) -> None:
    """Send SIGTERM, which a stopped process obeys once it continues.

    The process id that the last manager wrote down may be that of any process by now.
    """
    process = _process(entry) if registry.is_alive(entry.directory) else None
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
            os.kill(process, signal.SIGCONT)


def was_stopped(entry: RegistryEntry) -> bool:
    """Return whether the manager's last record says that the experiment is stopped; else the manager has died."""
    return find_manager_state(entry.directory).state == ExperimentState.STOPPED.value


def explain_silence(entry: RegistryEntry, error: NniliteError) -> NniliteError:
    """Return what to tell of a manager that was there and does not answer any more, which is that error."""
    log = entry.directory / "log" / "manager.log"
    now = time.monotonic()
    deadline = now + _REMOVED_S
    while registry.is_alive(entry.directory):
        if now > deadline:
            return NniliteError(f"{error} {log} may show why; `nnictl resume {entry.id}` resumes it.")
        time.sleep(_POLL_S)
        now = time.monotonic()
    return NniliteError(f"Experiment {entry.id}: {registry.explain_lost_manager(entry.id)}. {log} may show why.")


def wait_until_ended(entry: RegistryEntry, timeout_s: float = END_TIMEOUT_S) -> None:
    """Wait for the manager's end. Raises: NniliteError after `timeout_s`, or if the manager cannot end now."""
    began = now = time.monotonic()
    ask = began + _ASK_EVERY_S
    # The clock is read before each look: this process may be stopped, as by Ctrl-Z, and the manager end meanwhile.
    while registry.is_alive(entry.directory):
        if now > ask:
            ask = now + _ASK_EVERY_S
            _check_not_paused(entry)
        if now > began + timeout_s:
            raise NniliteError(
                f"The manager of experiment {entry.id} (process {entry.pid}) has not ended within {timeout_s:g} s; "
                f"{_find_hindrance(entry)}. {_force(entry)}"
            )
        time.sleep(_POLL_S)
        now = time.monotonic()


def kill(entry: RegistryEntry) -> None:
    """Kill the manager at once. Its trials continue, and a resume finds them.

    Raises: NniliteError if its process does not exist, or does not end.
    """
    if not entry.alive:
        return
    process = _process(entry)
    if process is None:
        raise NniliteError(f"The manager of experiment {entry.id} is not a process of yours on this machine.")
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    now = time.monotonic()
    deadline = now + _KILLED_S
    while registry.is_alive(entry.directory):
        if now > deadline:
            raise NniliteError(
                f"The manager of experiment {entry.id} (process {process}) is killed and still there: its disk may hang"
            )
        time.sleep(_POLL_S)
        now = time.monotonic()


def _process(entry: RegistryEntry) -> int | None:
    """Return the manager's process, found by its open files: on a full disk it may not have recorded its id."""
    import psutil

    folder = os.path.realpath(entry.directory)
    # Some of them may have been deleted.
    files = {f"{folder}/{name}" for name in ("lock", "log/manager.log", "nnilite.sqlite")}
    opened: dict[int, int] = {}
    for process in psutil.process_iter(["cmdline", "uids"]):
        command, uids = process.info["cmdline"] or [], process.info["uids"]
        if uids is not None and os.geteuid() in (0, uids.real) and _may_be_manager(command):
            with contextlib.suppress(psutil.Error):
                opened[process.pid] = len(files & {file.path for file in process.open_files()})
    # Another manager or command may have one of them open, but only for a moment.
    most = max(opened, key=lambda pid: opened[pid], default=None)
    return most if most is not None and opened[most] else None


def _may_be_manager(command: Sequence[str]) -> bool:
    """Return whether this is the command line of a manager, or of `nnictl`, whose copy it may be."""
    return not {"nnilite._manager", "nnilite._cli", "nnictl"}.isdisjoint(map(os.path.basename, command))


def _check_not_paused(entry: RegistryEntry) -> None:
    """Check that nothing, such as a full disk, keeps the manager from ending.

    Raises: NniliteError with its own reason.
    """
    word = _word(entry)
    if word.startswith("paused"):
        raise NniliteError(f"it cannot end now: {word}. {_force(entry)}")


def _force(entry: RegistryEntry) -> str:
    return f"`nnictl stop --force {entry.id}` ends its manager at once and leaves its trials as they are."


def _find_hindrance(entry: RegistryEntry) -> str:
    """Return what keeps a manager from ending: its own reason, or else where to look for one."""
    word = _word(entry)
    return f"it says: {word}" if word else f"{entry.directory / 'log' / 'manager.log'} may show why"


def _word(entry: RegistryEntry) -> str:
    """Return the reason that the manager reports for its state; "" if there is none, or no answer."""
    try:
        with connect(entry, timeout_s=_LAST_WORD_S) as manager:
            return str(manager.profile()["reason"])
    except NniliteError:
        return ""
