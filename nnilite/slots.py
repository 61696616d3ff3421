"""Slots that experiments share, for services: who is next, whom one waits for, and a folder in which experiments meet.

`reason_to_wait` is the rule, and pure. Higher priorities first; within a priority, who asked first. Nobody passes
somebody who is ahead, even if there is room only for the one behind: otherwise an experiment that allows few slots
would never find so few of them taken.

`SlotDesk` is one experiment's part in a folder that several managers, or their agents on a worker, can reach: a file
for each experiment, and a lock. Who holds a slot is told by the trial's own folder, so a slot of a dead manager is free
when its trial has ended. A claim counts only as long as it is renewed: that of a manager that was killed, stopped or
cut off holds nobody up, and has its old place again when the manager goes on.

This module may be sent to workers: Python 3.8 and the standard library alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Sequence, Tuple

from nnilite._keeper.attempt_files import write_private

__all__ = ["RENEWED_S", "STARTING_S", "Claim", "SlotDesk", "SlotTerms", "SlotTrouble", "reason_to_wait"]

log = logging.getLogger(__name__)

RENEWED_S = 15.0
"""So long a claim counts after it was made or renewed. Trials that wait ask about once a second."""
STARTING_S = 60.0
"""So long a slot is held for a trial whose folder does not tell yet that it was begun."""

_FORGOTTEN_S = 86400.0
_LOCK_PAUSE_S = 0.02
_LOCKED = "waits for the manager of another experiment, which is about to take a slot"

Runs = Callable[[Path], Optional[bool]]
"""Whether the trial in a folder runs; None if it was not begun there."""


class SlotTrouble(Exception):
    """The folder cannot be used; one sentence."""


class _Busy(Exception):
    """Another manager has had the lock for long."""


@dataclass(frozen=True)
class SlotTerms:
    """How an experiment takes part: in slots, and in whole numbers of which higher ones are served first."""

    limit: Optional[int] = None  # how many trials may run at once, in all experiments that have a limit; None: no part
    priority: int = 0

    def changed(self, limit: Optional[int], priority: Optional[int]) -> "SlotTerms":
        """These terms, but for what is not None.

        >>> SlotTerms(4, 1).changed(None, 7)
        SlotTerms(limit=4, priority=7)
        """
        return SlotTerms(self.limit if limit is None else limit, self.priority if priority is None else priority)


@dataclass(frozen=True)
class Claim:
    """A trial that waits for a slot."""

    job: str
    experiment: str
    priority: int
    since: float  # when it asked for the first time, in seconds since the epoch

    @property
    def place(self) -> Tuple[int, float, str]:
        """Lower places are served first."""
        return (-self.priority, self.since, self.job)


def reason_to_wait(
    mine: Claim, waiting: Collection[Claim], holders: Sequence[str], limit: int, where: str = "this machine"
) -> str:
    """Whom the trial waits for; "" if it may start.

    `waiting`: who else waits. `holders`: the experiment of each slot that is taken. `where`: whose slots they are.

    >>> reason_to_wait(Claim("b", "B", 0, 2.0), [Claim("a", "A", 0, 1.0)], ["A"], 2)
    'waits for experiment A, which asked before'
    """
    ahead = sorted((claim for claim in waiting if claim.place < mine.place), key=lambda claim: claim.place)
    others = [claim for claim in ahead if claim.experiment != mine.experiment]
    if others and others[0].priority > mine.priority:
        return f"waits for experiment {others[0].experiment}, whose priority {others[0].priority} is higher"
    if others:
        return f"waits for experiment {others[0].experiment}, which asked before"
    if len(holders) >= limit:
        who = ", ".join(sorted(set(holders)))
        return f"waits for a slot of {where}: {len(holders)} of {limit} (maxSlots) are taken, by {who}"
    return "waits for an earlier trial of its experiment" if ahead else ""


class SlotDesk:
    """One experiment's part in the slots of one folder. The methods block, and are for one thread at a time."""

    def __init__(self, file: Path, experiment: str, runs: Runs, patience_s: float = 2.0) -> None:
        """`file`: this service's own, whose name begins with the experiment's id and a dot, beside those of others.

        `patience_s`: for how long the lock is tried.
        """
        self._file, self._place = file, file.parent
        self._experiment = experiment
        self._priority = 0  # the latest
        self._runs = runs
        self._patience_s = patience_s
        self._clock: Callable[[], float] = time.time
        self._held: Dict[str, Tuple[str, float]] = {}  # by job: its folder, and since when
        self._waiting: Dict[str, Tuple[float, float]] = {}  # by job: when it asked first, and last
        self._asked: Dict[str, float] = {}  # by job: when it asked first
        self._loaded = False

    def take(self, job: str, directory: Path, terms: SlotTerms) -> str:
        """A slot for one more job, whose folder this is: "", or whom it waits for. Raises: SlotTrouble.

        A job that waits must ask again within RENEWED_S, or it counts as not waiting. Terms may change meanwhile.
        """
        if terms.limit is None:
            return ""
        self._priority = terms.priority
        try:
            with self._locked():
                return self._take(job, directory, terms.limit)
        except _Busy:
            return _LOCKED

    def _take(self, job: str, directory: Path, limit: int) -> str:
        now = self._clock()
        self._load()
        # The last manager may have died when it was about to start this job.
        self._held.pop(job, None)
        since = self._asked.setdefault(job, now)
        self._waiting[job] = (since, now)
        holders, waiting = self._known(now)
        reason = reason_to_wait(Claim(job, self._experiment, self._priority, since), waiting, holders, limit)
        if not reason:
            del self._waiting[job]
            self._held[job] = (str(directory), now)
        self._save()
        return reason

    def knows(self, job: str) -> bool:
        """Whether the job holds a slot, waits for one, or has waited."""
        return job in self._asked or job in self._held

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

    def leave(self) -> None:
        """Nothing waits any more. What is left of a folder that nobody uses goes. Trials that run keep their slots."""
        if not self._place.is_dir():
            return
        with contextlib.suppress(_Busy, SlotTrouble):  # all of it ends by itself, too
            with self._locked():
                self._load()
                self._asked, self._waiting = {}, {}
                self._save()
                if not list(self._place.glob("*.json")):
                    (self._place / "lock").unlink()
                    self._place.rmdir()

    def _write(self) -> None:
        try:
            with self._locked():
                self._save()
        except _Busy:
            log.warning("%s is locked by another manager for long", self._place)
        except SlotTrouble as error:
            log.warning("%s", error)

    def _known(self, now: float) -> Tuple[List[str], List[Claim]]:
        """The experiment of each slot that is taken, and who waits."""
        all_known = {file.name: _read(file) for file in self._place.glob("*.json")}
        all_known[self._file.name] = self._content()
        holders: List[str] = []
        claims: List[Claim] = []
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

    def _load(self) -> None:
        """Take over what an earlier manager of this experiment has written, once."""
        if not self._loaded:
            self._loaded = True
            found = _read(self._file)
            self._held = {**found["held"], **self._held}
            self._waiting = {**found["waiting"], **self._waiting}
            self._asked = {**{job: since for job, (since, _) in found["waiting"].items()}, **self._asked}

    def _content(self) -> Dict[str, Any]:
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
            elif self._file.exists():
                self._file.unlink()
        except OSError as error:
            raise SlotTrouble(f"{self._file} cannot be written: {error.strerror}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Raises: _Busy if another manager has the lock for long, SlotTrouble."""
        lock = self._take_lock()
        try:
            yield
        finally:
            os.close(lock)

    def _take_lock(self) -> int:
        path, end = self._place / "lock", time.monotonic() + self._patience_s
        while True:
            try:
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the last one has left, and has taken the folder away between these lines
                if time.monotonic() > end:
                    raise SlotTrouble(f"{self._place} is removed again and again") from None
                continue
            except OSError as error:
                raise SlotTrouble(f"{self._place} cannot be used: {error.strerror}") from error
            try:
                _lock(lock, end)
            except BaseException:
                os.close(lock)
                raise
            if _is_at(lock, path):
                return lock
            os.close(lock)  # it was removed between these lines, so its lock protects nothing


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, end: float) -> None:
    """Wait for the lock of an open file. Raises: _Busy, SlotTrouble."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise _Busy from None
            time.sleep(_LOCK_PAUSE_S)
        except OSError as error:
            raise SlotTrouble(f"the slots of this machine cannot be locked: {error.strerror}") from error
        else:
            return


def _read(file: Path) -> Dict[str, Any]:
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
