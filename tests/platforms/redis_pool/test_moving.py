"""A trial that waits in the pool for longer than `moveAfter` moves to another service."""

from __future__ import annotations

import pytest

from moving import REPORTING, check_moved
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def test_trials_that_no_worker_takes_move_and_report_once(start, shared_server, prefix):
    pool = {"platform": "redis", "name": "pool", "redis": shared_server.url, "prefix": prefix}
    own = {"platform": "local", "name": "own", "maxTrials": 2}
    running = start(REPORTING, trainingService=[pool, own], placement="fill", moveAfter="1s", maxTrialNumber=2)
    running.wait("DONE")
    check_moved(running, "pool", "own")
    with shared_server.client() as client:  # a worker that joins now finds nothing
        eventually(lambda: not client.keys(f"{prefix}:job:*"), 60)
