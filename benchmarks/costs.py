"""What trials cost: processor time of each process of an experiment, and files of ended trials.

Wall time on a loaded machine hides what is spent, so processor time (user and system) is what counts here.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from nnilite._tuner_host import PROCESS_NAME

_QUIET_S = 60.0
# Runs a command, becomes the parent of processes whose own parent has ended first, and waits for all of them.
_WAIT_FOR_ALL = """
import ctypes, os, resource, subprocess, sys, time
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Spent:
    """Seconds of processor time of each process; `keepers` have those of the trials, too."""

    manager: float
    tuner: float
    fork_server: float
    keepers: float

    def since(self, before: Spent) -> Spent:
        return Spent(
            self.manager - before.manager,
            self.tuner - before.tuner,
            self.fork_server - before.fork_server,
            self.keepers - before.keepers,
        )

    @property
    def total(self) -> float:
        return self.manager + self.tuner + self.fork_server + self.keepers

    def shown(self, trials: int, trial_s: float) -> str:
        """The parts per trial; `trial_s`: what the trial's own command takes, which is taken from the keepers' part."""
        parts = {
            "trial": trial_s,
            "keeper": self.keepers / trials - trial_s,
            "manager": self.manager / trials,
            "fork server": self.fork_server / trials,
            "tuner": self.tuner / trials,
        }
        return ", ".join(f"{name} {seconds * 1000:.1f}" for name, seconds in parts.items())


def spent(manager: int) -> Spent:
    """What the processes of a local experiment have spent so far; of trials, those that have ended."""
    process = psutil.Process(manager)
    tuner = next(child for child in process.children() if child.name() == PROCESS_NAME)
    server = _fork_server(process)
    keepers = _of_children(server) + sum(_own(keeper) + _of_children(keeper) for keeper in server.children())
    return Spent(_own(process), _own(tuner), _own(server), keepers)


def memory_mb(manager: int) -> float:
    """Return the memory of a local experiment's processes; each has its part of shared pages."""
    process = psutil.Process(manager)
    found = 0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += one.memory_full_info().pss
    return found / 1e6


def await_keepers(manager: int) -> None:
    """Wait until no keeper has a trial any more, since only then all of its time is known."""
    server = _fork_server(psutil.Process(manager))
    until = time.monotonic() + _QUIET_S
    while any(keeper.children() for keeper in server.children()) and time.monotonic() < until:
        time.sleep(0.02)


def command_s(words: Sequence[str], folder: Path, env: Mapping[str, str], times: int = 1) -> tuple[float, float]:
    """Processor time and wall time of a command and its children, in seconds, each for one of `times` runs."""
    before, start = _children_s(), time.perf_counter()
    for _ in range(times):
        subprocess.run(words, cwd=folder, env={**os.environ, **env}, check=True, capture_output=True)
    return (_children_s() - before) / times, (time.perf_counter() - start) / times


def with_descendants_s(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Processor time and wall time in seconds of a command and all that it starts, until the last process has ended.

    A manager may end after the `nnictl` that started it: its parent is another process by then, which counts it.
    """
    command = [sys.executable, "-c", _WAIT_FOR_ALL, *words]
    found = subprocess.run(command, cwd=folder, env={**os.environ, **env}, check=True, capture_output=True, text=True)
    processor_s, wall_s = map(float, found.stdout.split())
    return processor_s, wall_s


def disk(trials: Path) -> tuple[int, int]:
    """How many files and folders there are in a folder, and how many bytes of disk they take."""
    until = time.monotonic() + _QUIET_S
    # What only the keepers needed goes away a moment after the end.
    while any(trials.glob("*/*/.nni")) and time.monotonic() < until:
        time.sleep(0.02)
    places = [path.lstat() for path in trials.rglob("*")]
    return len(places), sum(place.st_blocks * 512 for place in places)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _fork_server(manager: psutil.Process) -> psutil.Process:
    return next(child for child in manager.children() if "serve" in child.cmdline())


def _of_children(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.children_user + times.children_system)


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
