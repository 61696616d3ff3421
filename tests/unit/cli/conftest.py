"""nnictl against a stand-in for the manager."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nnilite._engine import messages
from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._store.writer import Store
from nnilite.config import from_dict
from nnilite.records import Attempt, ExperimentState, JobState, Trial, TrialState
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
def whole(make: Make, tmp_path: Path) -> Path:
    """The folder of a stopped experiment `abcd` with all that one has: a succeeded trial, and one that still ran."""
    code = tmp_path / "my code"
    code.mkdir()
    (code / "trial.py").write_text("print(1)")
    folder = make("abcd", running=False, state="DONE")
    folder.chmod(0o700)
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "python3 trial.py",
        "trialCodeDirectory": str(code),
        "trialConcurrency": 1,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    write_json(folder / "config.json", from_dict(config, tmp_path).checked().json(secrets=True))
    with contextlib.closing(Store.create(folder / "nnilite.sqlite", "abcd", 1.0)) as store:
        ended = Trial("done1", 0, {"x": 0.5}, 0, state=TrialState.SUCCEEDED, created=1.0, ended=3.0, value=0.25)
        begun = Trial("runs1", 1, {"x": 0.1}, 1, state=TrialState.RUNNING, created=1.0, started=2.0)
        running = replace(begun, service="local", attributes={"epochs": 3})
        attempts = [
            Attempt("done1", 0, "local", {"pid": 7}, JobState.SUCCEEDED),
            Attempt("runs1", 0, "local", {"pid": 8}, JobState.RUNNING),
        ]
        store.write([messages.SaveTrial(ended), messages.SaveTrial(running), *map(messages.SaveAttempt, attempts)])
        store.write([messages.SaveExperiment(ExperimentState.DONE, "all trials", 5.0, 9.0, messages.Settings(1))])
        store.secret()
    (folder / "trials" / "done1" / "0").mkdir(parents=True)
    (folder / "trials" / "done1" / "0" / "trial.stdout").write_text("hello")
    (folder / "token").write_text("a-token-of-this-experiment")
    return folder


@pytest.fixture
def make(home: Path, manager: StandIn) -> Iterator[Make]:
    """Makes an experiment known; a running one has the stand-in as its manager."""
    with contextlib.ExitStack() as locks:

        def one(experiment: str, *, running: bool = True, state: str = "RUNNING") -> Path:
            folder = home / experiment
            (folder / "log").mkdir(parents=True)
            registry.add(experiment, "digits", folder, "local", time.time())
            port = int(manager.url.rpartition(":")[2])
            write_json(folder / "manager.json", {"state": state, "url": manager.url, "port": port, "pid": 4_000_000})
            if running:
                locks.enter_context(registry.lock(folder))
            return folder

        yield one
