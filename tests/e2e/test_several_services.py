"""Several services in one experiment, as a user sees them: who ran what, and what it cost."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from e2e.running import ECHO, Start

SLOWER = f"sleep 0.2 && {shlex.quote(sys.executable)} trial.py"
SERVICES = [
    {"platform": "local", "name": "own", "maxTrials": 1, "cost": 0},
    {"platform": "local", "name": "dear", "cost": 3600, "trialCommand": SLOWER},
]


def test_each_service_has_its_share_and_its_price_and_the_budget_ends_it(start: Start) -> None:
    running = start(trainingService=SERVICES, placement="cheapest", maxTrialNumber=None, maxCost=1.0)
    profile: dict[str, Any] = running.wait("DONE")
    assert profile["reason"] == "maxCost (1) is reached"
    trials = running.trials()
    assert {trial["service"] for trial in trials} == {"own", "dear"}
    costs = {name: sum(one["cost"] for one in trials if one["service"] == name) for name in ("own", "dear")}
    assert costs["own"] == 0
    assert profile["spent"] == pytest.approx(costs["dear"])
    assert [one["spent"] for one in profile["services"]] == pytest.approx([0.0, costs["dear"]])
    assert 1.0 <= profile["spent"] < 1.0 + 2 * max(trial["cost"] for trial in trials)
    exported = io.BytesIO()
    running.client.export("csv", exported.write)
    assert {row["service"] for row in csv.DictReader(io.StringIO(exported.getvalue().decode()))} == {"own", "dear"}


OBJECTIVE = "def curve(parameters):\n    return [parameters['x'] * step for step in range(1, 25)]\n"
SPOT = {
    **{"platform": "simulated", "objective": "trial.py:curve", "speedUp": 7200},
    **{"stepTime": "15m", "checkpointEvery": 1},
}


def test_interrupted_trials_on_simulated_spot_nodes_report_each_step_once(start: Start, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("hour,price,interruption\n0,0.3,0.2\n")
    spot = {**SPOT, "traceFile": str(trace)}
    running = start(OBJECTIVE, trainingService=spot, trialConcurrency=8, maxTrialNumber=8, maxTrialRetries=99)
    profile = running.wait("DONE", timeout_s=100.0)
    trials = running.trials()
    assert [trial["state"] for trial in trials] == ["SUCCEEDED"] * 8
    assert any(trial["attempt"] for trial in trials), "48 hours of trials without an interruption are too lucky"
    assert profile["spent"] == pytest.approx(sum(trial["cost"] for trial in trials))
    for trial in trials:
        steps = [one["value"] for one in running.client.metrics(trial["id"], kind="PERIODICAL")]
        assert sorted(steps) == pytest.approx([trial["parameters"]["x"] * step for step in range(1, 25)])


def test_trials_on_this_machine_need_no_log_for_their_reports(start: Start) -> None:
    running = start(callback="log")
    running.wait("DONE")
    assert [trial["state"] for trial in running.trials()] == ["SUCCEEDED"] * 4
    assert "callback has no effect on local" in (running.directory / "log" / "manager.log").read_text()


def test_reports_by_logs_are_a_matter_of_each_service_of_a_list(start: Start) -> None:
    world = {"platform": "simulated", "objective": "trial.py:curve", "speedUp": 7200}
    curve = "def curve(parameters):\n    return [parameters['x']] * 3"
    code = f"{curve}\n\nif __name__ == '__main__':\n{indent(ECHO, '    ')}"
    running = start(code, trainingService=[{"platform": "local"}, world], callback="log", maxTrialNumber=20)
    running.wait("DONE", timeout_s=100.0)
    trials = running.trials()
    assert [trial["state"] for trial in trials] == ["SUCCEEDED"] * 20
    assert {trial["service"] for trial in trials} == {"local", "simulated"}
