"""A trial that waits in Slurm for longer than `moveAfter` moves to another service."""

from __future__ import annotations

import pytest

from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]

REPORTING = """
import nnilite
x = nnilite.get_next_parameter()["x"]
for step in range(3):
    nnilite.report_intermediate_result(step)
nnilite.report_final_result(x)
"""


def test_trials_that_slurm_does_not_start_move_and_report_once(start, slurm, tmp_path):
    cluster = {"platform": "slurm", "name": "cluster", "sbatchLines": ["--hold"], "nniManagerIp": "127.0.0.1"}
    cluster["directory"] = str(tmp_path / "shared")
    own = {"platform": "local", "name": "own", "maxTrials": 2}
    running = start(REPORTING, trainingService=[cluster, own], placement="fill", moveAfter="1s", maxTrialNumber=2)
    running.wait("DONE")
    trials = running.trials()
    assert [(trial["state"], trial["service"]) for trial in trials] == [("SUCCEEDED", "own")] * 2
    for trial in trials:
        attempts = running.client.trial(trial["id"])["attempts"]
        assert [attempt["service"] for attempt in attempts] == ["cluster", "own"]
        found = {kind: running.client.metrics(trial["id"], kind=kind) for kind in ("PERIODICAL", "FINAL")}
        assert [one["value"] for one in found["PERIODICAL"]] == [0, 1, 2]
        assert [one["value"] for one in found["FINAL"]] == [trial["parameters"]["x"]]
    eventually(lambda: f"nni-{running.entry.id}-" not in slurm.command("squeue", "-h", "-o", "%j"), 60)
