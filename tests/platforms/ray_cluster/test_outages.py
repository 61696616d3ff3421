"""Submissions that go wrong, outages, and reports by the log, on a stand-in of Ray."""

from __future__ import annotations

import io
import os
import zipfile

import pytest

from nnilite.errors import ConfigError, ServiceError
from nnilite.records import MetricKind
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_ray import _package
from platforms.ray_cluster.head import answer, cut, slow
from refusals import each_refusal

pytestmark = pytest.mark.usefixtures("impatient")

BY_LOG = {"report": "stdout", "callback": None}
REPORT = "import nnilite\nfor n in range(3): nnilite.report_intermediate_result(n)\nnnilite.report_final_result(9)"
TOKEN = "sesame-0123456789abcdef"


# ---------------------------------------------------------------- submitting


def test_an_answer_that_is_lost_on_its_way_does_not_start_a_job_twice(open_bench, head):
    bench = open_bench()
    job = bench.job(bench.tell("once"))
    head.loses_submissions = 1
    assert isinstance(bench.refusal(bench.service.submit(job)), ServiceError)
    bench.submit(job)
    assert bench.wait(job.name).state is JobState.SUCCEEDED
    assert bench.lines() == ["once"]


def test_the_code_goes_up_once_for_all_jobs_and_managers(open_bench, head):
    bench = open_bench()
    for _ in range(2):
        bench.finish(bench.run("true"))
        bench.restart()
    bench.finish(bench.run("true"))
    assert head.asked("PUT /api/packages/gcs/") == 1


def test_a_cluster_without_an_agent_for_jobs_lets_the_trial_wait(open_bench, head):
    bench = open_bench()
    head.steps, head.steps_for = [answer(500, b"No available agent to submit job, please try again later.")], "POST"
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ServiceError)
    assert "No available agent" in str(refusal)


@each_refusal
def test_each_refusal_of_a_job_is_what_it_means(open_bench, head, status, kind):
    bench = open_bench()
    head.steps, head.steps_for = [answer(status, b"these are the words") for _ in range(9)], "POST /api/jobs/"
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, kind)
    assert "these are the words" in str(refusal)


def test_code_that_ray_would_not_take_is_told_before_it_is_sent(open_bench, head, monkeypatch):
    monkeypatch.setattr(_package, "LIMIT_BYTES", 200_000)
    with pytest.raises(ConfigError, match=r"takes 0 MB at most: exclude files with \.nniignore") as caught:
        open_bench()
    assert caught.value.place.field == "codeFrom"
    assert head.asked("PUT") == 0


def test_a_proxy_that_takes_less_than_ray_is_told(open_bench, head):
    bench = open_bench()
    head.steps, head.steps_for = [answer(413, b"too large for me")], "PUT"
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ConfigError)
    assert "set codeFrom: manager" in str(refusal)


def test_parameters_that_are_too_large_for_an_environment_are_told(open_bench):
    bench = open_bench()
    noise = os.urandom(120_000).hex()
    refusal = bench.refusal(bench.service.submit(bench.job("true", parameters={"x": noise})))
    assert isinstance(refusal, ConfigError)
    assert "let the trial read large values from a file" in str(refusal)


def test_code_can_come_from_the_manager(open_bench, head):
    bench = open_bench(code_from="manager")
    bench.put_code(**{"mod.py": "VALUE = 7"})
    assert bench.finish(bench.python("import mod, nnilite; nnilite.report_final_result(mod.VALUE)")).values == [7]
    [package] = head.packages.values()
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".tar.gz")]


def test_checkpoints_stay_in_the_folder_that_all_nodes_share(open_bench, tmp_path):
    bench = open_bench(checkpoint_directory=str(tmp_path / "shared"), work_directory=str(tmp_path))
    name = bench.run('echo saved > "$NNILITE_CHECKPOINT_DIR"/model')
    bench.finish(name)
    [file] = (tmp_path / "shared").rglob("model")
    assert file.parent.name == bench.handles[name]["job"].split("-")[2]


# ---------------------------------------------------------------- outages


def test_a_long_outage_loses_nothing(open_bench, head):
    bench = open_bench()
    name = bench.run(f"{bench.until('go')}; exit 4")
    bench.wait(name, JobState.RUNNING)
    head.listener.stop()
    refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
    assert isinstance(refusal, ServiceError)
    assert "cannot be reached" in str(refusal)
    bench.give("go")
    eventually(lambda: bench.received(name).exits)
    head.listener.start()
    assert bench.wait(name).exit_code == 4


@pytest.mark.parametrize(
    "step", [answer(401), answer(403), answer(404), answer(429), answer(500), answer(200, b"<html>"), cut, slow(3)]
)
def test_trouble_with_the_list_says_nothing_of_jobs(open_bench, head, step):
    bench = open_bench(request_timeout=1)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    head.steps, head.steps_for = [step] * 9, "GET /api/jobs/"
    assert isinstance(bench.refusal(bench.service.poll([bench.handles[name]])), ServiceError)
    head.steps = []
    assert bench.status(name).state is JobState.RUNNING


@pytest.mark.parametrize("body", [b"{}", b'[null, 3, {"submission_id": 7}]', b'"text"'])
def test_a_list_that_makes_no_sense_says_nothing_of_jobs(open_bench, head, body):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    head.steps, head.steps_for = [answer(200, body)], "GET /api/jobs/"
    refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
    assert refusal is None or isinstance(refusal, ServiceError)
    assert bench.status(name).state is JobState.RUNNING


def test_a_login_that_expires_in_the_middle_keeps_running_trials(open_bench, head):
    head.token = TOKEN
    bench = open_bench(token=TOKEN)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    head.token = "another-0123456789"
    refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
    assert isinstance(refusal, ServiceError)
    assert "403" in str(refusal)
    head.token = TOKEN
    assert bench.status(name).state is JobState.RUNNING


def test_all_jobs_are_polled_by_one_call(open_bench, head):
    bench = open_bench()
    names = [bench.run("sleep 60") for _ in range(4)]
    for name in names:
        bench.wait(name, JobState.RUNNING)
    before = len(head.seen)
    bench.call(bench.service.poll([bench.handles[name] for name in names]))
    assert head.seen[before:] == ["GET /api/jobs/"]


# ---------------------------------------------------------------- callback: log


def test_reports_output_and_code_find_their_way_without_one_to_the_manager(open_bench):
    bench = open_bench(BY_LOG)
    bench.put_code(**{"mod.py": "VALUE = 7"})
    name = bench.python(f"import mod, sys\nprint('seen', mod.VALUE)\nprint('x' * 20000, file=sys.stderr)\n{REPORT}")
    received = bench.finish(name)
    assert [kind for kind, _, _ in received.metrics] == [MetricKind.PERIODICAL] * 3 + [MetricKind.FINAL]
    assert received.values == [0, 1, 2, 9]
    assert received.output["stdout"].count(b"seen 7\n") == 1
    assert b"Runtime env" not in received.output["stdout"]
    assert received.requests == 0


def test_what_the_manager_could_not_take_is_read_in_the_log(open_bench):
    bench = open_bench({"linger_s": 0.5})
    name = bench.python(
        f"import os, time\nwhile not os.path.exists({str(bench.sign('go'))!r}): time.sleep(0.02)\n{REPORT}"
    )
    eventually(lambda: bench.received(name).started)
    bench.receiver.stop()
    bench.give("go")
    assert bench.wait(name).exit_code == 0
    assert bench.finish(name).values == [0, 1, 2, 9]
    bench.receiver.start()
