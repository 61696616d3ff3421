"""Experiments in which a trial's keeper was stopped, or its folder hangs: the other trials go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from nnilite.testing import eventually
from nnilite.testing.probes import runs
from platforms.disk.disk import OPEN, Disk, NoDisk

WAITING = "import time, nnilite\nnnilite.report_intermediate_result(1)\ntime.sleep(600)\n"
# The first trial waits until it is ended; the others are short.
ONE_WAITS = """
import time, nnilite
nnilite.report_intermediate_result(1)
if nnilite.get_sequence_id() == 0:
    time.sleep(600)
nnilite.report_final_result(1)
"""
BOOKS = """
import os, time
place = os.environ["BOOK"]
with open(place, "a") as book:
    book.write("begins %d %s\\n" % (os.getpid(), os.environ["NNILITE_ATTEMPT"]))
time.sleep(600 if os.environ["NNILITE_ATTEMPT"] == "0" else 1)
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        disk = Disk(folder)
    except NoDisk as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("LD_PRELOAD", str(disk.library))
    return disk


def first(running: Any) -> dict[str, Any]:
    """The first trial, when its command runs."""
    running.wait_for(lambda: [t for t in running.trials() if t["sequence"] == 0 and t["state"] == "RUNNING"])
    return next(t for t in running.trials() if t["sequence"] == 0)


def processes(running: Any) -> tuple[psutil.Process, psutil.Process]:
    """The first trial's process, and its keeper's."""
    record = running.directory / "trials" / first(running)["id"] / "0/.nni/started"
    eventually(record.exists)
    trial = psutil.Process(json.loads(record.read_text())["pid"])
    return trial, psutil.Process(trial.ppid())


def test_a_stop_ends_a_trial_whose_keeper_was_stopped(start: Any) -> None:
    running = start(WAITING, maxTrialNumber=1, gracePeriod="1s")
    trial, keeper = processes(running)
    keeper.suspend()
    command = [sys.executable, "-m", "nnilite._cli", "stop", running.entry.id]
    said = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"Experiment {running.entry.id} is stopped.\n", "")
    assert not runs(trial.pid)
    assert not runs(keeper.pid)


def test_a_trial_whose_folder_hangs_says_so_and_the_others_go_on(start: Any, disk: Disk) -> None:
    running = start(ONE_WAITS, maxTrialNumber=12, trialConcurrency=3, gracePeriod="1s")
    trial = first(running)["id"]
    disk.watch("hung", running.directory / "trials" / trial)
    disk.slow("hung", OPEN, delay_s=20)  # of each of many looks at it
    running.wait_for(lambda: running.client.profile()["counts"].get("SUCCEEDED") == 11, 100)
    running.wait_for(lambda: "no answer within" in running.client.trial(trial)["reason"])
    disk.heal()


def test_a_trial_that_is_given_up_is_ended_before_it_runs_again(start: Any, disk: Disk, monkeypatch: Any) -> None:
    book = disk.library.with_name("book")
    monkeypatch.setenv("BOOK", str(book))
    running = start(BOOKS, maxTrialNumber=1, workerSilence="4s", gracePeriod="1s")
    trial, keeper = processes(running)
    keeper.suspend()
    disk.watch("hung", running.directory / "trials" / first(running)["id"] / "0")
    disk.slow("hung", OPEN, delay_s=30)
    running.wait_for(lambda: book.read_text().count("begins") == 2)
    assert not runs(trial.pid)
    disk.heal()
    running.wait("DONE", timeout_s=90)
    assert running.trials()[0]["state"] == "SUCCEEDED"
