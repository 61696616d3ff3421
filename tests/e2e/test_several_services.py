"""Several services in one experiment, as a user sees them: who ran what, and what it cost."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from typing import Any

import pytest

from e2e.conftest import Start, start

__all__ = ["start"]

SLOWER = f"sleep 0.2 && {shlex.quote(sys.executable)} trial.py"
SERVICES = [
    {"platform": "local", "name": "own", "maxTrials": 1, "cost": 0},
    {"platform": "local", "name": "dear", "cost": 3600, "trialCommand": SLOWER},
]


@pytest.mark.slow
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
