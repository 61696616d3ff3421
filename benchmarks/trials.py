"""Whole experiments with no-op trials: trials a second, and the time between a trial's end and the next one's start."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.experiments import experiment
from benchmarks.table import Result

TRIALS = 200
TRIAL = "import nnilite\nnnilite.report_final_result(nnilite.get_next_parameter().get('x', 0.0))\n"


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        code = Path(folder) / "code"
        code.mkdir()
        (code / "trial.py").write_text(TRIAL)
        bare_s = under_xargs(code)
        search_s, ends = under_nnilite(code)
    ratio = bare_s / search_s
    each_ms = search_s / TRIALS * 1000
    gap_ms = statistics.median(ends)
    return [
        Result(
            "trials a second, no-op Python trial, concurrency 2",
            f"{TRIALS / search_s:.1f}/s ({each_ms:.0f} ms each)",
            f"xargs -P 2: {TRIALS / bare_s:.1f}/s",
            f"{ratio:.2f}",
            "0.5 and 100 ms",
            ratio >= 0.5 and each_ms < 100,
        ),
        Result(
            "trial's end to the next one's start, median",
            f"{gap_ms:.1f} ms",
            f"one trial {bare_s / TRIALS * 2 * 1000:.0f} ms",
            "",
            "30 ms",
            gap_ms < 30,
        ),
    ]


def under_xargs(code: Path) -> float:
    command = f"seq {TRIALS} | xargs -P 2 -I@ /bin/bash -c '{shlex.quote(sys.executable)} trial.py'"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    start = time.perf_counter()
    subprocess.run(["/bin/sh", "-c", command], cwd=code, check=True, env=environment, capture_output=True)
    return time.perf_counter() - start


def under_nnilite(code: Path) -> tuple[float, list[float]]:
    """Seconds from the first trial's creation to the last one's end, and the gaps in ms."""
    with experiment(code, f"{shlex.quote(sys.executable)} trial.py", TRIALS) as (entry, client):
        while client.profile()["state"] not in ("DONE", "ERROR"):
            time.sleep(0.2)
    with contextlib.closing(sqlite3.connect(entry.directory / "nnilite.sqlite")) as db:
        rows = db.execute("SELECT created, started, ended, state FROM trials ORDER BY sequence").fetchall()
    if any(state != "SUCCEEDED" for *_, state in rows):
        raise SystemExit(f"trials failed: {rows[:3]}")
    return max(ended for _, _, ended, _ in rows) - rows[0][0], gaps_ms(rows)


def gaps_ms(rows: list[tuple[float, float, float, str]]) -> list[float]:
    """Each start (but the first two) after the end that made room for it, on the keepers' clocks."""
    ends = sorted(ended for _, _, ended, _ in rows)
    starts = sorted(started for _, started, _, _ in rows)
    return [(start - end) * 1000 for start, end in zip(starts[2:], ends, strict=False)]
