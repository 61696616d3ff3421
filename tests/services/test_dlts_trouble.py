"""What goes wrong on DLTS, and what becomes of trials then."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.testing import BatchContract, eventually
from platforms.dlts.bench import QuickDlts
from platforms.dlts.dashboard import PASSWORD, answer
from platforms.dlts.trouble import DltsTrouble

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def hasty(dashboard):
    """Jobs that are ended get a moment."""
    dashboard.cluster.grace_s = 0.1


class TestDltsTrouble(BatchContract):
    every_case = False

    @pytest.fixture
    def trouble(self, open_dlts, dashboard):
        return DltsTrouble(open_dlts(), dashboard)


# ------------------------------------------------------------ what can never work is said before anything starts


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"password": "00000000000000000000000000000000"}, "password", "email and password belong together"),
        ({"team": "nobody"}, "team", "no team 'nobody'"),
        ({"cluster": "Mars"}, "team", "Cluster is not found"),
        ({"gpu_number": 5}, "gpuNumber", "5 GPUs of type P40, but a node has 4"),
        ({"gpu_type": "A100"}, "gpuType", "no GPUs 'A100'; it has P40"),
        ({"nni_manager_ip": None}, "nniManagerIp", "trials would connect to the manager .* or set callback: log"),
    ],
)
def test_a_config_that_can_never_work_is_refused_at_its_field(open_dlts, fields, place, words):
    with pytest.raises(ConfigError, match=words) as caught:
        open_dlts(**fields)
    assert caught.value.place.field == place
    assert PASSWORD not in str(caught.value)


def test_a_team_with_fewer_gpus_than_a_node_refuses_a_trial_that_is_too_large(open_dlts, dashboard):
    dashboard.cluster.quota = 2
    with pytest.raises(ConfigError, match=r"3 GPUs of type P40, but the team .* has 2"):
        open_dlts(gpu_number=3)


def test_the_login_is_in_no_log_and_in_no_error(open_dlts, dashboard, kept_log):
    bench = open_dlts()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.steps = [answer(502), answer(403)]
    told: list[str] = []

    def answered() -> bool:  # a listing that is still fresh is not asked for again
        told.append(str(bench.refusal(bench.service.poll([bench.handles[name]]))))
        return not dashboard.steps

    bench.eventually(answered)
    told.append(kept_log.text)
    assert "/api/v2/clusters/" in "".join(told)
    assert PASSWORD not in "".join(told)
    assert all(query["password"] == PASSWORD for _, _, query in dashboard.seen)


# ------------------------------------------------------------ submitting


def test_a_refusal_that_comes_as_200_is_one(open_dlts, dashboard):
    bench = open_dlts()
    dashboard.steps_for = "/clusters/.default/jobs"
    for error, kind, words in (
        ("Cannot create job!Access Denied!", ConfigError, "may not submit jobs for this team"),
        ("Cannot create job!ERROR: Invalid numpsworker value", ConfigError, "Invalid numpsworker"),
        ("Cannot schedule job. Cannot add job into database.", ServiceError, "Cannot add job into database"),
    ):
        dashboard.steps = [answer(200, b"{}"), answer(200, json.dumps({"error": error}).encode()), answer(200, b"{}")]
        refusal = bench.refusal(bench.service.submit(bench.job("true")))
        assert isinstance(refusal, kind)
        assert words in str(refusal)


def test_a_job_over_the_quota_of_the_user_says_so_and_runs_when_it_is_approved(open_dlts, dashboard):
    bench = open_dlts(gpu_number=2)
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


def test_an_image_that_cannot_be_pulled_is_told_and_given_up(open_dlts):
    bench = open_dlts(image="no.invalid/image", image_pull_limit=1)
    name = bench.run("true")
    waiting = eventually(lambda: next((s for s in [bench.status(name)] if "ErrImagePull" in s.reason), None))
    assert waiting.state is JobState.WAITING
    assert "given up after 1 s: no.invalid/image" in bench.wait(name, JobState.FAILED).reason


# ------------------------------------------------------------ what becomes of jobs


def test_a_command_that_dies_without_a_word_fails_with_the_words_of_dlts(open_dlts, dashboard, monkeypatch):
    monkeypatch.setattr(QuickDlts, "patience", replace(QuickDlts.patience, log_lag_s=0.1))
    bench = open_dlts()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.job(name).process.kill()
    assert bench.wait(name).reason == f"pod {dashboard.job(name).id} failed"


def test_a_job_that_was_started_again_unseen_is_lost(open_dlts, dashboard):
    bench = open_dlts()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.cluster.requeue(dashboard.job(name).id)
    eventually(lambda: dashboard.job(name).runs == 2)
    assert "started it again" in bench.wait(name, JobState.LOST).reason


def test_a_job_that_is_paused_is_lost(open_dlts, dashboard):
    bench = open_dlts()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.cluster.operate(dashboard.job(name).id, "pause")
    assert "was paused on DLTS" in bench.wait(name, JobState.LOST).reason


def test_a_cancellation_that_dlts_refuses_is_told_and_can_be_asked_again(open_dlts, dashboard):
    bench = open_dlts({"report": "stdout", "callback": None})
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    dashboard.steps, dashboard.steps_for = [answer(200, b'{"result": "Cannot Kill the job."}')], "/status"
    assert "Cannot Kill the job" in str(bench.refusal(bench.service.cancel(bench.handles[name])))
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED


def test_an_answer_that_makes_no_sense_says_nothing_of_jobs(open_dlts, dashboard):
    bench = open_dlts()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    for body in (b"<html>login</html>", b"[1, null]", b'{"half": ', b'"text"'):
        dashboard.steps = [answer(200, body)] * 2
        refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
        dashboard.steps = []
        assert refusal is None or isinstance(refusal, ServiceError)
        assert bench.status(name).state is JobState.RUNNING
