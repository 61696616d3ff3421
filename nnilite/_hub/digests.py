"""Summaries of experiments' trials for the list of experiments: counts, best result, time.

One thread asks the managers that run, another one reads the folders of the stopped experiments, where each takes some
hundredths of a second. So the list itself never waits. A stopped experiment is read again only if its files change.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from nnilite._experiments.nni_folders import DATABASE
from nnilite._experiments.registry import RegistryEntry
from nnilite._running.reading import checking_answers, opened
from nnilite._store.database_file import FILE_NAME
from nnilite.errors import NniliteError
from nnilite.records import Json

LIVE_S = 2.0
"""How old the answer of a manager may be before it is asked again."""

AGAIN_S = 30.0
"""After what time a folder that could not be read is read again."""

# One thread asks all managers, so one that hangs must not delay the others for long.
ANSWER_S = 5.0

_PARAMETERS_BYTES = 4000
_REASON_CHARACTERS = 4000

Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Digest:
    """A summary of one experiment. `trouble`: why it could not be read; then the rest is empty."""

    counts: Mapping[str, int] = field(default_factory=dict)  # trials by state
    max_trials: int | None = None
    best: Json = None  # the value of the best trial, as it was reported
    parameters: Json = None  # the best trial's, unless they are long
    objectives: Mapping[str, str] = field(default_factory=dict)
    duration_s: float = 0.0
    reason: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class _Known:
    digest: Digest
    stamp: Stamp
    read: float  # time of the monotonic clock

    def is_old(self, entry: RegistryEntry) -> bool:
        """Return whether there may be something else to read by now.

        A disk that has failed for a moment leaves no trace in the files.
        """
        is_retried = self.digest.trouble != "" and time.monotonic() > self.read + AGAIN_S
        return is_retried or self.stamp != _stamp(entry)


class Digests:
    """The digests of all experiments that were asked for. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self.reading = threading.Lock()  # held while the folder of a stopped experiment is open
        self._folders = ThreadPoolExecutor(1, "digests")
        self._managers = _ManagerAsker(self._read)
        self._known: dict[str, _Known] = {}
        self._asked: set[str] = set()

    def read_known(self, entries: Iterable[RegistryEntry]) -> dict[str, Digest]:
        """Return what is known now, by id. What is missing or old is read in the background."""
        entries = list(entries)
        found = {}
        for entry in entries:
            known = self._known.get(entry.id)
            if known is not None:
                found[entry.id] = known.digest
            if (known is None or known.is_old(entry)) and entry.id not in self._asked:
                self._read_later(entry)
        for gone in set(self._known) - {entry.id for entry in entries}:
            self._known.pop(gone, None)
        return found

    def _read_later(self, entry: RegistryEntry) -> None:
        self._asked.add(entry.id)
        try:
            if entry.alive:
                self._managers.put(entry)
            else:
                self._folders.submit(self._read, entry)
        except RuntimeError:
            # The hub is being closed, or no thread can be started now: what is known is shown, and it is tried again.
            self._asked.discard(entry.id)

    def close(self) -> None:
        """Stop reading. A folder that is being read is waited for; a manager's answer is not, as it may hang."""
        self._managers.close()
        self._folders.shutdown(wait=True, cancel_futures=True)

    def _read(self, entry: RegistryEntry) -> None:
        stamp = _stamp(entry)
        try:
            if entry.alive:
                digest = _digest(entry)
            else:
                with self.reading:
                    digest = _digest(entry)
            self._known[entry.id] = _Known(digest, stamp, time.monotonic())
        finally:
            self._asked.discard(entry.id)


class _ManagerAsker:
    """Asks one manager after the other in a thread that does not hold up the end of the program."""

    def __init__(self, ask: Callable[[RegistryEntry], None]) -> None:
        self._ask = ask
        self._waiting: queue.SimpleQueue[RegistryEntry | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, entry: RegistryEntry) -> None:
        """Queue a manager to be asked. Raises: RuntimeError after `close`, or if no thread can be started now."""
        if self._closed:
            raise RuntimeError("no manager is asked any more")
        if self._thread is None or not self._thread.is_alive():  # also after an error has ended it
            thread = threading.Thread(target=self._work, name="digests of managers", daemon=True)
            thread.start()
            self._thread = thread
        self._waiting.put(entry)

    def close(self) -> None:
        """Ask no further one."""
        self._closed = True
        self._waiting.put(None)

    def _work(self) -> None:
        while (entry := self._waiting.get()) is not None and not self._closed:
            self._ask(entry)


def _digest(entry: RegistryEntry) -> Digest:
    try:
        with opened(entry, timeout_s=ANSWER_S) as client, checking_answers(entry):
            return summary(client.profile())
    except (NniliteError, OSError) as error:
        return Digest(trouble=str(error))


def summary(profile: Mapping[str, Any]) -> Digest:
    """Return the digest of a profile, as a manager answers it. Raises: LookupError, TypeError, ValueError, ..."""
    best = profile.get("best")
    most = profile["limits"]["maxTrialNumber"]
    return Digest(
        counts={str(state): int(count) for state, count in profile["counts"].items()},
        max_trials=None if most is None else int(most),
        best=None if best is None else _kept(best["value"]),
        parameters=None if best is None else _kept(best["parameters"]),
        objectives={str(name): str(goal) for name, goal in profile["objectives"].items()},
        duration_s=float(profile["duration"]),
        reason=str(profile["reason"])[:_REASON_CHARACTERS],
    )


def _kept(part: Json) -> Json:
    """Return parameters or a value, if short enough for a list of many experiments that is sent again and again."""
    return part if len(json.dumps(part)) <= _PARAMETERS_BYTES else None


def _stamp(entry: RegistryEntry) -> Stamp:
    """Return a stamp that changes when there may be something new to read."""
    if entry.alive:
        return (entry.pid, time.monotonic() // LIVE_S)
    origin = entry.origin
    database = origin.directory / DATABASE if origin else entry.directory / FILE_NAME
    files = (database, database.with_name(f"{database.name}-wal"))
    return (entry.state, *map(_changed, files))


def _changed(path: Any) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    # A file that replaces another one may have the same time and size, but not the same inode.
    return (status.st_mtime_ns, status.st_size, status.st_ino)
