"""The slots of this machine, which the experiments in one folder share: a file for each experiment, and a lock.

Who holds a slot is told by the trial's own folder, so a slot of a dead manager is free when its trial has ended. A
claim counts only as long as it is renewed: that of a manager that was killed or stopped holds nobody up, and has its
old place again when the manager goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nnilite.errors import NoCapacity, ServiceError
from nnilite.worker_side import write_private
from nnilite_local._queue import Claim, reason_to_wait

log = logging.getLogger(__name__)

# Trials that wait ask about once a second.
RENEWED_S = 15.0
# So long a slot is held for a trial whose folder does not tell yet that it was begun.
STARTING_S = 60.0
_FORGOTTEN_S = 86400.0
_LOCK_PATIENCE_S = 2.0
_LOCK_PAUSE_S = 0.02

Runs = Callable[[Path], "bool | None"]
"""Whether the trial in a folder runs; None if it was not begun there."""


class SlotDesk:
    """One experiment's part. Without a limit it takes no part. The methods block."""

    def __init__(self, file: Path, experiment: str, priority: int, limit: int | None, runs: Runs) -> None:
        """`file`: this service's own, whose name begins with the experiment's id and a dot, beside those of others."""
        self._file, self._place = file, file.parent
        self._experiment, self._priority, self._limit = experiment, priority, limit
        self._runs = runs
        self._clock: Callable[[], float] = time.time
        self._held: dict[str, tuple[str, float]] = {}  # by job: its folder, and since when
        self._waiting: dict[str, tuple[float, float]] = {}  # by job: when it asked first, and last
        self._asked: dict[str, float] = {}  # by job: when it asked first
        self._loaded = False

    @property
    def is_limited(self) -> bool:
        """Whether this experiment takes part."""
        return self._limit is not None

    def take(self, job: str, directory: Path) -> None:
        """A slot for one more job. Raises: NoCapacity that says whom it waits for, ServiceError."""
        if self._limit is None:
            return
        with self._locked():
            now = self._clock()
            self._load(_read(self._file))
            # The last manager may have died when it was about to start this job.
            self._held.pop(job, None)
            since = self._asked.setdefault(job, now)
            self._waiting[job] = (since, now)
            holders, waiting = self._known(now)
            mine = Claim(job, self._experiment, self._priority, since)
            reason = reason_to_wait(mine, waiting, holders, self._limit)
            if not reason:
                del self._waiting[job]
                self._held[job] = (str(directory), now)
            self._save()
        if reason:
            raise NoCapacity(reason)

    def give_back(self, job: str) -> None:
        """The job cannot use its slot now, if it has one. When it asks again it has its old place."""
        if self._held.pop(job, None) is not None:
            self._write()

    def free(self, job: str) -> None:
        """The job needs no slot any more. Where that cannot be written down now, its folder tells it."""
        self._asked.pop(job, None)
        known = [self._held.pop(job, None), self._waiting.pop(job, None)]
        if any(known):
            self._write()

    def _write(self) -> None:
        try:
            with self._locked():
                self._save()
        except (NoCapacity, ServiceError) as error:
            log.warning("%s", error)

    def _known(self, now: float) -> tuple[list[str], list[Claim]]:
        """The experiment of each slot that is taken, and who waits."""
        all_known = {file.name: _read(file) for file in self._place.glob("*.json")}
        all_known[self._file.name] = self._content()
        holders: list[str] = []
        claims: list[Claim] = []
        for name, found in all_known.items():
            experiment = name.partition(".")[0]
            held = found["held"].values()
            holders += [experiment for place, since in held if self._is_held(Path(place), now - since)]
            claims += [
                Claim(job, experiment, found["priority"], since)
                for job, (since, seen) in found["waiting"].items()
                if abs(now - seen) <= RENEWED_S
            ]
        return holders, claims

    def _is_held(self, directory: Path, age_s: float) -> bool:
        runs = self._runs(directory)
        return abs(age_s) <= STARTING_S if runs is None else runs

    def _load(self, found: dict[str, Any]) -> None:
        """Take over what an earlier manager of this experiment has written, once."""
        if not self._loaded:
            self._loaded = True
            self._held = {**found["held"], **self._held}
            self._waiting = {**found["waiting"], **self._waiting}
            self._asked = {**{job: since for job, (since, _) in found["waiting"].items()}, **self._asked}

    def _content(self) -> dict[str, Any]:
        return {"priority": self._priority, "held": self._held, "waiting": self._waiting}

    def _save(self) -> None:
        now = self._clock()
        held = self._held.items()
        self._held = {job: (place, since) for job, (place, since) in held if self._is_held(Path(place), now - since)}
        # A trial that was canceled while it waited does not ask again.
        self._waiting = {job: times for job, times in self._waiting.items() if abs(now - times[1]) <= _FORGOTTEN_S}
        try:
            if self._held or self._waiting:
                write_private(str(self._file), json.dumps(self._content()))
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(f"{self._file} cannot be written: {error.strerror}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Raises: NoCapacity if another manager has the lock for long, ServiceError."""
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be used: {error.strerror}") from error
        try:
            _lock(lock)
            yield
        finally:
            os.close(lock)


def _lock(descriptor: int) -> None:
    end = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise NoCapacity("waits for the manager of another experiment, which is about to take a slot") from None
            time.sleep(_LOCK_PAUSE_S)
        except OSError as error:
            raise ServiceError(f"the slots of this machine cannot be locked: {error.strerror}") from error
        else:
            return


def _read(file: Path) -> dict[str, Any]:
    """What an experiment has written. A file that is broken counts as empty, which its experiment writes anew."""
    try:
        found = json.loads(file.read_bytes())
        held = {str(job): (str(place), float(since)) for job, (place, since) in found["held"].items()}
        waiting = {str(job): (float(since), float(seen)) for job, (since, seen) in found["waiting"].items()}
        return {"priority": int(found["priority"]), "held": held, "waiting": waiting}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.warning("%s is broken and left out: %s", file, error)
    return {"priority": 0, "held": {}, "waiting": {}}
