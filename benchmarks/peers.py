"""Beside others: what a trial that does nothing costs with each of them, two at a time, on this machine.

    python -m benchmarks.peers FOLDER     with a virtual environment for each in FOLDER, made at the first time
    python -m benchmarks.peers            in a folder that goes afterwards

Each program runs with few trials and with many, and the difference counts, so that its start is left out. Processor
time is that of the whole machine, which has to be calm: what a process and its children say themselves leaves out those
that nobody waits for, such as Ray's workers. It installs about 2 GB, so `make bench` leaves it out. README and
docs get the table (`benchmarks.figures`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import figures

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).with_name("peer_programs")
FEW, MANY = 10, 60
ROUNDS = 3  # the median counts
_LIMIT_S = 600.0
_LEAVE_S = 10.0
_CALM_S, _CALM_CORES = 2.0, 0.1
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl


@dataclass(frozen=True)
class Peer:
    """A program of `peer_programs`, and what has to be installed for it."""

    name: str
    program: str
    packages: Sequence[str] = ()


PEERS = (
    Peer("the plain script under `xargs -P 2`", "scripts_by_xargs"),
    Peer("nnilite", "nnilite_experiment", (str(ROOT),)),
    Peer("Optuna, a process for each trial", "optuna_and_processes", ("optuna",)),
    Peer("Optuna and a pool of two processes, none started for a trial", "optuna_and_a_pool", ("optuna",)),
    Peer("submitit, local", "submitit_jobs", ("submitit",)),
    Peer("Syne Tune, local backend", "syne_tune_search", ("syne-tune[basic]",)),
    Peer("Ray Tune", "ray_tune_search", ("ray[tune]",)),
)


@dataclass(frozen=True)
class Cost:
    """Seconds: by the clock, and of processor time on the whole machine."""

    wall: float
    busy: float


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 if one could not be measured, which the table says, too."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # whose parent has ended becomes our child, and can be ended
    begun_s = _busy_s()
    time.sleep(_CALM_S)
    if (cores := (_busy_s() - begun_s) / _CALM_S) > _CALM_CORES:
        print(f"other work takes {cores:.2f} cores of this machine, and would count", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        folder = Path(arguments[0] if arguments else stack.enter_context(tempfile.TemporaryDirectory()))
        found = [(peer, measured(peer, folder)) for peer in PEERS]
    table = shown(found)
    print(table)
    figures.keep_peers(table)
    return int(any(isinstance(cost, str) for _, cost in found))


def shown(found: Sequence[tuple[Peer, Cost | str]]) -> str:
    """The table as Markdown; the first one is what the others are compared with."""
    lines = [
        "| no-op trials, two at a time | wall time of each | its processor time | in plain scripts |",
        "| --- | --- | --- | --- |",
    ]
    base = found[0][1]
    for peer, cost in found:
        if isinstance(cost, str):
            lines.append(f"| {peer.name} | {cost} | | |")
            continue
        ratio = f"{cost.busy / base.busy:.1f}" if isinstance(base, Cost) else ""
        lines.append(f"| {peer.name} | {_ms(cost.wall)} | {_ms(cost.busy)} | {ratio} |")
    return "\n".join([*lines, ""])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds * 1000:,.0f} ms"


def measured(peer: Peer, folder: Path) -> Cost | str:
    """Return what a trial costs, or why that is unknown."""
    print(f"measuring {peer.name} ...", file=sys.stderr)
    try:
        python = installed(peer, folder)
        rounds = [(run(peer, python, FEW), run(peer, python, MANY)) for _ in range(ROUNDS)]
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
        print("\n".join(lines[-20:]), file=sys.stderr)
        return f"not measured: {Path(error.cmd[0]).name} ended with {error.returncode}"
    except subprocess.TimeoutExpired:
        return f"not measured: it had not ended after {_LIMIT_S:.0f} s"
    wall_s = statistics.median(many.wall - few.wall for few, many in rounds)
    busy_s = statistics.median(many.busy - few.busy for few, many in rounds)
    return Cost(wall_s / (MANY - FEW), busy_s / (MANY - FEW))


def installed(peer: Peer, folder: Path) -> Path:
    """The Python of an environment that has what it needs."""
    if not peer.packages:
        return Path(sys.executable)
    place = folder / peer.program
    python = place / "bin/python"
    if not (place / "installed").exists():
        venv.create(place, with_pip=True)
        words = [str(python), "-m", "pip", "install", "--quiet", *peer.packages]
        subprocess.run(words, check=True, capture_output=True, timeout=_LIMIT_S)
        (place / "installed").touch()
    return python


def run(peer: Peer, python: Path, trials: int) -> Cost:
    """Run the peer's program once, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        before, start = _busy_s(), time.perf_counter()
        words = [str(python), str(PROGRAMS / f"{peer.program}.py"), str(trials), folder]
        env = {**os.environ, "NNILITE_HOME": folder}
        subprocess.run(words, check=True, capture_output=True, timeout=_LIMIT_S, cwd=folder, env=env)
        wall_s = time.perf_counter() - start
        _reap()
        return Cost(wall_s, _busy_s() - before)


def _reap() -> None:
    """Wait for what is left, since its end counts, too; what does not leave is killed."""
    deadline = time.monotonic() + _LEAVE_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if time.monotonic() > deadline:
            for child in _children():
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def _children() -> Iterator[int]:
    yield from map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def _busy_s() -> float:
    """Processor time that this machine has spent on anything."""
    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
