"""What the tests of chaos share: the seed, the number of faults, a disk in trouble, and the trials' books."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.chaos import Chaos, check
from nnilite._store.integrity import IntegrityCheck
from platforms.disk.disk import Disk, NoDisk

SEED = int(os.environ.get("NNILITE_CHAOS_SEED", "1"))
FAULTS = int(os.environ.get("NNILITE_CHAOS_FAULTS", "300"))
LIMITS = {"trialConcurrency": 4, "maxTrialNumber": 100_000, "maxTrialRetries": 20, "stopOnSameError": 0}


@pytest.fixture
def chaos_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
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
def books_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For the trials' books."""
    folder = tmp_path / "books"
    folder.mkdir()
    monkeypatch.setenv("BOOKS", str(folder))
    return folder


def play_and_check(chaos: Chaos, faults: int, folder: Path, timeout_s: float) -> str:
    """Play so many faults, let the experiment come to its end, and see what is there."""
    chaos.play(faults)
    chaos.running.client.update(maxTrialNumber=1)  # those that there are come to their end
    profile = chaos.running.wait("DONE", "ERROR", timeout_s=timeout_s)
    assert profile["state"] == "DONE", profile["reason"]
    with IntegrityCheck(chaos.running.directory / "nnilite.sqlite") as integrity:
        assert list(integrity.findings(chaos.running.entry.id)) == []
    return check(chaos, folder)
