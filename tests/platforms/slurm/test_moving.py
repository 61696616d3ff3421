"""A trial that waits in Slurm for longer than `moveAfter` moves to another service."""

from __future__ import annotations

import pytest

from moving import REPORTING, check_moved
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def test_trials_that_slurm_does_not_start_move_and_report_once(start, slurm, tmp_path):
    cluster = {"platform": "slurm", "name": "cluster", "sbatchLines": ["--hold"], "nniManagerIp": "127.0.0.1"}
    cluster["directory"] = str(tmp_path / "shared")
    own = {"platform": "local", "name": "own", "maxTrials": 2}
    running = start(REPORTING, trainingService=[cluster, own], placement="fill", moveAfter="1s", maxTrialNumber=2)
    running.wait("DONE")
    check_moved(running, "cluster", "own")
    eventually(lambda: f"nni-{running.entry.id}-" not in slurm.command("squeue", "-h", "-o", "%j"), 60)
