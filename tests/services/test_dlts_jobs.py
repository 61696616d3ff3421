"""What jobs on DLTS are made of: variables, code, and logs by which they report."""

from __future__ import annotations

import json

import pytest

from nnilite.errors import ConfigError
from nnilite.records import MetricKind
from nnilite.testing import eventually
from platforms.dlts.dashboard import PASSWORD

pytestmark = pytest.mark.process

BY_LOG = {"report": "stdout", "callback": None}
REPORT = "import nnilite\nfor n in range(3): nnilite.report_intermediate_result(n)\nnnilite.report_final_result(9)"


def test_a_dry_run_shows_the_request_without_login_and_asks_nobody(open_dlts, dashboard):
    bench = open_dlts(gpu_number=1)
    before = len(dashboard.seen)
    told = bench.service.describe(bench.job("echo hi"))
    assert told["request"] == f"POST {dashboard.url}/api/clusters/.default/jobs"
    assert told["body"]["resourcegpu"] == 1
    assert {entry["value"] for entry in told["body"]["env"]} == {"********"}
    assert PASSWORD not in json.dumps(told)
    assert len(dashboard.seen) == before


def test_code_that_is_too_large_to_travel_with_the_job_is_refused_with_the_cure(open_dlts):
    bench = open_dlts(BY_LOG)
    bench.put_code(**{"data.txt": "".join(str(hash(str(n))) for n in range(90_000))})
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ConfigError)
    assert "exclude files with .nniignore" in str(refusal)


def test_a_version_that_reads_the_other_list_of_variables_gets_them_too(open_dlts, dashboard):
    dashboard.cluster.reads = "env"
    bench = open_dlts()
    assert bench.finish(bench.python(REPORT)).values == [0, 1, 2, 9]


def test_code_can_come_from_the_home_folder_that_all_share(open_dlts):
    bench = open_dlts(BY_LOG, code_from="home")
    bench.put_code(**{"mod.py": "VALUE = 7", "data.txt": "".join(str(hash(str(n))) for n in range(90_000))})
    name = bench.python("import mod, nnilite; nnilite.report_final_result(mod.VALUE)")
    assert bench.finish(name).values == [7]


@pytest.mark.parametrize("kind", ["elastic", "legacy"])
def test_reports_output_and_code_come_by_the_log_where_no_trial_reaches_the_manager(open_dlts, dashboard, kind):
    dashboard.log_kind = kind
    bench = open_dlts(BY_LOG)
    bench.put_code(**{"mod.py": "VALUE = 7"})
    name = bench.python(f"import mod, sys\nprint('seen', mod.VALUE)\nprint('x' * 20000, file=sys.stderr)\n{REPORT}")
    received = bench.finish(name)
    assert received.values == [0, 1, 2, 9]
    assert [kind for kind, _, _ in received.metrics] == [MetricKind.PERIODICAL] * 3 + [MetricKind.FINAL]
    assert b"seen 7\n" in received.output["stdout"]
    assert received.requests == 0
    assert b"seen 7\n" in bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 100_000))


def test_what_the_manager_could_not_take_is_read_in_the_log(open_dlts):
    bench = open_dlts({"linger_s": 0.5})
    go = bench.mark("go")
    name = bench.python(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n{REPORT}")
    eventually(lambda: bench.received(name).started)
    bench.receiver.stop()
    go.touch()
    assert bench.wait(name).exit_code == 0
    assert bench.finish(name).values == [0, 1, 2, 9]
    bench.receiver.start()
