"""Slots that experiments share, for services: the order of trials, and a folder in which experiments meet.

`reason_to_wait` is the rule, and pure. Higher priorities come first; within a priority, earlier requests. Trials never
overtake each other, even if there is room only for a later one: otherwise an experiment that allows few slots would
never find few enough of them taken.

`SlotAllocator` is one experiment's part in a folder that several managers, or their agents on a worker, can reach: a
file for each experiment, and a lock. The trial's own folder shows whether it holds a slot, so a slot of a dead manager
is free when its trial has ended. A claim counts only as long as it is renewed: that of a manager that was killed,
stopped or cut off delays no other, and has its old place again when the manager continues.

Thousands of trials may ask every second, so one that asks looks at the first claim of each experiment alone, which is
enough for the rule; files of others are read only when they have changed, and the own file is written when its first
claim changes, and otherwise a few times a second.

This module may be sent to workers: Python 3.8 and the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import json
import logging
import math
import os
import time
from pathlib import Path
from typing import Callable, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nnilite._keeper.attempt_files import write_private
from nnilite._keeper.plain_file import NotRegularFile, open_regular

__all__ = ["RENEWED_S", "STARTING_S", "Claim", "SlotAllocator", "SlotError", "SlotTerms", "reason_to_wait"]

log = logging.getLogger(__name__)

RENEWED_S = 15.0
"""How long a claim counts after it was made or renewed. Trials that wait ask about once a second."""
STARTING_S = 60.0
"""How long a slot is held for a trial whose folder does not show yet that it was begun."""

_FORGOTTEN_S = 86400.0
_LOCK_PAUSE_S = 0.02
_WRITTEN_S = 0.25  # renewed claims are written down this often: others need only the first one at once
_RARELY_S = RENEWED_S / 3  # a job that asks no more often than this is written down at once
_LOOKED_S = 0.25  # for this time a running trial is believed to keep running, where no slot depends on it
_RACY_S = 0.02  # a file that was written so shortly before may have been written again with the same times
_MOST_BYTES = 64 << 20
_LONGEST_PATH = 4096  # in bytes, of Linux
_GONE = (errno.ENOENT, errno.ENOTDIR)
_LOCKED = "waits for the manager of another experiment, which is about to take a slot"

Runs = Callable[[Path], Optional[bool]]
"""Whether the trial in a folder runs; None if it was not begun there."""


class SlotError(Exception):
    """The folder cannot be used; one sentence."""


class _Busy(Exception):
    """Another manager has had the lock for long."""


class SlotTerms(NamedTuple):
    """How an experiment takes part: `limit` counts slots, and higher numbers of `priority` are served first."""

    limit: Optional[int] = None  # how many trials may run at once, in all experiments that have a limit; None: no part
    priority: int = 0

    def changed(self, limit: Optional[int], priority: Optional[int]) -> "SlotTerms":
        """Return these terms, replaced where an argument is not None.

        >>> SlotTerms(4, 1).changed(None, 7)
        SlotTerms(limit=4, priority=7)
        """
        return SlotTerms(self.limit if limit is None else limit, self.priority if priority is None else priority)


class Claim(NamedTuple):
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
    """Return what the trial waits for; "" if it may start.

    `waiting`: the other claims. `holders`: the experiment of each slot that is taken. `where`: whose slots they are.

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


class _Line:
    """The claims of one experiment's file. Only the first one matters to others."""

    def __init__(self, times: Mapping[str, Tuple[float, float]]) -> None:
        self.times = dict(times)  # by job: when it asked first, and last
        self._line = [(since, job) for job, (since, _) in self.times.items()]
        heapq.heapify(self._line)
        self._placed = {job: since for since, job in self._line}  # by job: its entry there

    def ask(self, job: str, since: float, now: float) -> bool:
        """Renew a claim, or make it; whether the claim that others know is about to run out."""
        seen = self.times.get(job, (since, now))[1]
        self.times[job] = (since, now)
        if self._placed.get(job) != since:
            self._placed[job] = since
            heapq.heappush(self._line, (since, job))
        return abs(now - seen) > _RARELY_S

    def leave(self, job: str) -> bool:
        return self.times.pop(job, None) is not None

    def first(self, now: float) -> Optional[Tuple[float, str]]:
        """Return the first claim that counts now: since when it waits, and its job.

        Others count again when they ask again.
        """
        while self._line:
            since, job = self._line[0]
            first, seen = self.times.get(job, (math.nan, math.nan))
            if first == since and abs(now - seen) <= RENEWED_S:
                return since, job
            heapq.heappop(self._line)
            if self._placed.get(job) == since:
                del self._placed[job]
        return None


class _Part:
    """What one file says. Not a dataclass: importing those takes longer than defining the classes of this file."""

    def __init__(self, priority: int, held: Dict[str, Tuple[str, float]], line: _Line) -> None:
        self.priority = priority
        self.held = held  # by job: its folder, and since when
        self.line = line

    def first(self, experiment: str, now: float) -> List[Claim]:
        found = self.line.first(now)
        return [] if found is None else [Claim(found[1], experiment, self.priority, found[0])]


def _empty() -> _Part:
    return _Part(0, {}, _Line({}))


class _SlotFiles:
    """The files of others, each read when it has changed."""

    def __init__(self, own: Path) -> None:
        self._place, self._own = own.parent, own.name
        self._known: Dict[str, Tuple[Tuple[int, ...], bytes, _Part]] = {}
        self.changes = 0  # how often anything was different

    def parts(self) -> Dict[str, _Part]:
        """Return the parts by the names of their files. Raises: SlotError."""
        there: Dict[str, _Part] = {}
        for name in os.listdir(str(self._place)):
            if name.endswith(".json") and name != self._own:
                with contextlib.suppress(FileNotFoundError):  # its experiment has just left
                    there[name] = self._part(name)
        for name in set(self._known) - set(there):
            del self._known[name]
            self.changes += 1
        return there

    def _part(self, name: str) -> _Part:
        path = self._place / name
        try:
            facts = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        stamp = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._known.get(name)
        if known is not None and known[0] == stamp:
            return known[2]
        content = _content(path)
        part = _parsed(content, path) if known is None or known[1] != content else known[2]
        self.changes += known is None or part is not known[2]
        is_racy = abs(time.time() - facts.st_mtime) < _RACY_S
        self._known[name] = ((), content, part) if is_racy else (stamp, content, part)
        return part


class SlotAllocator:
    """One experiment's part in the slots of one folder. The methods block, and are for one thread at a time."""

    def __init__(self, file: Path, experiment: str, runs: Runs, patience_s: float = 2.0) -> None:
        """Take part. `file`: this service's own among others; its name begins with the experiment's id and a dot.

        `patience_s`: for how long the lock is tried.
        """
        self._file, self._place = file, file.parent
        self._experiment = experiment
        self._runs = runs
        self._patience_s = patience_s
        self._clock: Callable[[], float] = time.time
        self._own = _empty()  # with the latest priority
        self._others = _SlotFiles(file)
        self._asked: Dict[str, float] = {}  # by job: when it asked first
        self._loaded = False
        self._written: Tuple[float, List[Claim]] = (-math.inf, [])  # when the file was written, and its first claim
        self._taken: Tuple[float, int, List[str]] = (-math.inf, 0, [])  # time, `changes`, result of the count

    def book(self, job: str, directory: Path, terms: SlotTerms) -> str:
        """Take a slot for one more job, whose folder this is. Return "", or what it waits for. Raises: SlotError.

        A job that waits must ask again within RENEWED_S, or it counts as not waiting. Terms may change meanwhile.
        """
        if terms.limit is None:
            return ""
        self._own.priority = terms.priority
        try:
            with self._hold_lock():
                return self._book(job, directory, terms.limit)
        except _Busy:
            return _LOCKED

    def _book(self, job: str, directory: Path, limit: int) -> str:
        now = self._clock()
        self._load()
        # The last manager may have died when it was about to start this job.
        is_news = self._let_go(job)
        since = self._asked.setdefault(job, now)
        is_news |= self._own.line.ask(job, since, now)
        others = self._others.parts()
        mine = self._own.first(self._experiment, now)
        firsts = [claim for name, part in others.items() for claim in part.first(_find_experiment_of(name), now)] + mine
        claim = Claim(job, self._experiment, self._own.priority, since)
        # Who has to wait in any case needs the holders for the words alone.
        is_next = all(claim.place <= first.place for first in firsts)
        reason = reason_to_wait(claim, firsts, self._list_holders(now, others, 0.0 if is_next else _LOOKED_S), limit)
        if not reason:
            self._hold(job, str(directory), (since, now))
        elif is_news or mine != self._written[1] or self._is_overdue(now):
            self._save()
        return reason

    def _hold(self, job: str, directory: str, times: Tuple[float, float]) -> None:
        """Take the slot, which counts once it is written down. Raises: SlotError, and then the job still waits."""
        self._own.line.leave(job)
        self._own.held[job] = (directory, times[1])
        self._taken = (-math.inf, 0, [])
        try:
            self._save()
        except SlotError:
            self._let_go(job)
            self._own.line.ask(job, *times)
            raise

    def knows(self, job: str) -> bool:
        """Return whether the job holds a slot, waits for one, or has waited."""
        return job in self._asked or job in self._own.held

    def give_back(self, job: str) -> None:
        """Give back the slot of a job that cannot use it now. When the job asks again it has its old place."""
        if self._let_go(job):
            self._write()

    def free(self, job: str) -> None:
        """Free the slot of a job that has ended. Where that cannot be written down now, the job's folder shows it."""
        self._asked.pop(job, None)
        has_held, has_waited = self._let_go(job), self._own.line.leave(job)
        # Jobs that still wait write it down when they ask next, so that many that leave at once cost little.
        if has_held or (has_waited and (not self._own.line.times or self._is_overdue(self._clock()))):
            self._write()

    def leave(self) -> None:
        """Stop waiting, and remove the files of a folder that is no longer used. Running trials keep their slots."""
        if not self._place.is_dir():
            return
        with contextlib.suppress(_Busy, SlotError):  # all of it ends by itself, too
            with self._hold_lock():
                self._load()
                self._asked, self._own.line = {}, _Line({})
                self._save()
                if not list(self._place.glob("*.json")):
                    (self._place / "lock").unlink()
                    self._place.rmdir()

    def _let_go(self, job: str) -> bool:
        self._taken = (-math.inf, 0, []) if job in self._own.held else self._taken
        return self._own.held.pop(job, None) is not None

    def _is_overdue(self, now: float) -> bool:
        return abs(now - self._written[0]) >= _WRITTEN_S

    def _write(self) -> None:
        try:
            with self._hold_lock():
                self._save()
        except _Busy:
            log.warning("%s has been locked by another manager for a long time", self._place)
        except SlotError as error:
            log.warning("%s", error)

    def _list_holders(self, now: float, others: Mapping[str, _Part], most_age_s: float) -> List[str]:
        """Return the experiment of each slot that is taken, or was taken some time ago."""
        looked_at, changes, known = self._taken
        if changes == self._others.changes and abs(now - looked_at) < most_age_s:
            return known
        holders: List[str] = []
        for name, part in [*others.items(), (self._file.name, self._own)]:
            held = part.held.values()
            holders += [_find_experiment_of(name) for place, since in held if self._is_held(Path(place), now - since)]
        self._taken = (now, self._others.changes, holders)
        return holders

    def _is_held(self, directory: Path, age_s: float) -> bool:
        runs = self._runs(directory)
        return abs(age_s) <= STARTING_S if runs is None else runs

    def _load(self) -> None:
        """Take over what an earlier manager of this experiment has written, once. Raises: SlotError."""
        if self._loaded:
            return
        part = _empty()
        with contextlib.suppress(FileNotFoundError):
            part = _parsed(_content(self._file), self._file)
        self._loaded = True
        self._own.held = {**part.held, **self._own.held}
        self._own.line = _Line({**part.line.times, **self._own.line.times})
        self._asked = {**{job: since for job, (since, _) in part.line.times.items()}, **self._asked}

    def _save(self) -> None:
        now, own = self._clock(), self._own
        held = own.held.items()
        own.held = {job: (place, since) for job, (place, since) in held if self._is_held(Path(place), now - since)}
        # A trial that was canceled while it waited does not ask again.
        for job in [job for job, (_, seen) in own.line.times.items() if abs(now - seen) > _FORGOTTEN_S]:
            own.line.leave(job)
        try:
            if own.held or own.line.times:
                content = {"priority": own.priority, "held": own.held, "waiting": own.line.times}
                write_private(str(self._file), json.dumps(content))
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            raise SlotError(f"cannot write {self._file}: {error.strerror}") from error
        self._written = (now, own.first(self._experiment, now))

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock. Raises: _Busy if another manager has the lock for long, SlotError."""
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
                    raise SlotError(f"{self._place} is removed again and again") from None
                continue
            except OSError as error:
                raise SlotError(f"cannot use {self._place}: {error.strerror}") from error
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
    """Wait for the lock of an open file. Raises: _Busy, SlotError."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise _Busy from None
            time.sleep(_LOCK_PAUSE_S)
        except OSError as error:
            raise SlotError(f"cannot lock the slots of this machine: {error.strerror}") from error
        else:
            return


def _find_experiment_of(name: str) -> str:
    return name.partition(".")[0]


def _unreadable(file: Path, error: OSError) -> Exception:
    """Return FileNotFoundError, or the error to raise: what cannot be read now may hold slots."""
    if error.errno in _GONE:
        return FileNotFoundError(str(file))
    return SlotError(f"{file} cannot be read: {error.strerror}")


def _content(file: Path) -> bytes:
    """Return what is in a file; b"" for anything else. Raises: FileNotFoundError, SlotError."""
    try:
        with open_regular(str(file)) as opened:
            return opened.read(_MOST_BYTES)
    except NotRegularFile:
        return b""
    except OSError as error:
        raise _unreadable(file, error) from error


def _parsed(content: bytes, file: Path) -> _Part:
    """Return what an experiment has written. A broken file counts as empty; its experiment rewrites it."""
    try:
        document = json.loads(content)
        held = {str(job): (_path(place), _time(since)) for job, (place, since) in document["held"].items()}
        waiting = {str(job): (_time(since), _time(seen)) for job, (since, seen) in document["waiting"].items()}
        return _Part(int(document["priority"]), held, _Line(waiting))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        log.warning("ignored the damaged file %s: %s", file, error)
        return _empty()


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("{!r:.60} is not a time".format(value))
    return float(value)


def _path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or not 0 < len(os.fsencode(value)) < _LONGEST_PATH:
        raise ValueError("{!r:.60} is not a folder".format(value))
    return value


SlotDesk = SlotAllocator
"""The old name, which goes with version 0.2."""
SlotTrouble = SlotError
"""The old name, which goes with version 0.2."""
