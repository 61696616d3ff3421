"""Trials on real hosts, over real SSH."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nnilite.errors import ConfigError
from nnilite.records import Output
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


def test_a_specification_that_no_keeper_takes_is_refused_for_good(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    job = bench.job("true")
    error = bench.refusal(bench.service.submit(replace(job, spec={**job.spec, "report": "stdout"})))
    assert isinstance(error, ConfigError)
    assert "no standard output of its own" in str(error)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_the_output_of_a_trial_whose_keeper_cannot_deliver_it_comes_with_its_reports(hosts, setting, bench_of):
    """Its end is known by its folder then, and nobody waits for the keeper after the end."""
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run("printf hello; printf trouble >&2")
    bench.wait(name)
    *_, trial, attempt = Path(bench.handles[name]["directory"]).parts
    here = bench.service.context.directory / "trials" / trial / attempt
    here.mkdir(parents=True, exist_ok=True)
    (here / "trial.stdout").write_bytes(b"he")
    (here / "trial.stderr").unlink(missing_ok=True)
    events = bench.call(bench.service.reports(bench.handles[name]))
    assert [event for event in events if isinstance(event, Output)] == [
        Output("stdout", 2, b"llo", events[-1].run),
        Output("stderr", 0, b"trouble", events[-1].run),
    ]
