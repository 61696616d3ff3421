"""Trials on real hosts, over real SSH."""

from __future__ import annotations

import pytest

from nnilite.service import JobState

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

REPORT = """python3 -c '
import nnilite
nnilite.report_intermediate_result(1)
nnilite.report_final_result(nnilite.get_next_parameter()["x"])
'"""


def test_a_trial_runs_on_a_host_and_its_reports_come_back(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run(REPORT, parameters={"x": 7})
    received = bench.finish(name)
    assert received.values == [1, 7]
    assert received.started[0]["host"] == hosts[0].name
    assert bench.wait(name).state is JobState.SUCCEEDED
