"""An experiment that an earlier version has begun goes on with this one."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.running import ECHO, Running
from nnilite._experiments import registry
from nnilite._running import launch, managers

DATA = Path(__file__).parent / "data"
ID = "a72be7sw"


@pytest.fixture
def resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """The experiment of 0.1.0, of whose three trials two have ended, resumed."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    folder, code = tmp_path / ID, tmp_path / "code of the user"
    for made in (folder, code):
        made.mkdir()
    (code / "trial.py").write_text(ECHO)
    config = json.loads((DATA / "experiment_0_1_0.json").read_text())
    config |= {"trialCodeDirectory": str(code), "experimentWorkingDirectory": str(tmp_path)}
    (folder / "config.json").write_text(json.dumps(config))
    with contextlib.closing(sqlite3.connect(folder / "nnilite.sqlite")) as db:
        db.executescript((DATA / "experiment_0_1_0.sql").read_text())
        db.execute("UPDATE meta SET value = ? WHERE key = 'limits'", (json.dumps({"max_trials": 3}),))
        db.commit()
    registry.add(ID, "", folder, "local", None)
    running = Running(launch.resume(registry.find(ID), options=launch.ManagerOptions(port=0), detach=False))
    try:
        yield running
    finally:
        running.client.close()
        managers.stop(running.entry)


def test_an_experiment_of_0_1_0_keeps_its_results_and_runs_its_last_trial(resumed: Running) -> None:
    resumed.wait("DONE")
    trials = resumed.trials(sort="sequence")
    assert [trial["state"] for trial in trials] == ["SUCCEEDED"] * 3
    assert [trial["value"] for trial in trials[:2]] == [0.6651448406717945, 0.3043923415306551]
    assert len(list(resumed.client.metrics())) == 6
