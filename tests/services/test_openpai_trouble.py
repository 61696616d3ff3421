"""What goes wrong on OpenPAI, with whom, and how it is told. What runs meanwhile is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import quoted
from nnilite_openpai import _api
from platforms.pai.bench import QuickService
from platforms.pai.server import Answered, Fault, refused

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Ten minutes of an outage are a second here."""
    monkeypatch.setattr(_api, "_PATIENCE_S", 0.3)


def fault(status, code="", message="", method="GET", path="/api/v2/jobs", times=1):
    return Fault(method, path, refused(status, code, message), times)


# ------------------------------------------------------------ when it opens


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"token": "wrong"}, "token: OpenPAI answers 401 .*Your token is invalid"),
        ({"password": "wrong"}, "password: OpenPAI answers 400 .*Password is incorrect.; see that username and"),
        ({"username": "nobody", "password": "x"}, "password: OpenPAI answers 404 .*User nobody is not found"),
        ({"virtual_cluster": "visions"}, "virtualCluster: mei may use no .*'visions'; there are: default, vision"),
        ({"trial_gpu_number": 9}, "virtualCluster: a trial needs 9 GPUs, and the virtual cluster default has 8"),
        (
            {"trial_memory_size": 500_000},
            "a trial needs 500000 MB of memory, and the virtual cluster default has 400000",
        ),
        ({"storage_config_name": "date"}, "storageConfigName: mei cannot use a storage 'date'; choose one of: data"),
    ],
)
def test_what_can_never_work_is_told_before_anything_starts(open_pai, monkeypatch, fields, words):
    monkeypatch.setattr("nnilite.testing.bench.ServiceBench.context", _with_gpus(fields.pop("trial_gpu_number", None)))
    with pytest.raises(ConfigError, match=words):
        open_pai(**fields)


def _with_gpus(number):
    from nnilite.testing import ServiceBench

    context = ServiceBench.context
    return lambda bench: replace(context(bench), defaults={"trialGpuNumber": number})


def test_another_server_is_no_openpai(pai, open_pai):
    pai.faults.append(Fault("GET", "/api/v2/info", Answered(404, b"<html>nginx</html>", "text/html")))
    with pytest.raises(ConfigError, match=r"host: OpenPAI answers 404 to GET .*/rest-server/api/v2/info"):
        open_pai()


def test_openpai_on_yarn_is_refused_with_the_reason(pai, open_pai):
    pai.launcher = "yarn"
    with pytest.raises(ConfigError, match=r"host: the OpenPAI at .* runs on YARN, as NNI's paiYarn did"):
        open_pai()


def test_a_cluster_that_is_away_may_be_back_later(pai, open_pai):
    pai.listener.stop()
    with pytest.raises(ServiceError, match="OpenPAI cannot be reached"):
        open_pai()


# ------------------------------------------------------------ submitting


@pytest.mark.parametrize(
    ("status", "code", "message", "error"),
    [
        (400, "InvalidProtocolError", "Hived error: Job requests 9 SKUs, exceeds maximum 8 SKUs in VC", ConfigError),
        (403, "ForbiddenUserError", "User mei is not allowed to access vision", ServiceError),
        (413, "", "request entity too large", ConfigError),
        (500, "UnknownError", "database is away", ServiceError),
    ],
)
def test_a_refused_job_is_told_in_the_platforms_words(pai, open_pai, status, code, message, error):
    bench = open_pai()
    pai.faults.append(fault(status, code, message, "POST", times=99))
    found = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(found, error)
    assert message in str(found)


def test_the_hourly_limit_of_submissions_lets_trials_wait_and_others_be_watched(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 0.5")
    pai.submissions_left = 0
    found = [bench.refusal(bench.service.submit(bench.job("true"))) for _ in range(3)]
    assert all(isinstance(one, NoCapacity) for one in found)
    assert "accepts no more jobs of mei for now: too many were submitted" in str(found[0])
    assert pai.count("POST /api/v2/jobs") == 2
    assert bench.wait(name).state is JobState.SUCCEEDED


@pytest.mark.parametrize("answer", [refused(503, "", "restarting"), None])
def test_a_job_whose_submission_was_not_answered_runs_once(pai, open_pai, monkeypatch, answer):
    monkeypatch.setattr(_api, "_PATIENCE_S", 10.0)
    bench = open_pai()
    pai.faults.append(Fault("POST", "/api/v2/jobs", answer))
    name = bench.run(f"echo once >> {quoted(bench.mark())}")
    bench.wait(name)
    assert bench.lines() == ["once"]


def test_parameters_that_are_too_long_for_a_job_are_refused_before_it_is_sent(pai, open_pai):
    bench = open_pai()
    found = bench.refusal(bench.service.submit(bench.job("true", parameters={"x": _noise(90_000)})))
    assert isinstance(found, ConfigError)
    assert "PAI takes 102400" in str(found)
    assert not pai.count("POST /api/v2/jobs")


def _noise(length):
    import random

    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


# ------------------------------------------------------------ while trials run


def test_an_outage_loses_nothing(pai, open_pai):
    bench = open_pai()
    name = bench.python("import nnilite; nnilite.report_final_result(0.5)")
    pai.listener.stop()
    # The list that the submission has fetched is good for a moment.
    bench.eventually(lambda: isinstance(bench.refusal(bench.service.poll([bench.handles[name]])), ServiceError))
    pai.listener.start()
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.finish(name).values == [0.5]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503])
def test_no_answer_to_a_list_says_that_a_job_is_lost(pai, open_pai, status):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    pai.faults.append(fault(status, "", "the reason", times=99))
    refusal = eventually(lambda: bench.refusal(bench.service.poll([bench.handles[name]])))
    assert isinstance(refusal, ServiceError)
    assert str(status) in str(refusal)
    pai.faults.clear()
    assert bench.wait(name, JobState.RUNNING)


def test_a_login_that_expires_is_renewed_by_the_password(pai, open_pai):
    bench = open_pai(password=pai.password)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    pai.tokens.clear()
    assert eventually(lambda: pai.logins == 2 or (bench.status(name), False)[1])
    assert bench.status(name).state is JobState.RUNNING


def test_a_token_that_expires_leaves_trials_alone(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 1")
    pai.tokens.clear()
    refusal = eventually(lambda: bench.refusal(bench.service.poll([bench.handles[name]])))
    assert isinstance(refusal, ServiceError)
    assert "see that the login is right and has not expired" in str(refusal)
    pai.tokens.add(pai.token)
    assert bench.wait(name).state is JobState.SUCCEEDED


def test_all_jobs_of_an_experiment_are_asked_for_by_one_list(pai, open_pai):
    bench = open_pai()
    names = [bench.run("sleep 60") for _ in range(5)]
    for name in names:
        bench.wait(name, JobState.RUNNING)
    pai.seen.clear()
    handles = [bench.handles[name] for name in names]
    eventually(lambda: bench.call(bench.service.poll(handles)) and len(pai.seen) > 3)
    assert all(line.startswith("GET /api/v2/jobs?") for line in pai.seen)


def test_a_waiting_job_says_why_in_the_clusters_words(pai, open_pai):
    bench = open_pai()
    pai.holds = True
    name = bench.run("true")
    reason = "FailedScheduling: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    eventually(lambda: reason in bench.status(name).reason)
    assert "waits for resources, or for its image, in the virtual cluster default" in bench.status(name).reason
    assert bench.status(name).url == f"{pai.url}/job-detail.html?username=mei&jobName={name}"


def test_a_job_that_vanishes_is_lost(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    pai.jobs.pop(name).stop()
    bench.eventually(lambda: bench.status(name).reason == "PAI does not know the job at the moment")
    status = bench.wait(name)
    assert (status.state, status.reason) == (JobState.LOST, "PAI no longer knows the job")


@pytest.mark.parametrize(
    ("code", "state", "words"),
    [
        (-1003, JobState.LOST, "PodPreemptedForCriticalPod (it was preempted"),
        (-1001, JobState.LOST, "PodNodeLost"),
        (-200, JobState.FAILED, "PAI advises: Check diagnostics and revise your job config"),
        (-1200, JobState.FAILED, "UserContainerDockerOOMKilled: User Container killed by docker"),
        (-300, JobState.LOST, "PodFailedWithoutFailedContainer"),
        (251, JobState.LOST, "JobGangAllocationTimeout"),
        (137, JobState.LOST, "ContainerSigKillReceived"),
    ],
)
def test_what_the_platform_has_ended_is_told_as_it_explains_it(pai, open_pai, code, state, words):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    pai.job(name).end(code)
    status = bench.wait(name)
    assert status.state is state
    assert words in status.reason


def test_an_image_that_does_not_exist_fails_the_trial(open_pai):
    bench = open_pai(docker_image="no/such:image")
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert "ContainerImageNotExists: Pull access denied" in status.reason


@pytest.mark.parametrize(("code", "state"), [(3, JobState.FAILED), (137, JobState.LOST), (0, JobState.SUCCEEDED)])
def test_without_a_log_the_platforms_exit_code_counts(pai, open_pai, code, state):
    pai.has_logs = False
    bench = open_pai()
    status = bench.wait(bench.run(f"exit {code}"))
    assert status.state is state
    assert status.exit_code == (None if state is JobState.LOST else code)


def test_a_log_that_cannot_be_read_now_is_waited_for(pai, open_pai, monkeypatch):
    monkeypatch.setattr(QuickService, "patience", replace(QuickService.patience, log_lag_s=60.0))
    bench = open_pai()
    pai.faults.append(fault(503, "", "away", "GET", "/log-manager/.*", 99))
    name = bench.run("exit 137")
    eventually(lambda: bench.status(name).state is JobState.UNKNOWN)
    pai.faults.clear()
    assert bench.wait(name).exit_code == 137


def test_a_job_that_the_platform_starts_again_is_lost_and_stopped(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.status(name)
    pai.holds = True
    pai.start_again(name)
    assert "PAI took the job off its node to start it again" in bench.wait(name).reason
    bench.call(bench.service.remove(bench.handles[name]))
    assert pai.job(name).state == "STOPPED"


def test_a_job_that_the_platform_began_anew_while_no_manager_was_there_is_lost_and_stopped(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.restart()
    pai.start_again(name)
    assert "PAI started the job again" in bench.wait(name, JobState.LOST).reason
    bench.call(bench.service.remove(bench.handles[name]))
    assert pai.job(name).state == "STOPPED"


def test_a_keeper_that_does_not_hear_its_manager_is_stopped_by_the_platform(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60", grace_s=0.2, heartbeat_s=0.2)
    bench.wait(name, JobState.RUNNING)
    bench.receiver.stop()
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.status(name).reason == "the job is being canceled"
    assert bench.wait(name).state is JobState.CANCELED
    bench.receiver.start()


def test_removing_a_job_that_still_runs_stops_it(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.call(bench.service.remove(bench.handles[name]))
    assert eventually(lambda: pai.job(name).state == "STOPPED")


def test_neither_token_nor_password_nor_tokens_of_logs_are_logged(pai, open_pai, kept_log):
    bench = open_pai(password=pai.password)
    pai.faults.append(fault(503, "", "away", "GET", "/log-manager/.*", 99))
    bench.wait(bench.run("exit 3"))
    text = kept_log.text + json.dumps(bench.service.describe(bench.job("true")))
    assert "secret-of-logs" not in text
    assert pai.password not in text
    assert not [token for token in pai.tokens if token in text]
