"""A trial that waits in the pool for longer than `moveAfter` moves to another service."""

from __future__ import annotations

import pytest

from e2e.conftest import start  # noqa: F401 - a fixture
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]

REPORTING = """
import nnilite
x = nnilite.get_next_parameter()["x"]
for step in range(3):
    nnilite.report_intermediate_result(step)
nnilite.report_final_result(x)
"""


def test_trials_that_no_worker_takes_move_and_report_once(start, shared_server, prefix):  # noqa: F811
    pool = {"platform": "redis", "name": "pool", "redis": shared_server.url, "prefix": prefix}
    own = {"platform": "local", "name": "own", "maxTrials": 2}
    running = start(REPORTING, trainingService=[pool, own], placement="fill", moveAfter="1s", maxTrialNumber=2)
    running.wait("DONE")
    trials = running.trials()
    assert [(trial["state"], trial["service"]) for trial in trials] == [("SUCCEEDED", "own")] * 2
    for trial in trials:
        attempts = running.client.trial(trial["id"])["attempts"]
        assert [attempt["service"] for attempt in attempts] == ["pool", "own"]
        found = {kind: running.client.metrics(trial["id"], kind=kind) for kind in ("PERIODICAL", "FINAL")}
        assert [one["value"] for one in found["PERIODICAL"]] == [0, 1, 2]
        assert [one["value"] for one in found["FINAL"]] == [trial["parameters"]["x"]]
    with shared_server.client() as client:  # a worker that joins now finds nothing
        eventually(lambda: not client.keys(f"{prefix}:job:*"), 60)
