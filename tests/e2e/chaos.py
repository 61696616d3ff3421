"""Everything that may happen to an experiment, at random moments, and what must hold all the same.

The trials keep books of their own, on a disk that is always well: a line before each report and one after it, in a
file for each attempt. The store must hold every report that returned, none that was never begun, and none twice; the
manager's copy of what they printed is a prefix of the truth; and no trial runs again whose keeper was not gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from e2e.running import wait_for
from nnilite._tuner_host import PROCESS_NAME
from nnilite.errors import NniliteError
from platforms.disk.disk import MAKE_FOLDER, OPEN, RENAME, SYNC, WRITE, Disk
from waiting import pause

METRICS = 60
PAUSE_S = 0.04
LINE = "line {:04d} " + "x" * 200 + "\n"
TRIAL = f"""
import os, pathlib, socket, sys, time, nnilite
def patiently(work, *arguments):
    while True:
        try:
            return work(*arguments)
        except OSError:  # what a trial makes of a disk in trouble is its own affair: this one waits
            time.sleep(0.05)
p = patiently(nnilite.get_next_parameter)
book = pathlib.Path(os.environ["BOOKS"], f"{{nnilite.get_trial_id()}}-{{os.environ['NNILITE_ATTEMPT']}}")
with book.open("a", buffering=1) as out:
    out.write(f"on {{socket.gethostname()}}\\n")
    for i in range({METRICS}):
        out.write(f"begin {{i}} {{time.monotonic()}}\\n")
        report = nnilite.report_final_result if i == {METRICS} - 1 else nnilite.report_intermediate_result
        patiently(report, p["x"] + i)
        out.write(f"done {{i}} {{time.monotonic()}}\\n")
        sys.stdout.write({LINE!r}.format(i))
        sys.stdout.flush()
        time.sleep({PAUSE_S})
    out.write("end\\n")
"""
PRINTED = "".join(LINE.format(number) for number in range(METRICS)).encode()
_RESUME_S = 90.0
_QUIET_S = (0.05, 0.5)  # between two faults

Key = tuple[str, int]
"""A trial and the number of its attempt."""


@dataclass
class Passing:
    """A trouble that lasts for a while. `end` tells whether anybody has noticed it."""

    name: str
    until: float
    end: Callable[[], bool]


@dataclass(frozen=True)
class Victim:
    """A running attempt, and where its keeper is: on this machine, or on a host."""

    key: Key
    pid: int
    machine: str  # "" for this machine


@dataclass
class Chaos:
    """Strikes one thing after the other. `worker`: the zones of a disk with the files of keepers and trials."""

    running: Any
    luck: random.Random
    disk: Disk
    long_stop_s: float  # longer than the experiment's workerSilence
    struck: Counter[str] = field(default_factory=Counter)
    gone: set[Key] = field(default_factory=set)  # attempts whose keeper was killed, perhaps after their end
    passing: list[Passing] = field(default_factory=list)
    _last_call: int = -1
    _long_stops: int = 0
    _stopped: bool = False  # the manager is
    _is_killed: bool = False  # the manager is, and not resumed yet

    def faults(self) -> dict[str, Callable[[], bool | None]]:
        """What may happen, by name. False: there was nothing to do it to."""
        return {
            "manager killed": self._kill_manager,
            "manager stopped": self._stop_manager,
            "keeper killed": self._kill_keeper,
            "keeper stopped": self._stop_keeper,
            "tuner killed": self._kill_tuner,
            "trial killed": self._kill_trial,
            "fork server killed": self._kill_fork_server,
            **self.disk_faults("manager's", self.disk, ("store", "manager")),
            **self.disk_faults("worker's", self.disk, ("worker",)),
        }

    def disk_faults(self, whose: str, disk: Disk, zones: tuple[str, ...]) -> dict[str, Callable[[], bool | None]]:
        def spoil(name: str, trouble: Callable[[str], None], longest_s: float) -> Callable[[], bool | None]:
            return lambda: self._spoil(f"{whose} disk {name}", disk, zones, trouble, longest_s)

        return {
            f"{whose} disk {name}": spoil(name, trouble, longest_s)
            for name, trouble, longest_s in (
                ("slow", lambda zone: self._be_slow(disk, zone), 4.0),
                ("stalled", lambda zone: self._stall(disk, zone), 4.0),
                ("full", lambda zone: disk.refuse(zone, WRITE, errno.ENOSPC, torn=True), 4.0),
                ("failing (EIO)", lambda zone: self._fail(disk, zone), 3.0),
                ("without files (EMFILE)", lambda zone: disk.refuse(zone, OPEN, errno.EMFILE, chance=0.7), 3.0),
            )
        }

    def play(self, faults: int) -> None:
        """Strike so often, then make all well. Every kind comes before any comes again."""
        try:
            self._play(faults)
        finally:
            for trouble in self.passing:
                trouble.end()
        self.check_manager()

    def _play(self, faults: int) -> None:
        bag: list[str] = []
        kinds = self.faults()
        while sum(self.struck.values()) < faults:
            pause(self.luck.uniform(*_QUIET_S), "between two faults the experiment goes on")
            self._end_passing()
            self.check_manager()
            bag = bag or self.luck.sample(sorted(kinds), len(kinds))
            name = bag.pop()
            if not any(trouble.name == name for trouble in self.passing):
                self._interrupt_one(name, kinds[name])
        while self.passing:
            self._end_passing()
            pause(0.05, "the last troubles pass by themselves")

    def _interrupt_one(self, name: str, fault: Callable[[], bool | None]) -> None:
        self._note(name)
        if fault() is None:
            self.struck[name] += 1

    def _note(self, what: str) -> None:
        """For who looks into a failure."""
        with (self.running.directory / "log" / "chaos.log").open("a") as diary:
            diary.write(f"{time.strftime('%H:%M:%S')} {what}\n")

    def check_manager(self) -> None:
        """Nothing but a kill ends it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(self.running.entry.pid).status() != psutil.STATUS_ZOMBIE:
                return
        log = (self.running.directory / "log" / "manager.log").read_text(errors="replace")
        raise AssertionError(f"the manager has ended by itself; its log ends with:\n{log[-4000:]}")

    def _pass(self, name: str, for_s: float, end: Callable[[], bool]) -> bool:
        """Let a trouble pass by itself; it is counted when it does."""
        self.passing.append(Passing(name, time.monotonic() + for_s, end))
        return False

    def _end_passing(self) -> None:
        # The end of one may wait for the manager, and others end meanwhile.
        while due := [trouble for trouble in self.passing if trouble.until < time.monotonic()]:
            trouble = due[0]
            self.passing.remove(trouble)
            self._note(f"end of {trouble.name}")
            self.struck[trouble.name] += trouble.end()
            self.struck += Counter()  # without the zeros

    # ------------------------------------------------------------ processes

    def _kill_manager(self) -> bool | None:
        if self._stopped or self._is_killed:  # a trouble that ends below may ask for a kill, too
            return False
        self._is_killed = True
        self.running.kill_manager()
        deadline = time.monotonic() + _RESUME_S
        while True:
            self._end_passing()
            try:
                self.running = self.running.resume()
                self._is_killed = False
                return None
            except NniliteError as error:  # it is right not to begin on a disk that is full
                if "its log" in str(error) or time.monotonic() > deadline:
                    raise
                pause(0.2, "the disk is given time to get well")

    def _stop_manager(self) -> bool | None:
        if self._stopped:
            return False
        seconds = self.luck.choice((0.5, 3.0))
        if self._long_stops <= self.struck["manager stopped"] // 4:
            self._long_stops += 1
            seconds = self.long_stop_s
        pid = self.running.entry.pid
        os.kill(pid, signal.SIGSTOP)
        self._stopped = True

        def go_on() -> bool:
            self._stopped = False
            os.kill(pid, signal.SIGCONT)
            return True

        return self._pass("manager stopped", seconds, go_on)

    def _kill_keeper(self) -> bool | None:
        victim = self._victim()
        if victim is None:
            return False
        self.gone.add(victim.key)
        self._note(f"{victim}")
        return self.signal(victim, signal.SIGKILL)

    def _stop_keeper(self) -> bool | None:
        victim = self._victim()
        if victim is None or self.signal(victim, signal.SIGSTOP) is False:
            return False

        def go_on() -> bool:
            self.signal(victim, signal.SIGCONT)
            return True

        return self._pass("keeper stopped", self.luck.choice((0.5, 2.0, 8.0)), go_on)

    def _kill_tuner(self) -> bool | None:
        """Killed three times on the same call it would be given up, rightly: there must be a new one."""
        [(call,)] = query(self.running.directory, "SELECT COALESCE(MAX(number), 0) FROM calls")
        if call == self._last_call or self._stopped:
            return False
        self._last_call = call
        return kill_one(self._children(lambda child: child.name() == PROCESS_NAME), self.luck)

    def _kill_fork_server(self) -> bool | None:
        return kill_one(self._children(lambda child: child.cmdline()[-1:] == ["serve"]), self.luck)

    def _kill_trial(self) -> bool | None:
        victim = self._victim("")
        with contextlib.suppress(psutil.NoSuchProcess):
            return kill_one([p.pid for p in psutil.Process(victim.pid).children()], self.luck) if victim else False
        return False

    def _children(self, wanted: Callable[[psutil.Process], bool]) -> list[int]:
        found = []
        for child in psutil.Process(self.running.entry.pid).children():
            with contextlib.suppress(psutil.Error):
                found += [child.pid] if wanted(child) else []
        return found

    def victims(self) -> list[Victim]:
        """The running attempts."""
        rows = query(
            self.running.directory,
            "SELECT t.id, a.number, a.handle FROM attempts a JOIN trials t ON t.sequence = a.trial "
            "WHERE a.handle IS NOT NULL AND a.state = 'RUNNING'",
        )
        found = []
        for trial, number, text in rows:
            handle = json.loads(text)
            handle = handle.get("handle", handle)
            if handle["pid"]:
                found.append(Victim((trial, number), handle["pid"], handle.get("machine", "")))
        return found

    def _victim(self, machine: str | None = None) -> Victim | None:
        found = [victim for victim in self.victims() if machine in (None, victim.machine)]
        return self.luck.choice(found) if found else None

    def signal(self, victim: Victim, number: int) -> bool | None:
        """Signal a keeper; False if it is gone."""
        try:
            os.kill(victim.pid, number)
        except ProcessLookupError:
            return False
        return None

    # ------------------------------------------------------------ disks

    def _spoil(
        self, name: str, disk: Disk, zones: tuple[str, ...], trouble: Callable[[str], None], longest_s: float
    ) -> bool | None:
        whose = name.partition(" disk ")[0]
        if any(passing.name.startswith(f"{whose} disk ") for passing in self.passing):
            return False
        before = noticed(disk, zones)
        for zone in zones:
            trouble(zone)

        def heal() -> bool:
            for zone in zones:
                disk.heal(zone)
            return noticed(disk, zones) > before

        return self._pass(name, self.luck.uniform(1.0, longest_s), heal)

    def _be_slow(self, disk: Disk, zone: str) -> None:
        """A hard disk, or a home on NFS: each call is held up, and counted."""
        disk.slow(zone, SYNC, stall_s=0.02, stall_chance=1.0)
        disk.slow(zone, WRITE, stall_s=0.01, stall_chance=1.0)
        disk.slow(zone, MAKE_FOLDER, stall_s=0.5, stall_chance=0.5)

    def _stall(self, disk: Disk, zone: str) -> None:
        for operation, chance in ((SYNC, 0.2), (WRITE, 0.05), (OPEN, 0.02)):
            disk.slow(zone, operation, stall_s=2.0, stall_chance=chance)

    def _fail(self, disk: Disk, zone: str) -> None:
        for operation in (WRITE, SYNC, RENAME, MAKE_FOLDER):
            disk.refuse(zone, operation, errno.EIO, chance=0.3, torn=operation == WRITE)


def noticed(disk: Disk, zones: tuple[str, ...]) -> int:
    """How many calls have met with trouble."""
    found = [disk.counted(zone, operation) for zone in zones for operation in range(7)]
    return sum(one.failed + one.stalled for one in found)


def kill_one(pids: list[int], luck: random.Random) -> bool | None:
    with contextlib.suppress(ProcessLookupError):
        if pids:
            os.kill(luck.choice(pids), signal.SIGKILL)
            return None
    return False


def query(directory: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(directory / "nnilite.sqlite", timeout=10)) as db:
        return db.execute(sql).fetchall()


# ---------------------------------------------------------------- what must hold


def books(folder: Path) -> dict[Key, list[str]]:
    found = {}
    for path in folder.iterdir():
        trial, attempt = path.name.split("-")
        found[trial, int(attempt)] = path.read_text().split("\n")
    return found


def stored_reports(directory: Path) -> dict[Key, list[int]]:
    """The numbers of the reports in the store, in their order, by trial and attempt."""
    rows = query(
        directory,
        "SELECT t.id, m.attempt, m.value, t.parameters FROM metrics m JOIN trials t ON t.sequence = m.trial "
        "ORDER BY m.idx",
    )
    stored: dict[Key, list[int]] = {}
    for trial, attempt, value, parameters in rows:
        stored.setdefault((trial, attempt), []).append(round(json.loads(value) - json.loads(parameters)["x"]))
    return stored


def check_metrics(directory: Path, kept: dict[Key, list[str]]) -> str:
    """Compare the store with the books; what was found, in words."""
    stored = stored_reports(directory)
    assert not set(stored) - set(kept), "the store has attempts that never ran"
    lost, doubled = [], []
    for key, lines in kept.items():
        begun = [int(line.split()[1]) for line in lines if line.startswith("begin")]
        done = [int(line.split()[1]) for line in lines if line.startswith("done")]
        found = stored.get(key, [])
        lost += [(key, number) for number in sorted(set(done) - set(found))]
        doubled += [(key, number) for number, times in Counter(found).items() if times > 1]
        assert set(found) <= set(begun), f"attempt {key}: {found} stored, {begun} begun"
        assert found == sorted(found), f"attempt {key} is stored out of order: {found}"
    assert (lost, doubled) == ([], []), f"lost {len(lost)}, doubled {len(doubled)}: {lost[:20]} {doubled[:20]}"
    return f"{sum(map(len, stored.values()))} metrics checked, lost 0, doubled 0"


def check_ends(directory: Path, kept: dict[Key, list[str]], trials_killed: int) -> None:
    """A trial ended well if its book says so, but for one that was killed between its last line and its end."""
    late = 0
    for trial, attempt, state, reason in query(directory, "SELECT id, attempt, state, reason FROM trials"):
        finished = "end" in kept.get((trial, attempt), [])
        assert state in ("SUCCEEDED", "FAILED")
        if finished and state == "FAILED" and reason.startswith("killed by SIGKILL"):
            late += 1
        else:
            assert (state == "SUCCEEDED") == finished, f"{trial}: {state} ({reason}), but its own book says {finished}"
    assert late <= trials_killed, f"{late} trials were killed after their work, but only {trials_killed} kills struck"


def check_output(directory: Path, gone: set[Key]) -> int:
    """What the manager shows of the trials' output is the truth, without holes, and all of it of those that ended
    well; how many bytes that is. The output that a keeper had still to deliver may go with it.
    """
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: not cut_off(directory) - gone, 60.0)
    cut = cut_off(directory) - gone
    assert not cut, f"of {sorted(cut)}, whose keepers lived, a part of the output has not come"
    size = 0
    for path in (directory / "trials").glob("*/*/trial.stdout"):
        printed = path.read_bytes()
        size += len(printed)
        assert PRINTED.startswith(printed), f"{path} is not what was printed: {printed[-300:]!r}"
    return size


def cut_off(directory: Path) -> set[Key]:
    """The attempts that ended well of whose output something is not here."""
    found = set()
    for trial, attempt in query(directory, "SELECT id, attempt FROM trials WHERE state = 'SUCCEEDED'"):
        path = directory / "trials" / trial / str(attempt) / "trial.stdout"
        if not path.exists() or path.stat().st_size < len(PRINTED):
            found.add((trial, attempt))
    return found


def check_attempts(directory: Path, gone: set[Key], ran: set[Key]) -> str:
    """Nothing ran again but where a keeper was really gone; in words. `ran`: attempts whose command has started."""
    rows = query(
        directory,
        "SELECT t.id, a.number, a.state, a.message FROM attempts a JOIN trials t ON t.sequence = a.trial "
        "WHERE a.number < t.attempt OR a.state = 'LOST'",
    )
    again = [row for row in rows if (row[0], row[1]) in ran]
    wrong = [row for row in again if (row[0], row[1]) not in gone]
    assert not wrong, f"run again, though their keepers lived: {wrong}"
    return f"{len(again)} attempts run again, all of them after their keeper was gone"


def check_times(kept: dict[Key, list[str]]) -> None:
    """No attempt of a trial did anything after a later one had begun. All hosts are of one machine, with one clock."""
    worked = {
        key: [float(line.split()[2]) for line in lines if line.startswith(("begin", "done")) and len(line.split()) == 3]
        for key, lines in kept.items()
    }
    for (trial, attempt), times in worked.items():
        later = [
            min(others) for (other, number), others in worked.items() if other == trial and number > attempt and others
        ]
        assert not (times and later and max(times) > min(later)), f"two attempts of {trial} ran at once"


def check(chaos: Chaos, folder: Path) -> str:
    """All of these; the report in words."""
    directory, kept = chaos.running.directory, books(folder)
    twice = [key for key, lines in kept.items() if sum(line.startswith("on ") for line in lines) > 1]
    assert not twice, f"these attempts ran more than once: {twice}"
    check_times(kept)
    metrics = check_metrics(directory, kept)
    kills = sum(number for what, number in chaos.struck.items() if what.endswith(("trial killed", "trials killed")))
    check_ends(directory, kept, kills)
    printed = check_output(directory, chaos.gone)
    again = check_attempts(directory, chaos.gone, set(kept))
    [(trials, well)] = query(directory, "SELECT COUNT(*), SUM(state = 'SUCCEEDED') FROM trials")
    assert well > trials / 4, f"only {well} of {trials} trials came to an end that shows something"
    kinds = ", ".join(f"{what} {number}" for what, number in sorted(chaos.struck.items()))
    return (
        f"{sum(chaos.struck.values())} faults survived ({kinds}), {trials} trials, {well} of them with a result, "
        f"{metrics}, {printed / 1e6:.1f} MB of output without a hole, {again}, none ran twice"
    )
