"""A large experiment: 100,000 trials with 50 metrics each. How soon it answers after a resume, and how fast then."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import statistics
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from benchmarks.curves import Curve
from benchmarks.experiments import end, experiment
from benchmarks.table import Result
from nnilite._experiments.registry import is_alive
from nnilite._running import launch
from nnilite._running.manager_client import Client
from tests.platforms.many_trials import COLUMNS

TRIALS = 100_000
SIZES = (1_000, 10_000, TRIALS)
METRICS = 50
QUERIES = (
    "/experiment",
    "/trials?limit=100&sort=value&descending=true",
    "/trials?limit=100&offset={last}",
    "/trials?limit=100&sort=duration&descending=true",
    "/trials?limit=100&state=SUCCEEDED&sort=value",
    "/metrics?limit=1000",
)


@dataclass(frozen=True)
class Load:
    """What an experiment with so many trials took after a resume."""

    trials: int
    resume_s: float
    worst_ms: float
    worst: str  # the request whose answer took longest
    memory_mb: float
    bare_s: float  # counting its metrics by sqlite3 alone


def measure() -> list[Result]:
    load = measured(TRIALS)
    base = f"COUNT(*) of its metrics: {load.bare_s * 1000:.0f} ms"
    resume, answer = f"{load.resume_s:.1f} s", f"{load.worst_ms:.0f} ms ({load.worst})"
    return [
        Result("100,000 trials, 5 million metrics: resume", resume, base, "", "5 s", load.resume_s < 5),
        Result("... slowest answer", answer, base, "", "100 ms", load.worst_ms < 100),
        Result("... manager's memory", f"{load.memory_mb:.0f} MB", base, "", "500 MB", load.memory_mb < 500),
    ]


def curve() -> Curve:
    points = [(trials, measured(trials).worst_ms) for trials in SIZES]
    return Curve("the slowest answer of a large experiment", "trials", "ms", points)


@cache
def measured(trials: int) -> Load:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        with experiment(Path(folder), "true", 1) as (entry, client):
            while client.profile()["state"] != "DONE":
                time.sleep(0.05)
        while is_alive(entry.directory):
            time.sleep(0.05)
        fill(entry.directory / "nnilite.sqlite", trials)
        bare_s = scan(entry.directory / "nnilite.sqlite")
        start = time.perf_counter()
        again = launch.resume(entry, options=launch.ManagerOptions(port=0), detach=False)
        resume_s = time.perf_counter() - start
        with Client(again.url or "", launch.token(again)) as client:
            worst_ms, what = slowest(again.url or "", trials)
            memory_mb = psutil.Process(again.pid).memory_info().rss / 2**20
            end(again, client)
    return Load(trials, resume_s, worst_ms, what, memory_mb, bare_s)


def fill(path: Path, trials: int) -> None:
    """Trials and metrics as a manager would have left them."""
    luck = random.Random(0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        for i in range(1, trials):
            value = luck.random()
            row = (i, f"x{i:07}", i, json.dumps({"x": value}), "algorithm", "SUCCEEDED", "", 0, i, i, i + value, value)
            marks = ", ".join("?" * 14)
            db.execute(f"INSERT INTO trials ({COLUMNS}) VALUES ({marks})", (*row, value, i))
            metrics = [(i, 0, k, int(k == METRICS - 1), k, json.dumps(value), float(i)) for k in range(METRICS)]
            db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?)", metrics)
            calls = [(i * 2 + 9, "generate", f"x{i:07}", i, None, None, 0)]
            calls += [(i * 2 + 10, "result", f"x{i:07}", i, json.dumps(value), None, 0)]
            db.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)", calls)
        limits = {"concurrency": 1, "max_trials": trials, "max_duration_s": None, "max_trial_duration_s": None}
        db.execute("INSERT OR REPLACE INTO meta VALUES ('limits', ?)", (json.dumps(limits),))
        db.execute("COMMIT")


def scan(path: Path) -> float:
    with contextlib.closing(sqlite3.connect(path)) as db:
        start = time.perf_counter()
        db.execute("SELECT COUNT(*), SUM(time) FROM metrics").fetchone()
        return time.perf_counter() - start


def slowest(url: str, trials: int) -> tuple[float, str]:
    """The worst median of five answers."""
    found = []
    for query in (one.format(last=max(0, trials - 100)) for one in QUERIES):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            with urllib.request.urlopen(f"{url}/api/v1{query}", timeout=30) as answer:
                answer.read()
            times.append((time.perf_counter() - start) * 1000)
        found.append((statistics.median(times), query))
    return max(found)
