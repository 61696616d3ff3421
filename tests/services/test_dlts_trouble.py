"""What goes wrong on DLTS: logins, quotas, images, outages, lost jobs; each in words, and nothing else is lost."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.records import MetricKind
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_dlts import _api
from platforms.dlts.bench import DltsBench, QuickDlts
from platforms.dlts.dashboard import PASSWORD, Dashboard, answer
from refusals import each_refusal

pytestmark = pytest.mark.process

BY_LOG = {"report": "stdout", "callback": None}
REPORT = "import nnilite\nfor n in range(3): nnilite.report_intermediate_result(n)\nnnilite.report_final_result(9)"


@pytest.fixture
def dashboard(tmp_path):
    with Dashboard(tmp_path / "dlts") as dashboard:
        yield dashboard
    assert dashboard.broken + dashboard.cluster.broken == []


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A call is given up soon."""
    monkeypatch.setattr(_api, "_PATIENCE_S", 1.0)


@pytest.fixture
def open_bench(tmp_path, dashboard):
    """Opens a bench whose jobs have this in their specifications, and whose section has these fields."""
    opened = []

    def make(common=None, **fields):
        opened.append(DltsBench(tmp_path, dashboard, {"linger_s": 1, **(common or {})}, **fields))
        return opened[-1].__enter__()

    yield make
    dashboard.steps, dashboard.password, dashboard.forgets = [], PASSWORD, False
    for bench in opened:
        bench.__exit__()


# ---------------------------------------------------------------- when it opens


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"password": "00000000000000000000000000000000"}, "password", "email and password belong together"),
        ({"team": "nobody"}, "team", "no team 'nobody'"),
        ({"cluster": "Mars"}, "team", "Cluster is not found"),
        ({"gpu_number": 5}, "gpuNumber", "5 GPUs of type P40, and a node has 4"),
        ({"gpu_type": "A100"}, "gpuType", "no GPUs 'A100'; it has P40"),
    ],
)
def test_what_can_never_work_is_told_with_its_field(open_bench, fields, place, words):
    with pytest.raises(ConfigError, match=words) as caught:
        open_bench(**fields)
    assert caught.value.place.field == place
    assert PASSWORD not in str(caught.value)


def test_a_team_with_fewer_gpus_than_a_node_refuses_a_trial_that_is_too_large(open_bench, dashboard):
    dashboard.cluster.quota = 2
    with pytest.raises(ConfigError, match=r"3 GPUs of type P40, but the team .* has 2"):
        open_bench(gpu_number=3)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_dashboard_in_trouble_is_no_fault_of_the_config(open_bench, dashboard, status):
    dashboard.steps = [answer(status) for _ in range(20)]
    with pytest.raises(ServiceError) as caught:
        open_bench()
    assert str(status) in str(caught.value)
    assert not isinstance(caught.value, ConfigError)


# ---------------------------------------------------------------- secrets


def test_the_login_is_in_no_log_and_in_no_error(open_bench, dashboard, kept_log):
    bench = open_bench()
    bench.finish(bench.run("true"))
    dashboard.steps = [answer(502), answer(403), answer(400)]
    handle = next(iter(bench.handles.values()))
    errors = [str(bench.refusal(bench.service.poll([handle]))) for _ in range(2)]
    assert "/api/v2/clusters/" in kept_log.text
    assert PASSWORD not in kept_log.text + "".join(errors)
    assert all(query["password"] == PASSWORD for _, _, query in dashboard.seen)


def test_a_dry_run_shows_the_request_without_login_and_asks_nobody(open_bench, dashboard):
    bench = open_bench(gpu_number=1)
    before = len(dashboard.seen)
    told = bench.service.describe(bench.job("echo hi"))
    assert told["request"] == f"POST {dashboard.url}/api/clusters/.default/jobs"
    assert told["body"]["resourcegpu"] == 1
    assert {entry["value"] for entry in told["body"]["env"]} == {"********"}
    assert PASSWORD not in json.dumps(told)
    assert len(dashboard.seen) == before


# ---------------------------------------------------------------- waiting


def test_a_job_over_the_quota_of_the_user_says_so_and_runs_when_it_is_approved(open_bench, dashboard):
    bench = open_bench(gpu_number=2)
    first, second = bench.run("sleep 60"), bench.run("true")
    status = eventually(lambda: next((s for s in [bench.status(second)] if "user quota" in s.reason), None))
    assert (status.state, status.url) == (
        JobState.WAITING,
        f"{dashboard.url}/jobs-v2/.default/{dashboard.job(second).id}",
    )
    assert "2 (used) + 2 (requested) > 3" in status.reason
    bench.wait(first, JobState.RUNNING)
    dashboard.cluster.operate(dashboard.job(second).id, "approve")
    assert bench.wait(second).state is JobState.SUCCEEDED


def test_an_image_that_cannot_be_pulled_is_told_and_given_up(open_bench):
    bench = open_bench(image="no.invalid/image", image_pull_limit=1)
    name = bench.run("true")
    waiting = eventually(lambda: next((s for s in [bench.status(name)] if "ErrImagePull" in s.reason), None))
    assert waiting.state is JobState.WAITING
    assert "given up after 1 s: no.invalid/image" in bench.wait(name, JobState.FAILED).reason


# ---------------------------------------------------------------- the ends of jobs


def test_a_trial_that_cannot_be_started_fails_with_the_sentence_of_its_keeper(open_bench):
    bench = open_bench()
    status = bench.wait(bench.run("true", report="by pigeon"))
    assert (status.state, status.exit_code) == (JobState.FAILED, None)
    assert "report must be rest or stdout" in status.reason


def test_a_command_that_dies_without_a_word_fails_with_the_words_of_dlts(open_bench, dashboard):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.job(name).process.kill()
    assert bench.wait(name).reason == f"pod {dashboard.job(name).id} failed"


def test_a_job_that_is_put_back_into_the_queue_is_lost_and_removed(open_bench, dashboard):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.cluster.quota = -1
    dashboard.cluster.requeue(dashboard.job(name).id)
    assert "taken it off its node" in bench.wait(name, JobState.LOST).reason
    bench.remove(bench.handles[name])
    eventually(lambda: dashboard.job(name).state == "killed")
    assert dashboard.job(name).runs == 1


def test_a_job_that_was_started_anew_unseen_is_lost(open_bench, dashboard):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.cluster.requeue(dashboard.job(name).id)
    eventually(lambda: dashboard.job(name).runs == 2)
    assert "started it again" in bench.wait(name, JobState.LOST).reason


def test_a_job_that_somebody_pauses_is_lost_and_one_that_somebody_kills_is_canceled(open_bench, dashboard):
    bench = open_bench()
    paused, killed = bench.run("sleep 60"), bench.run("sleep 60")
    for name in (paused, killed):
        bench.wait(name, JobState.RUNNING)
    dashboard.cluster.grace_s = 0.1
    dashboard.cluster.operate(dashboard.job(paused).id, "pause")
    dashboard.cluster.operate(dashboard.job(killed).id, "kill")
    assert "was paused on DLTS" in bench.wait(paused, JobState.LOST).reason
    assert bench.wait(killed).state is JobState.CANCELED


def test_a_cancellation_that_dlts_refuses_is_told_and_can_be_asked_again(open_bench, dashboard):
    bench = open_bench(BY_LOG)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.steps, dashboard.steps_for = [answer(200, b'{"result": "Cannot Kill the job."}')], "/status"
    assert "Cannot Kill the job" in str(bench.refusal(bench.service.cancel(bench.handles[name])))
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED


# ---------------------------------------------------------------- submitting


def test_an_answer_that_is_lost_on_its_way_does_not_start_a_job_twice(open_bench, dashboard):
    bench = open_bench()
    job = bench.job(f"echo once >> {shlex.quote(str(bench.mark()))}")
    dashboard.loses_submissions = 1
    assert isinstance(bench.refusal(bench.service.submit(job)), ServiceError)
    bench.submit(job)
    assert bench.wait(job.name).state is JobState.SUCCEEDED
    assert bench.lines() == ["once"]
    assert dashboard.asked("POST ") == 1


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("Cannot create job!Access Denied!", ConfigError, "may not submit jobs for this team"),
        ("Cannot create job!ERROR: Invalid numpsworker value", ConfigError, "Invalid numpsworker"),
        ("Cannot schedule job. Cannot add job into database.", ServiceError, "Cannot add job into database"),
    ],
)
def test_a_refusal_that_comes_as_200_is_one(open_bench, dashboard, error, kind, words):
    bench = open_bench()
    job = bench.job("true")
    dashboard.steps_for = "/clusters/.default/jobs"
    dashboard.steps = [answer(200, b"{}"), answer(200, json.dumps({"error": error}).encode()), answer(200, b"{}")]
    refusal = bench.refusal(bench.service.submit(job))
    assert isinstance(refusal, kind)
    assert words in str(refusal)


@each_refusal
def test_each_status_is_looked_at_when_a_job_is_submitted(open_bench, dashboard, status, kind):
    bench = open_bench()
    dashboard.steps, dashboard.steps_for = [answer(status, b"the reason") for _ in range(9)], ".default/jobs"
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, kind)
    assert f"{status}" in str(refusal)
    assert "the reason" in str(refusal)


def test_code_that_is_too_large_to_travel_with_the_job_is_refused_with_the_cure(open_bench):
    bench = open_bench(BY_LOG)
    bench.put_code(**{"data.txt": "".join(str(hash(str(n))) for n in range(90_000))})
    refusal = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refusal, ConfigError)
    assert "leave files out by .nniignore" in str(refusal)


def test_a_manager_that_trials_could_not_reach_is_refused_at_the_start_of_an_experiment(open_bench):
    with pytest.raises(ConfigError, match=r"nniManagerIp: trials would connect to the manager .* or set callback: log"):
        open_bench(nni_manager_ip=None)


def test_a_manager_that_trials_cannot_reach_any_more_lets_new_ones_wait(open_bench):
    bench = open_bench()
    bench.wait(bench.run("sleep 60"), JobState.RUNNING)
    bench.service.config = replace(bench.service.config, nni_manager_ip=None)
    bench.call(bench.service.close())
    bench.call(bench.service.open())
    assert isinstance(refusal := bench.refusal(bench.service.submit(bench.job("true"))), NoCapacity)
    assert "or set callback: log" in str(refusal)


# ---------------------------------------------------------------- outages


def test_an_outage_is_told_as_one_and_loses_nothing(open_bench, dashboard):
    bench = open_bench()
    name = bench.python(f"import time\n{REPORT}")
    bench.wait(name, JobState.RUNNING)
    dashboard.listener.stop()
    assert isinstance(bench.refusal(bench.service.poll([bench.handles[name]])), ServiceError)
    eventually(lambda: bench.received(name).exits)
    dashboard.listener.start()
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.finish(name).values == [0, 1, 2, 9]


def test_an_expired_login_keeps_what_runs(open_bench, dashboard):
    bench = open_bench()
    name = bench.run("sleep 2; exit 4")
    bench.wait(name, JobState.RUNNING)
    dashboard.password = "another"
    refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
    assert isinstance(refusal, ServiceError)
    assert "403" in str(refusal)
    dashboard.password = PASSWORD
    assert bench.wait(name).exit_code == 4


def test_a_database_that_fails_for_a_moment_loses_no_job(open_bench, dashboard, monkeypatch):
    monkeypatch.setattr(QuickDlts, "patience", replace(QuickDlts.patience, gone_s=60.0))
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.forgets = True
    assert bench.status(name).state is JobState.UNKNOWN
    assert "at the moment" in bench.status(name).reason
    dashboard.forgets = False
    assert bench.status(name).state is JobState.RUNNING


def test_a_job_that_is_canceled_while_dlts_does_not_know_it_is_ended_later(open_bench, dashboard, monkeypatch):
    monkeypatch.setattr(QuickDlts, "patience", replace(QuickDlts.patience, gone_s=60.0))
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.forgets = True
    bench.call(bench.service.cancel(bench.handles[name]))
    dashboard.forgets = False
    assert bench.wait(name).state is JobState.CANCELED


@pytest.mark.parametrize("body", [b"<html>login</html>", b"[1, null]", b'{"half": ', b'"text"'])
def test_an_answer_that_makes_no_sense_says_nothing_of_jobs(open_bench, dashboard, body):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.steps = [answer(200, body) for _ in range(2)]
    refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
    dashboard.steps = []
    assert refusal is None or isinstance(refusal, ServiceError)
    assert bench.status(name).state is JobState.RUNNING


def test_all_jobs_are_polled_by_one_call(open_bench, dashboard):
    bench = open_bench()
    names = [bench.run("sleep 60") for _ in range(4)]
    for name in names:
        bench.wait(name, JobState.RUNNING)
    before = len(dashboard.seen)
    found = bench.call(bench.service.poll([bench.handles[name] for name in names]))
    assert [status.state for status in found] == [JobState.RUNNING] * 4
    assert len(dashboard.seen) - before == 1


# ---------------------------------------------------------------- callback: log


@pytest.mark.parametrize("kind", ["azure", "elastic", "legacy"])
def test_reports_output_and_code_find_their_way_without_one_to_the_manager(open_bench, dashboard, kind):
    dashboard.log_kind = kind
    bench = open_bench(BY_LOG)
    bench.put_code(**{"mod.py": "VALUE = 7"})
    name = bench.python(f"import mod, sys\nprint('seen', mod.VALUE)\nprint('x' * 20000, file=sys.stderr)\n{REPORT}")
    received = bench.finish(name)
    assert received.values == [0, 1, 2, 9]
    assert [kind for kind, _, _ in received.metrics] == [MetricKind.PERIODICAL] * 3 + [MetricKind.FINAL]
    assert b"seen 7\n" in received.output["stdout"]
    assert received.requests == 0
    assert b"seen 7\n" in bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 100_000))


def test_the_end_is_not_told_before_the_log_has_come_to_its_end(open_bench, dashboard):
    dashboard.log_kind = "none"
    bench = open_bench(BY_LOG)
    name = bench.python(REPORT)
    eventually(lambda: dashboard.job(name).state == "finished")
    assert "end of its log is awaited" in bench.status(name).reason
    dashboard.log_kind = "azure"
    assert bench.finish(name).values == [0, 1, 2, 9]


def test_a_log_that_never_comes_does_not_hold_the_end_up_for_ever(open_bench, dashboard, monkeypatch):
    monkeypatch.setattr(QuickDlts, "patience", replace(QuickDlts.patience, log_lag_s=0.1))
    dashboard.log_kind = "none"
    bench = open_bench(BY_LOG)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    assert bench.wait(bench.run("exit 3")).exit_code is None


def test_what_the_manager_could_not_take_is_read_in_the_log(open_bench):
    bench = open_bench({"linger_s": 0.5})
    go = bench.mark("go")
    name = bench.python(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n{REPORT}")
    eventually(lambda: bench.received(name).started)
    bench.receiver.stop()
    go.touch()
    assert bench.wait(name).exit_code == 0
    assert bench.finish(name).values == [0, 1, 2, 9]
    bench.receiver.start()


def test_a_version_that_reads_the_other_list_of_variables_gets_them_too(open_bench, dashboard):
    dashboard.cluster.reads = "env"
    bench = open_bench()
    assert bench.finish(bench.python(REPORT)).values == [0, 1, 2, 9]


def test_code_can_come_from_the_home_folder_that_all_share(open_bench):
    bench = open_bench(BY_LOG, code_from="home")
    bench.put_code(**{"mod.py": "VALUE = 7", "data.txt": "".join(str(hash(str(n))) for n in range(90_000))})
    name = bench.python("import mod, nnilite; nnilite.report_final_result(mod.VALUE)")
    assert bench.finish(name).values == [7]


def test_the_stand_in_notices_what_is_outside_of_the_contract(tmp_path):
    with Dashboard(tmp_path / "other") as dashboard:
        with DltsBench(tmp_path, dashboard) as bench:
            api = bench.service.api
            bench.refusal(api.submit({"jobName": "no team", "resourcegpu": -1}))
            bench.refusal(api._get("no/such/path"))
            bench.refusal(api._call(_api.HttpRequest("PUT", "clusters/c/jobs/j/status", body={"status": "dead"})))
    assert len(dashboard.broken) == 3
