"""nnictl against a stand-in for the manager."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite import _registry
from stand_in_manager import PROFILE, TRIAL, Make, StandIn, stand_in_manager


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home of 'experiments' $HOME\n"
    monkeypatch.setenv("NNILITE_HOME", str(folder))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return folder


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with stand_in_manager() as found:
        found.says("GET /experiment", PROFILE)
        found.says("GET /trials", {"trials": [TRIAL], "total": 1})
        yield found


@pytest.fixture
def make(home: Path, manager: StandIn) -> Iterator[Make]:
    """Makes an experiment known; a running one has the stand-in as its manager."""
    with contextlib.ExitStack() as locks:

        def one(experiment: str, *, running: bool = True, state: str = "RUNNING") -> Path:
            folder = home / experiment
            (folder / "log").mkdir(parents=True)
            _registry.add(experiment, "digits", folder, "local", time.time())
            port = int(manager.url.rpartition(":")[2])
            _registry.write_json(folder / "manager.json", {"state": state, "url": manager.url, "port": port, "pid": 1})
            if running:
                locks.enter_context(_registry.lock(folder))
            return folder

        yield one
