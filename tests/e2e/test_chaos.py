"""Kill anything at any moment: every reported metric is in the store exactly once, every trial has its true end.

The trials keep books of their own: a line before each report and one after it, in a file for each attempt. The store
must hold every report that returned, none that was never begun, and none twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

TRIALS, METRICS, KILLS = 40, 50, 20
TRIAL = f"""
import os, pathlib, time, nnilite
p = nnilite.get_next_parameter()
book = pathlib.Path(os.environ["BOOKS"], f"{{nnilite.get_trial_id()}}-{{os.environ['NNILITE_ATTEMPT']}}")
with book.open("a", buffering=1) as out:
    for i in range({METRICS}):
        out.write(f"begin {{i}}\\n")
        (nnilite.report_final_result if i == {METRICS} - 1 else nnilite.report_intermediate_result)(p["x"] + i)
        out.write(f"done {{i}}\\n")
        time.sleep(0.01)
    out.write("end\\n")
"""


class Chaos:
    """Kills one thing at a time."""

    def __init__(self, running: Any, luck: random.Random) -> None:
        self.running = running
        self.luck = luck
        self.killed: dict[str, int] = {}
        self.last = ""

    def strike(self) -> None:
        what = self.luck.choice(["manager", "keeper", "tuner", "trial", "fork server"])
        if what == self.last == "tuner":  # killed three times on the same input it would be given up, rightly
            what = "keeper"
        self.last = what
        if what == "manager":
            self.running.kill_manager()
            self.running = self.running.resume()
        else:
            self._kill(self._victims(what))
        self.killed[what] = self.killed.get(what, 0) + 1

    def _kill(self, pids: list[int]) -> None:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.luck.choice(pids), signal.SIGKILL)

    def _victims(self, what: str) -> list[int]:
        children = psutil.Process(self.running.entry.pid).children()
        if what == "tuner":
            return [p.pid for p in children if "nnilite._manager.tuner_child" in p.cmdline()]
        if what == "fork server":
            return [p.pid for p in children if p.cmdline()[-1:] == ["serve"]]
        keepers = [handle["pid"] for handle in handles(self.running.directory)]
        if what == "keeper":
            return keepers
        with contextlib.suppress(psutil.NoSuchProcess):
            return [p.pid for keeper in keepers for p in psutil.Process(keeper).children()]
        return []


def query(directory: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(directory / "nnilite.sqlite", timeout=10)) as db:
        return db.execute(sql).fetchall()


def handles(directory: Path) -> list[Any]:
    rows = query(directory, "SELECT handle FROM attempts WHERE state = 'RUNNING' AND handle IS NOT NULL")
    return [json.loads(text) for (text,) in rows]


def books(folder: Path) -> dict[tuple[str, int], list[str]]:
    found = {}
    for path in folder.iterdir():
        trial, attempt = path.name.split("-")
        found[trial, int(attempt)] = path.read_text().split("\n")
    return found


def stored_reports(directory: Path) -> dict[tuple[str, int], list[int]]:
    """The numbers of the reports in the store, in their order, by trial and attempt."""
    rows = query(
        directory,
        "SELECT t.id, m.attempt, m.value, t.parameters FROM metrics m JOIN trials t ON t.sequence = m.trial "
        "ORDER BY m.idx",
    )
    stored: dict[tuple[str, int], list[int]] = {}
    for trial, attempt, value, parameters in rows:
        stored.setdefault((trial, attempt), []).append(round(json.loads(value) - json.loads(parameters)["x"]))
    return stored


def check_metrics(directory: Path, kept: dict[tuple[str, int], list[str]]) -> str:
    """Compare the store with the books; what was found, in words."""
    stored = stored_reports(directory)
    assert not set(stored) - set(kept), "the store has attempts that never ran"
    lost = doubled = 0
    for key, lines in kept.items():
        begun = [int(line.split()[1]) for line in lines if line.startswith("begin")]
        done = [int(line.split()[1]) for line in lines if line.startswith("done")]
        found = stored.get(key, [])
        lost += len(set(done) - set(found))
        doubled += len(found) - len(set(found))
        assert found in (begun, done), f"attempt {key}: {len(found)} stored, {len(begun)} begun, {len(done)} done"
    assert (lost, doubled) == (0, 0)
    return f"{sum(map(len, stored.values()))} metrics checked, lost {lost}, doubled {doubled}"


def check_ends(directory: Path, kept: dict[tuple[str, int], list[str]]) -> None:
    for trial, attempt, state in query(directory, "SELECT id, attempt, state FROM trials"):
        finished = "end" in kept.get((trial, attempt), [])
        assert (state == "SUCCEEDED") == finished, f"{trial}: {state}, but its own book says {finished}"
        assert state in ("SUCCEEDED", "FAILED")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_whatever_is_killed(
    start: Any, tmp_path: Path, monkeypatch: Any, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    monkeypatch.setenv("BOOKS", str(folder))
    luck = random.Random(int(os.environ.get("NNILITE_CHAOS_SEED", "1")))
    limits = {"maxTrialNumber": TRIALS, "trialConcurrency": 4, "maxTrialRetries": 3, "stopOnSameError": 0}
    chaos = Chaos(start(TRIAL, tuner={"name": "TPE"}, **limits), luck)
    for _ in range(KILLS):
        time.sleep(luck.uniform(0.1, 1.0))  # between kills the experiment goes on
        chaos.strike()
    profile = chaos.running.wait("DONE", "ERROR", timeout_s=200)
    assert profile["state"] == "DONE", profile["reason"]
    assert sum(profile["counts"].values()) == TRIALS
    metrics = check_metrics(chaos.running.directory, books(folder))
    check_ends(chaos.running.directory, books(folder))
    trials = chaos.running.directory / "trials"
    chaos.running.wait_for(lambda: not list(trials.rglob("spec.json")))  # they hold tokens
    assert len(chaos.killed) >= 4
    kills = ", ".join(f"{what} {number}" for what, number in sorted(chaos.killed.items()))
    record_property("shown", f"chaos: {KILLS} kills survived ({kills}), {TRIALS} trials, {metrics}")
