"""The folder of a search, in which its processes share what they have done.

It is the folder of an experiment, with its config and database, so all that reads experiments reads it. The processes
take turns: in its turn a process first learns what the others have written, then decides, and writes all that follows
in one transaction. So whatever ends a process, what was reported to it is stored, exactly once. A trial belongs to the
process that began its latest attempt; when that has gone, the next one that asks for a trial gets this one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import socket
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnilite._engine import messages
from nnilite._experiments import own_folders, registry, search_folder
from nnilite._experiments.documents import is_file, is_folder, write_json
from nnilite._experiments.home_folder import explain_home
from nnilite._experiments.locking import describe_holder
from nnilite._experiments.new_folders import make_own_folder
from nnilite._experiments.search_folder import Presence
from nnilite._running import launch
from nnilite._search.plan import Plan
from nnilite._store import shared
from nnilite._store.database_file import FILE_NAME
from nnilite._store.settings_of_config import is_maximizing, make_settings
from nnilite._store.shared import SharedChanges, SharedCursor, SharedStore
from nnilite.config import CheckedConfig, load_stored, stored
from nnilite.errors import ConfigError, Conflict, NniliteError, StoreError, explain_os_error
from nnilite.records import (
    Attempt,
    CallKind,
    ExperimentState,
    JobState,
    Json,
    Metric,
    MetricKind,
    Trial,
    TrialState,
)
from nnilite.tuner import Call
from nnilite.units.path_rules import expand_home

log = logging.getLogger(__name__)

TURN_TIMEOUT_S = 600.0
"""How long a process waits for its turn: the tuner of another one may think for long."""

_POLL_S = 0.005
_TELL_S = 20.0
_LOCK = "search.lock"
_ENDS = {
    TrialState.SUCCEEDED: JobState.SUCCEEDED,
    TrialState.FAILED: JobState.FAILED,
}
_LEFT: list[sqlite3.Connection] = []  # connections of the parents of forked processes, which must not be closed


class Journal:
    """The folder of one search, as one process uses it. `plan` has the tuner and the seed of all processes."""

    def __init__(self, folder: str | Path, plan: Plan) -> None:
        storage = self.folder = _read_storage(folder)
        self._forget()
        self._seen = SharedCursor()
        try:
            make_own_folder(self.folder, 0o755)
            with self._keep_others_out():
                self.folder = _find_home(storage)
                self._forget()
                if not is_file(self.folder / "config.json"):
                    _make(self.folder, storage, plan.choose_tuner().try_out())
                _check_kind(self.folder)
                self.config = load_stored(self.folder, paths=False)
                self.plan = plan.agreed(self.config, self.folder)
                if not is_file(self.folder / FILE_NAME):
                    shared.create(self.folder / FILE_NAME, self.folder.name, time.time())
                registry.at(self.folder)
                self._use().check()
        except OSError as error:
            raise NniliteError(f"{self.folder} cannot keep a search: {self._explain(error)}") from error
        _ALL.add(self)

    def _explain(self, error: OSError) -> str:
        cause = explain_os_error(error).removeprefix(f"{self.folder}: ")
        # The list of experiments may be what cannot be written.
        home = explain_home(Path(error.filename)) if isinstance(error.filename, str) else ""
        return f"{cause} {home[:1].upper()}{home[1:]}." if home else cause

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()
        _ALL.add(self)

    def _forget(self) -> None:
        """Start afresh with what belongs to one process alone."""
        self._store: SharedStore | None = None
        self._presence = Presence(self.folder)
        self._mine: set[str] = set()  # the trials that this process has begun and not ended
        self._runs = 0
        self._turns: dict[int, weakref.ref[_Lock]] = {}  # by thread: others wait while one has its turn

    def leave_to_parent(self) -> None:
        """Let go, in a forked process, of what belongs to its parent."""
        if self._store is not None and (connection := self._store.file.release()) is not None:
            _LEFT.append(connection)
        self._presence.forget()
        for turn in self._turns.values():
            if (lock := turn()) is not None:
                lock.leave_to_parent()
        self._forget()

    def end_with_program(self) -> None:
        """Close the database, unless a daemon thread is using it. Who goes on opens it again."""
        store, self._store = self._store, None
        locks = [lock for turn in list(self._turns.values()) if (lock := turn()) is not None]
        if store is not None and not any(lock.is_held for lock in locks):
            store.close()

    # ------------------------------------------------------------ turns

    @contextlib.contextmanager
    def turn(self) -> Iterator[SharedChanges]:
        """Take the turn of this process; yield what others have written since its last one. Raises: StoreError."""
        with self._keep_others_out():
            store = self._use()
            now = store.cursor()
            news = store.after(self._seen) if now != self._seen else SharedChanges([], [], [])
            self._seen = now
            self._mine -= {trial.id for trial in news.trials if trial.state.ended}
            try:
                yield news
            except BaseException:
                # A signal may have ended this turn at any line, so the next turn reads again what this one has written.
                self._seen = SharedCursor(now.revision, self._seen.call, now.metric)
                raise
            self._look_busy()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Show the search as running, until the block's end; then it is done, unless others still work at it.

        What others have written stays unseen: the next turn yields it to the search, which has to learn it.
        """
        self._runs += 1
        whole = False
        try:
            with self._keep_others_out():
                self._look_busy()
                self._say(ExperimentState.RUNNING, None)
            yield
            whole = True
        finally:
            self._runs -= 1
            if whole:
                with self._keep_others_out():
                    if not (self._runs or self._use().running()):
                        self._say(ExperimentState.DONE, time.time())
            self._look_busy()

    def begin(self, trial: Trial) -> None:
        """Write a trial of the tuner that begins now."""
        call = Call(CallKind.GENERATE, trial.parameter_id, trial.id, trial.parameters)
        self._write([messages.SaveTrial(trial), messages.SaveAttempt(self._attempt(trial)), self._call(1, call)], trial)

    def abandoned(self) -> Trial | None:
        """Return the first trial whose process has gone before it ended the trial."""
        for trial, attempt in self._use().running():
            owner = (attempt.handle or {}).get("process")
            if not (trial.id in self._mine or self._presence.is_given_by(owner)):
                return trial
        return None

    def begin_again(self, trial: Trial) -> Trial:
        """Take over an abandoned trial: its next attempt begins now."""
        again = replace(trial, attempt=trial.attempt + 1, started=time.time(), state=TrialState.RUNNING, reason="")
        lost = replace(self._stored(trial), state=JobState.LOST, ended=again.started, message="its process has ended")
        self._write(
            [messages.SaveAttempt(lost), messages.SaveTrial(again), messages.SaveAttempt(self._attempt(again))], again
        )
        return again

    def report(self, trial: Trial, index: int, value: Json) -> None:
        """Write an intermediate result, the `index`th of its attempt."""
        kind = MetricKind.PERIODICAL
        self._write([messages.SaveMetric(Metric(trial.id, trial.attempt, index, kind, index, value, time.time()))])

    def end(self, trial: Trial, reports: int, calls: Sequence[Call]) -> None:
        """Write the end of a trial, its final result and the calls of the tuner about it."""
        records: list[messages.Record] = []
        now = trial.ended or time.time()
        if trial.value is not None:
            metric = Metric(trial.id, trial.attempt, reports, MetricKind.FINAL, 0, trial.value, now)
            records.append(messages.SaveMetric(metric))
        state = _ENDS.get(trial.state, JobState.CANCELED)
        attempt = replace(self._stored(trial), state=state, ended=now, message=trial.reason)
        records += [messages.SaveTrial(trial), messages.SaveAttempt(attempt)]
        records += [self._call(number, call) for number, call in enumerate(calls, 1)]
        self._write(records)
        self._mine.discard(trial.id)

    def find_next_numbers(self) -> tuple[int, int]:
        """Return the next trial's sequence and parameter id."""
        return self._use().resume_reader.find_next_numbers()

    # ------------------------------------------------------------ parts

    def _write(self, records: list[messages.Record], mine: Trial | None = None) -> None:
        try:
            if mine is not None:
                self._mine.add(mine.id)
                self._look_busy()
            self._use().write(records)
        except StoreError:
            if mine is not None:
                self._mine.discard(mine.id)
            raise
        self._seen = self._use().cursor()

    def _call(self, further: int, call: Call) -> messages.SaveCall:
        return messages.SaveCall(self._seen.call + further, call)

    def _attempt(self, trial: Trial) -> Attempt:
        handle = {"process": self._presence.token, "pid": os.getpid()}
        return Attempt(
            trial.id,
            trial.attempt,
            handle=handle,
            state=JobState.RUNNING,
            started=trial.started,
            host=socket.gethostname(),
        )

    def _stored(self, trial: Trial) -> Attempt:
        found = self._use().resume_reader.attempt(trial.id, trial.attempt)
        return self._attempt(trial) if found is None else found[1]

    def _say(self, state: ExperimentState, ended: float | None) -> None:
        settings = make_settings(self.config, is_maximizing(self.config.json().get("tuner") or {}))
        duration_s = self._use().resume_reader.busy_s()
        self._use().write([messages.SaveExperiment(state, "", duration_s, ended, settings)])
        with self._translated():
            search_folder.write_state(self.folder, state, ended)

    def _look_busy(self) -> None:
        with self._translated():
            if self._runs or self._mine:
                self._presence.give()
            else:
                self._presence.take_back()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of the files next to the database into StoreError, as its own are."""
        try:
            yield
        except FileNotFoundError:
            raise StoreError(f"{self.folder}, the folder of the search, is gone (deleted or moved).") from None
        except OSError as error:
            # A handler of signals may raise TimeoutError, which is one, too, but not from the system.
            if error.errno is None:
                raise
            raise StoreError(f"{self.folder} cannot keep a search: {explain_os_error(error)}", busy=True) from error

    def _use(self) -> SharedStore:
        store = self._store
        if store is None:
            self._store = store = SharedStore.open(self.folder / FILE_NAME)
            # Programs need not close a search that they no longer use.
            weakref.finalize(self, store.close).atexit = False
        return store

    @contextlib.contextmanager
    def _keep_others_out(self) -> Iterator[None]:
        """Keep all other processes of the search out. Raises: StoreError, Conflict."""
        thread = threading.get_ident()
        before = self._turns[thread]() if thread in self._turns else None
        if before is not None and before.is_of_this_thread():
            raise Conflict(
                f"the search in {self.folder} is at work: a signal handler that interrupts it cannot ask, report or "
                "tell. Let it set a flag, and the function report what it finds."
            )
        with self._translated():
            lock = _Lock(self.folder / _LOCK)
        self._turns[thread] = weakref.ref(lock)
        try:
            with self._translated():
                lock.take()
            yield
        finally:
            lock.release()


class _Lock:
    """Keeps other processes out. If a signal interrupts `release`, it goes with the last reference to the file."""

    def __init__(self, path: Path) -> None:
        # A folder of another person may have a link here, and this would make a file where that leads.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._path = path
        self._owner = os.getpid(), threading.get_ident()
        self.is_held = True
        self._file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)

    def is_of_this_thread(self) -> bool:
        return self.is_held and self._owner == (os.getpid(), threading.get_ident())

    def take(self) -> None:
        """Wait for the lock. Raises: StoreError, OSError."""
        began, has_logged = time.monotonic(), False
        while True:
            waited_s = time.monotonic() - began  # before the attempt: this process may be stopped, as by Ctrl-Z
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = self._file.fileno()
                if waited_s > TURN_TIMEOUT_S:
                    raise StoreError(
                        f"{describe_holder(holder)} has kept {self._path} locked for {TURN_TIMEOUT_S:.0f} s; end it.",
                        busy=True,
                    ) from None
                if waited_s > _TELL_S and not has_logged:
                    has_logged = True
                    place = self._path.parent
                    log.warning("waiting for %s, which is using the search in %s", describe_holder(holder), place)
                time.sleep(_POLL_S)
            else:
                return

    def release(self) -> None:
        if self._owner[0] == os.getpid() and not self._file.closed:
            # A forked process may have this file open, too. Else closing it lets go as well.
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()
        self.is_held = False

    def leave_to_parent(self) -> None:
        """Let go of the file in a forked process, which would keep it locked if its parent is killed."""
        self._file.close()


_OWN = ("_store", "_presence", "_mine", "_runs", "_turns")
_ALL: weakref.WeakSet[Journal] = weakref.WeakSet()


def _leave_after_fork() -> None:
    for journal in _ALL:
        journal.leave_to_parent()


os.register_at_fork(after_in_child=_leave_after_fork)


def _end_with_program() -> None:
    for journal in list(_ALL):
        journal.end_with_program()


atexit.register(_end_with_program)


def _read_storage(folder: str | Path) -> Path:
    """Return the absolute path of the folder that the user has named. Raises: ConfigError if that cannot be one."""
    if not str(folder).strip():
        raise ConfigError("storage: an empty text names no folder; give the path of one, such as 'searches/first'")
    if "://" in str(folder):
        raise ConfigError(
            f"storage: {folder} is a URL; give the path of a folder, such as 'searches/first'. "
            "For Optuna's studies, see the page 'Come from Optuna' of the documentation"
        )
    expanded = expand_home(folder)
    if str(expanded).startswith("~"):
        raise ConfigError(f"storage: {str(folder)!r} is in the home folder of a user who does not exist here")
    return expanded.absolute()


def _find_home(storage: Path) -> Path:
    """Return the folder of the search in this storage, whose name is the search's id.

    It is the storage itself. If its name cannot be an id, or is that of another experiment, it is a folder in there.
    That one has the storage's name; any other search in there, such as `first` in `searches`, has a storage of its own.
    """
    if is_file(storage / "config.json"):
        return storage
    for path in sorted(storage.iterdir()):
        if search_folder.is_search(path) and own_folders.name_and_platform(path)[0] == storage.name != path.name:
            return path
    known = registry.entry(storage.name) if registry.is_id(storage.name) else None
    is_taken = known is not None and known.directory != storage and is_folder(known.directory)
    return storage / launch.new_id() if is_taken or not registry.is_id(storage.name) else storage


def _make(folder: Path, storage: Path, plan: Plan) -> None:
    """Make the folder of a new search; its config comes last. Raises: ConfigError, Conflict, OSError."""
    own = {_LOCK, search_folder.PROCESSES, *registry.FOLDERS, folder.name}
    strange = sorted({path.name for path in storage.iterdir()} - own)
    if strange:
        raise Conflict(f"{storage} has other files ({strange[0]}) and no search; give a new or an empty folder.")
    make_own_folder(folder)
    config: CheckedConfig = plan.config(folder, storage.name)
    folder.chmod(0o700)
    registry.make_folders(folder)
    (folder / search_folder.PROCESSES).mkdir(mode=0o700, exist_ok=True)
    platform = ",".join(dict.fromkeys(platform for _, platform, _ in config.services))
    write_json(folder / "config.json", stored(config))
    registry.add(folder.name, config.experiment_name or "", folder, platform, time.time())


def _check_kind(folder: Path) -> None:
    if not search_folder.is_search(folder):
        raise Conflict(
            f"{folder} contains an experiment that has a manager, which a Search cannot continue; give another folder."
        )
