"""What goes wrong on OpenPAI, and what becomes of trials then."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, NoCapacity
from nnilite.service import JobState
from nnilite.testing import BatchContract, ServiceBench, eventually
from platforms.pai.server import Answered, Fault, refused
from platforms.pai.trouble import PaiTrouble

pytestmark = pytest.mark.process


class TestOpenPaiTrouble(BatchContract):
    every_case = False

    @pytest.fixture
    def trouble(self, open_pai, pai):
        return PaiTrouble(open_pai(), pai)


# ------------------------------------------------------------ what can never work is said before anything starts


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"token": "wrong"}, "token: OpenPAI answers 401 .*Your token is invalid"),
        ({"password": "wrong"}, "password: OpenPAI answers 400 .*Password is incorrect.; check username and"),
        ({"virtual_cluster": "visions"}, "virtualCluster: mei cannot use .*'visions'; choose one of: default, vision"),
        ({"storage_config_name": "date"}, "storageConfigName: mei cannot use a storage 'date'; choose one of: data"),
    ],
)
def test_a_config_that_can_never_work_is_refused_at_its_field(open_pai, fields, words):
    with pytest.raises(ConfigError, match=words):
        open_pai(**fields)


def test_a_trial_that_is_larger_than_its_virtual_cluster_is_refused(open_pai, monkeypatch):
    context = ServiceBench.context
    monkeypatch.setattr(ServiceBench, "context", lambda bench: replace(context(bench), defaults={"trialGpuNumber": 9}))
    with pytest.raises(
        ConfigError, match="virtualCluster: a trial needs 9 GPUs, and the virtual cluster default has 8"
    ):
        open_pai()


def test_another_server_is_no_openpai(pai, open_pai):
    pai.faults.append(Fault("GET", "/api/v2/info", Answered(404, b"<html>nginx</html>", "text/html")))
    with pytest.raises(ConfigError, match=r"host: OpenPAI answers 404 to GET .*/rest-server/api/v2/info"):
        open_pai()


def test_openpai_on_yarn_is_refused_with_the_reason(pai, open_pai):
    pai.launcher = "yarn"
    with pytest.raises(ConfigError, match=r"host: the OpenPAI at .* runs on YARN, as NNI's paiYarn did"):
        open_pai()


# ------------------------------------------------------------ while trials run


def test_the_hourly_limit_of_submissions_lets_trials_wait_and_others_be_watched(pai, open_pai):
    bench = open_pai()
    name = bench.run("true")
    pai.submissions_left = 0
    found = [bench.refusal(bench.service.submit(bench.job("true"))) for _ in range(3)]
    assert all(isinstance(one, NoCapacity) for one in found)
    assert "accepts no more jobs of mei for now: too many were submitted" in str(found[0])
    assert pai.count("POST /api/v2/jobs") == 2
    assert bench.wait(name).state is JobState.SUCCEEDED


def test_a_login_that_expires_is_renewed_by_the_password(pai, open_pai):
    bench = open_pai(password=pai.password)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    pai.tokens.clear()
    assert eventually(lambda: pai.logins == 2 or (bench.status(name), False)[1])
    assert bench.status(name).state is JobState.RUNNING


def test_a_waiting_job_says_why_in_the_clusters_words(pai, open_pai):
    bench = open_pai()
    pai.holds = True
    name = bench.run("true")
    reason = "FailedScheduling: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    eventually(lambda: reason in bench.status(name).reason)
    assert "waiting for resources, or for its image, in the virtual cluster default" in bench.status(name).reason
    assert bench.status(name).url == f"{pai.url}/job-detail.html?username=mei&jobName={name}"


def test_what_the_platform_has_ended_is_explained_as_it_does(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    pai.end(name, -1003)
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "PodPreemptedForCriticalPod (the job was preempted" in status.reason


def test_an_image_that_does_not_exist_fails_the_trial(open_pai):
    bench = open_pai(docker_image="no/such:image")
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert "ContainerImageNotExists: Pull access denied" in status.reason


def test_without_a_log_the_platforms_exit_code_counts(pai, open_pai):
    pai.has_logs = False
    bench = open_pai()
    status = bench.wait(bench.run("exit 3"))
    assert (status.state, status.exit_code) == (JobState.FAILED, 3)


@pytest.mark.parametrize("report", ["rest", "stdout"])
@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15)])
def test_a_trial_that_fails_keeps_its_exit_code_and_its_last_words(open_pai, report, command, code):
    bench = open_pai()
    name = bench.run(f"echo the last words; {command}", report=report)
    status = bench.wait(name)
    # By itself, 137 would be a failure of the platform, and the trial would run again.
    assert (status.state, status.exit_code) == (JobState.FAILED, code)
    assert bench.finish(name).output["stdout"] == b"the last words\n"


def test_a_job_that_the_platform_began_again_while_no_manager_was_there_is_lost_and_stopped(pai, open_pai):
    bench = open_pai()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.restart()
    pai.start_again(name)
    assert "PAI started the job again" in bench.wait(name, JobState.LOST).reason
    bench.call(bench.service.remove(bench.handles[name]))
    assert pai.job(name).state == "STOPPED"


def test_neither_token_nor_password_nor_tokens_of_logs_are_logged(pai, open_pai, kept_log):
    bench = open_pai(password=pai.password)
    pai.faults.append(Fault("GET", "/log-manager/.*", refused(503, "", "away"), 99))
    bench.wait(bench.run("exit 3"))
    text = kept_log.text + json.dumps(bench.service.describe(bench.job("true")))
    assert "secret-of-logs" not in text
    assert pai.password not in text
    assert not [token for token in pai.tokens if token in text]
