"""Anything may be killed, stopped, slow, full or broken at any moment: every reported metric is in the store exactly
once, every trial has its true end. Where there are hosts, `platforms/hosts/test_chaos.py` does the same with them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos import TRIAL, Chaos, check
from nnilite._store.soundness import SoundnessCheck
from platforms.disk.disk import Disk, NoDisk

SEED = int(os.environ.get("NNILITE_CHAOS_SEED", "1"))
FAULTS = int(os.environ.get("NNILITE_CHAOS_FAULTS", "300"))
LIMITS = {"trialConcurrency": 4, "maxTrialNumber": 100_000, "maxTrialRetries": 20, "stopOnSameError": 0}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Under the manager and all that it starts, from when it starts."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        disk = Disk(folder, SEED)
    except NoDisk as reason:
        pytest.skip(str(reason))
    home = tmp_path / "home"
    disk.watch("code", home, "*sdk*")  # what trials import: not ours to break
    disk.watch("store", home, "*/nnilite.sqlite*")
    disk.watch("bookings", home, "*/remote-jobs.json*")  # which job goes to which host
    disk.watch("worker", home, "*/trials/*")
    disk.watch("manager", home)
    monkeypatch.setenv("LD_PRELOAD", str(disk.library))
    return disk


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For the trials' books."""
    folder = tmp_path / "books"
    folder.mkdir()
    monkeypatch.setenv("BOOKS", str(folder))
    return folder


def survive(chaos: Chaos, faults: int, folder: Path, timeout_s: float) -> str:
    """Play so many faults, let the experiment come to its end, and see what is there."""
    chaos.play(faults)
    chaos.running.client.update(maxTrialNumber=1)  # those that there are come to their end
    profile = chaos.running.wait("DONE", "ERROR", timeout_s=timeout_s)
    assert profile["state"] == "DONE", profile["reason"]
    with SoundnessCheck(chaos.running.directory / "nnilite.sqlite") as soundness:
        assert list(soundness.findings(chaos.running.entry.id)) == []
    return check(chaos, folder)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_whatever_happens(
    start: Any, disk: Disk, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    running = start(TRIAL, tuner={"name": "TPE"}, workerSilence="8s", **LIMITS)
    chaos = Chaos(running, random.Random(SEED), disk, long_stop_s=10.0)
    record_property("shown", f"chaos on this machine: {survive(chaos, 60, folder, 120)}")


@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_whatever_happens_in_a_long_run(
    start: Any, disk: Disk, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    running = start(TRIAL, tuner={"name": "TPE"}, workerSilence="8s", **LIMITS)
    chaos = Chaos(running, random.Random(SEED), disk, long_stop_s=10.0)
    record_property("shown", f"chaos on this machine: {survive(chaos, FAULTS, folder, 300)}")
    trials = running.directory / "trials"  # a removal that could not be done is done a minute later
    running.wait_for(lambda: not list(trials.rglob("spec.json")), 150)  # they hold tokens
