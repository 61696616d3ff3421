"""Trials on a busy machine: two programs for each processor compute all the time, as another user if this one is root.

What a trial takes there is compared with the plain script, which is started in a session of its own. Both run one at a
time, in turns: what else the machine does meets both.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.curves import Curve
from benchmarks.experiments import experiment
from benchmarks.table import Result
from benchmarks.trials import PYTHON

ROUNDS = 3
RUNS = 3  # of plain script and trial, in each round
GOAL = 1.1
WORK_S = 0.5
WHAT = f"a trial of {WORK_S:g} s of processor time"
PLAIN = f"import time\nwhile time.process_time() < {WORK_S}: pass\n"
TRIAL = f"{PLAIN}import nnilite\nnnilite.report_final_result(nnilite.get_next_parameter()['x'])\n"
BUSY = "while True: pass"
NEIGHBOUR = "nobody"


def measure() -> list[Result]:
    plain, ours = times_s()
    ratio = statistics.median(ours) / statistics.median(plain)
    what = f"{WHAT} next to {_number()} busy programs"
    measured, base = (f"{statistics.median(times):.2f} s" for times in (ours, plain))
    return [Result(what, measured, f"plain script: {base}", f"{ratio:.2f}", f"{GOAL:g}", ratio <= GOAL)]


def curve() -> Curve | None:
    return None


def times_s(service: dict[str, Any] | None = None) -> tuple[list[float], list[float]]:
    """Return the seconds of each plain script, and of each trial of a local service with these settings."""
    plain: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder, neighbours():
        os.environ["NNILITE_HOME"] = folder
        code = Path(folder) / "code"
        code.mkdir()
        (code / "plain.py").write_text(PLAIN)
        (code / "trial.py").write_text(TRIAL)
        for _ in range(ROUNDS):
            plain += [_plain_s(code) for _ in range(RUNS)]
            ours += _trials_s(code, service)
    return plain, ours


@contextlib.contextmanager
def neighbours() -> Iterator[None]:
    """Keep all processors busy by programs in sessions of their own."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    who: dict[str, Any] = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam(NEIGHBOUR)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    command = [python, "-I", "-S", "-c", BUSY]
    with contextlib.ExitStack() as ends:
        for _ in range(_number()):
            program = subprocess.Popen(command, cwd="/", start_new_session=True, **who)
            ends.callback(program.wait)
            ends.callback(program.kill)
        yield


def _number() -> int:
    return 2 * len(os.sched_getaffinity(0))


def _plain_s(code: Path) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "plain.py"], cwd=code, check=True, start_new_session=True)
    return time.perf_counter() - start


def _trials_s(code: Path, service: dict[str, Any] | None) -> list[float]:
    with experiment(code, f"{PYTHON} trial.py", RUNS, 1, service) as (entry, client):
        while client.profile()["state"] not in ("DONE", "ERROR"):
            time.sleep(0.5)
    with contextlib.closing(sqlite3.connect(entry.directory / "nnilite.sqlite")) as db:
        rows = db.execute("SELECT ended - started, state FROM trials").fetchall()
    if any(state != "SUCCEEDED" for _, state in rows):
        raise SystemExit(f"trials failed: {rows}")
    return [took for took, _ in rows]
