"""Whole experiments with no-op trials, beside what a person would write without nnilite: a script under `xargs -P`.

The plain script takes its parameter as an argument and appends one line to a file. Beside it stands the trial script
itself under xargs, which imports the SDK.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import costs, machine
from benchmarks.curves import Curve
from benchmarks.experiments import experiment
from benchmarks.table import Result, in_starts

TRIALS = 200
SIZES = (50, 200, 800)
ALONE = 25  # runs of a trial's command by itself
PYTHON = shlex.quote(sys.executable)
PLAIN = "import sys\nwith open('results', 'a') as file:\n    file.write(sys.argv[1] + '\\n')\n"
TRIAL = "import nnilite\nnnilite.report_final_result(nnilite.get_next_parameter().get('x', 0.0))\n"
SHELL = 'x=$(cat "$NNI_SYS_DIR/parameter.cfg")\necho "final 0.5" >> "$NNILITE_METRICS"'
LEARN = "from sklearn.svm import SVC\n"
LEARN_TRIALS = 40
GOAL_SPEED = {2: 0.7, 8: 0.8}  # of the plain script under xargs, by trials at once
GOAL_CPU = 1.3  # times the plain script
# In empty starts of Python in the same run.
GOAL_GAP_STARTS = {2: 0.7, 8: 2.0}
GOAL_SHELL_STARTS = 0.4


@dataclass(frozen=True)
class Run:
    """One way of running all trials, in seconds per trial."""

    cpu_s: float
    wall_s: float
    gap_ms: float = 0.0
    parts: str = ""
    inodes: float = 0.0  # of each trial, as the disk
    disk_kb: float = 0.0
    memory_mb: float = 0.0  # of manager, tuner, fork server and keepers at the end

    @property
    def price(self) -> str:
        """Return figures that must not get worse when trials get faster or cheaper."""
        return f"memory {self.memory_mb:.0f} MB, {self.inodes:.1f} files and folders and {self.disk_kb:.1f} kB a trial"


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        code = Path(folder) / "code"
        code.mkdir()
        (code / "plain.py").write_text(PLAIN)
        (code / "trial.py").write_text(TRIAL)
        results: list[Result] = []
        start_ms = machine.start_ms()
        for concurrency in (2, 8):
            before = baselines(code, concurrency)
            ours = nnilite(code, f"{PYTHON} trial.py", concurrency)
            plain, sdk = (cheaper(*both) for both in zip(before, baselines(code, concurrency), strict=True))
            results += of_python(concurrency, plain, sdk, ours, start_ms)
            warm = nnilite(code, f"{PYTHON} trial.py", concurrency, preload=["json"])
            results.append(
                of_preloaded(f"no-op Python trial with `preload`, concurrency {concurrency}", plain, warm, 2)
            )
        results.append(with_scikit_learn(code))
        return [*results, *of_shell(nnilite(code, SHELL, 2), start_ms), *of_disk(ours)]


def curve() -> Curve:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        points = [(trials, nnilite(Path(folder), SHELL, 2, trials).cpu_s * trials) for trials in SIZES]
    return Curve("an experiment of two-line shell trials", "trials", "seconds of processor time", points)


def of_python(concurrency: int, plain: Run, sdk: Run, ours: Run, start_ms: float) -> list[Result]:
    where = f"no-op Python trial, concurrency {concurrency}"
    speed, cost = plain.wall_s / ours.wall_s, ours.cpu_s / plain.cpu_s
    cpu = f"{ours.cpu_s * 1000:.1f} ms: {ours.parts}"
    base_wall = f"plain script under xargs: {plain.wall_s * 1000:.1f} ms; with the SDK {sdk.wall_s * 1000:.1f}"
    base_cpu = f"plain script: {plain.cpu_s * 1000:.1f} ms; with the SDK {sdk.cpu_s * 1000:.1f}"
    wall, goal = f"{ours.wall_s * 1000:.1f} ms", GOAL_SPEED[concurrency]
    gap = in_starts(f"{where}: end to next start, median", ours.gap_ms, start_ms, GOAL_GAP_STARTS[concurrency])
    return [
        Result(f"{where}: wall", wall, base_wall, f"{speed:.2f}", f"{goal:g}", speed >= goal, ours.price),
        Result(f"{where}: processor", cpu, base_cpu, f"{cost:.2f}", f"{GOAL_CPU:g}", cost <= GOAL_CPU, ours.price),
        replace(gap, price=ours.price),
    ]


def of_preloaded(where: str, plain: Run, ours: Run, goal: float) -> Result:
    speed = plain.wall_s / ours.wall_s
    base = f"plain script under xargs: {plain.wall_s * 1000:.1f} ms"
    return Result(
        f"{where}: wall", f"{ours.wall_s * 1000:.1f} ms", base, f"{speed:.2f}", str(goal), speed >= goal, ours.price
    )


def with_scikit_learn(code: Path) -> Result:
    """Trials that import scikit-learn, beside the same imports under xargs."""
    (code / "plain_learn.py").write_text(LEARN + PLAIN)
    (code / "learn.py").write_text(LEARN + TRIAL)
    plain = xargs(code, f"{PYTHON} plain_learn.py 0.@", 2, LEARN_TRIALS)
    warm = nnilite(code, f"{PYTHON} learn.py", 2, LEARN_TRIALS, preload=["sklearn.svm"])
    return of_preloaded("trial that imports scikit-learn, with `preload`, concurrency 2", plain, warm, 4)


def of_shell(ours: Run, start_ms: float) -> list[Result]:
    row = in_starts("two-line shell trial: processor", ours.cpu_s * 1000, start_ms, GOAL_SHELL_STARTS)
    return [replace(row, measured=f"{row.measured}: {ours.parts}", price=ours.price)]


def of_disk(ours: Run) -> list[Result]:
    measured = f"{ours.inodes:.1f} files and folders, {ours.disk_kb:.1f} kB"
    return [Result("an ended trial on disk", measured, "", "", "5, 12 kB", ours.inodes <= 5 and ours.disk_kb <= 12)]


def baselines(code: Path, concurrency: int) -> tuple[Run, Run]:
    """The plain script, and the trial's script with the SDK, both under xargs."""
    plain = xargs(code, f"{PYTHON} plain.py 0.@", concurrency)
    return plain, xargs(code, f"/bin/bash -c {shlex.quote(f'{PYTHON} trial.py')}", concurrency)


def cheaper(one: Run, other: Run) -> Run:
    """The best of two measurements, before and after ours: other work on the machine only makes them worse."""
    return Run(min(one.cpu_s, other.cpu_s), min(one.wall_s, other.wall_s))


def xargs(code: Path, command: str, concurrency: int, number: int = TRIALS) -> Run:
    line = f"seq {number} | xargs -P {concurrency} -I@ {command}"
    cpu_s, wall_s = costs.command_s(["/bin/sh", "-c", line], code, {"PYTHONWARNINGS": "ignore"})
    return Run(cpu_s / number, wall_s / number)


def nnilite(code: Path, command: str, concurrency: int, number: int = TRIALS, preload: Sequence[str] = ()) -> Run:
    service = {"platform": "local", "preload": list(preload)}
    with experiment(code, command, number, concurrency, service) as (entry, client):
        before = costs.spent(entry.pid or 0)
        while client.profile()["state"] not in ("DONE", "ERROR"):
            time.sleep(0.5)
        costs.await_keepers(entry.pid or 0)
        spent = costs.spent(entry.pid or 0).since(before)
        memory_mb = costs.memory_mb(entry.pid or 0)
        trials = entry.directory / "trials"
        inodes, size = costs.disk(trials)
        attempt = next(trials.glob("*/0"))
        trial_s = alone(command, code, attempt, Path(entry.directory))
    with contextlib.closing(sqlite3.connect(entry.directory / "nnilite.sqlite")) as db:
        rows = db.execute("SELECT created, started, ended, state FROM trials ORDER BY sequence").fetchall()
    if any(state != "SUCCEEDED" for *_, state in rows):
        raise SystemExit(f"trials failed: {rows[:3]}")
    wall_s = (max(ended for _, _, ended, _ in rows) - rows[0][0]) / number
    gap_ms = statistics.median(gaps_ms(rows, concurrency))
    parts = spent.shown(number, trial_s)
    return Run(spent.total / number, wall_s, gap_ms, parts, inodes / number, size / number / 1024, memory_mb)


def alone(command: str, code: Path, attempt: Path, experiment_folder: Path) -> float:
    """Processor time of the trial's command with the environment that a keeper gives it, but without a keeper."""
    sdk = next(iter(experiment_folder.glob(".nnilite-sdk-*")), attempt / ".nni" / "sdk")
    spool = Path(os.environ["NNILITE_HOME"]) / "spool"
    env = {"NNI_PLATFORM": "local", "NNI_SYS_DIR": str(attempt), "NNI_OUTPUT_DIR": str(attempt)}
    env |= {"NNI_TRIAL_JOB_ID": "x", "NNILITE_METRICS": str(spool), "PYTHONPATH": str(sdk)}
    return costs.command_s(["/bin/bash", "-c", command], code, env, ALONE)[0]


def gaps_ms(rows: list[tuple[float, float, float, str]], concurrency: int) -> list[float]:
    """Each start (but the first ones) after the end that made room for it, on the keepers' clocks."""
    ends = sorted(ended for _, _, ended, _ in rows)
    starts = sorted(started for _, started, _, _ in rows)
    return [(start - end) * 1000 for start, end in zip(starts[concurrency:], ends, strict=False)]
