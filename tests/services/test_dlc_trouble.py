"""What goes wrong on PAI-DLC, and what becomes of trials then."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.platform_http import AccessRefused, Outage, Throttled
from nnilite.service import JobState
from nnilite.testing import BatchContract
from nnilite_dlc._sdk_calls import DlcCalls
from platforms.dlc.bench import QUICK, DlcBench, QuickDlc
from platforms.dlc.server import KEY, DlcServer, hang, refuse
from platforms.dlc.trouble import DlcTrouble

pytestmark = pytest.mark.process

CREATE = "POST /api/v1/jobs"
LIST = "GET /api/v1/jobs?"
LOG = "/logs"
REPORT = "import nnilite\nfor n in range(3): nnilite.report_intermediate_result(n)\nnnilite.report_final_result(9)"


@pytest.fixture
def server(tmp_path):
    with DlcServer(tmp_path / "dlc") as server:
        yield server
    assert server.broken + server.dlc.broken == []


@pytest.fixture
def opened(tmp_path, server):
    """Opens a bench with these fields of the section."""
    benches: list[DlcBench] = []

    def make(**fields) -> DlcBench:
        benches.append(DlcBench(tmp_path, server, **fields))
        return benches[-1].__enter__()

    yield make
    server.steps, server.key = [], KEY
    for bench in benches:
        bench.__exit__()


@pytest.fixture
def bench(opened):
    return opened()


def test_code_that_makes_each_job_too_large_is_refused_at_the_start(opened, monkeypatch):
    context = DlcBench.context
    monkeypatch.setattr(DlcBench, "context", lambda bench: replace(context(bench), defaults={"callback": "log"}))
    bench = opened()
    with pytest.raises(ConfigError, match=r"codeFrom: the job nni-.* bytes, and DLC takes 65536 .*\.nniignore"):
        bench.put_code(**{"data.bin": os.urandom(10_000).hex()})


@pytest.fixture
def patient(opened, monkeypatch):
    """A bench whose calls are tried for a while."""
    monkeypatch.setattr(QuickDlc, "patience", replace(QUICK, call_s=60.0))
    return opened()


class TestDlcTrouble(BatchContract):
    every_case = False

    @pytest.fixture
    def trouble(self, opened, server):
        return DlcTrouble(opened(), server)


def misbehave(server, part, *steps):
    server.steps_for, server.steps = part, list(steps)


# ------------------------------------------------------------ what can never work is told before anything starts


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"access_key_secret": "wrong"}, "accessKeySecret", "SignatureDoesNotMatch"),
        ({"access_key_id": "LTAInobody"}, "accessKeyId", "Specified access key is not found"),
        ({"workspace_id": "777"}, "workspaceId", "the workspace 777 does not exist"),
        ({"trial_gpu_number": 1}, "trialGpuNumber", "is 1, but ecs.g6.large has none: choose a larger one in ecsSpec"),
        ({"trial_gpu_number": 2, "ecs_spec": {"gpu": 1}}, "trialGpuNumber", "the pod that ecsSpec describes has 1"),
        ({"nni_manager_ip": None}, "callback", "set `callback: log`, so that trials report"),
    ],
)
def test_a_config_that_can_never_work_is_refused_at_its_field(opened, server, fields, place, words):
    with pytest.raises(ConfigError) as refused:
        opened(**fields)
    assert refused.value.place.field == place
    assert words in str(refused.value)
    assert "wrong" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not server.dlc.jobs


def test_an_image_that_is_not_there_fails_the_trial_in_dlcs_words(opened):
    bench = opened(image="registry.invalid/team/none:1")
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert "DLC says: ImagePullFailed: failed to pull image registry.invalid/team/none:1" in status.reason


def test_a_data_set_that_is_not_there_is_refused_for_good(opened, server):
    bench = opened(nas_data_source_id="d-none")
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, ConfigError)
    assert "the data set d-none does not exist" in str(error)


def test_code_that_is_too_large_for_a_job_is_refused_with_a_cure(opened, tmp_path):
    bench = opened(by_log=True)
    (bench.code / "weights.bin").write_bytes(os.urandom(300_000))
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, ConfigError)
    assert "have the code come from a storage (localStorageMountPoint)" in str(error)


# ------------------------------------------------------------ one job for each attempt, whatever is lost


def test_nothing_is_made_anew_before_dlc_has_had_time_to_list_what_it_has_made(bench, server, monkeypatch):
    monkeypatch.setattr(type(bench.service), "settle_s", 3600.0)
    server.loses_submissions, server.lists_late_s = 1, 3600.0
    job = bench.job("true")
    assert isinstance(bench.refusal(bench.service.submit(job)), Outage)
    error = bench.refusal(bench.service.submit(job))
    assert isinstance(error, ServiceError)
    assert not isinstance(error, NoCapacity)
    assert "DLC may have accepted" in str(error)
    server.dlc.named(job.name)[0].listed_from = 0.0
    bench.handles[job.name] = bench.call(bench.service.submit(job))
    assert bench.finish(job.name).exits[0]["code"] == 0
    assert len(server.dlc.jobs) == 1


def test_a_manager_that_ends_between_question_and_answer_finds_the_job(bench, server):
    is_made, never = threading.Event(), threading.Event()
    job = bench.job("true")
    made = server.create_job

    def make_and_hang(query, body):
        answer = made(query, body)
        is_made.set()
        never.wait(60)
        return answer

    async def submit_and_take_no_answer():
        submission = asyncio.ensure_future(bench.service.submit(job))
        await asyncio.to_thread(is_made.wait, 60)
        submission.cancel()
        await asyncio.wait([submission])

    server.create_job = make_and_hang
    bench.call(submit_and_take_no_answer())  # as by a manager that is killed
    server.create_job = made
    bench.close()
    never.set()
    bench.open()
    bench.handles[job.name] = bench.call(bench.service.submit(job))
    assert bench.finish(job.name).exits[0]["code"] == 0
    assert len(server.dlc.named(job.name)) == 1


def test_a_question_that_never_came_through_is_asked_again_in_the_end(bench, server, monkeypatch):
    monkeypatch.setattr(type(bench.service), "settle_s", 3600.0)
    misbehave(server, CREATE, refuse(500))
    job = bench.job("true")
    assert isinstance(bench.refusal(bench.service.submit(job)), Outage)
    assert isinstance(bench.refusal(bench.service.submit(job)), ServiceError)
    monkeypatch.setattr(type(bench.service), "settle_s", 0.0)
    bench.handles[job.name] = bench.call(bench.service.submit(job))
    assert bench.finish(job.name).exits[0]["code"] == 0
    assert len(server.dlc.named(job.name)) == 1


def test_a_second_job_of_the_same_attempt_is_stopped(bench, server):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    twin = server.dlc.create(server.dlc.named(name)[0].body)
    bench.eventually(lambda: bench.status(name) and twin.state == "Stopped")
    assert bench.status(name).state is JobState.RUNNING


def test_without_a_way_to_dlc_nothing_was_made_and_no_time_is_lost(bench, server):
    job = bench.job("true")
    server.listener.stop()
    assert isinstance(bench.refusal(bench.service.submit(job)), Outage)
    server.listener.start()
    bench.handles[job.name] = bench.call(bench.service.submit(job))
    assert bench.finish(job.name).exits[0]["code"] == 0


# ------------------------------------------------------------ outages and refusals


def test_a_failure_that_passes_is_no_error(patient, server):
    name = patient.run("exit 3")
    misbehave(server, "GET", refuse(500), lambda handler: handler.send(502, "text/html", b"<html>bad gateway"))
    assert patient.finish(name).exits[0]["code"] == 3


def test_a_dlc_that_hangs_holds_nobody_up_for_ever(opened, server, monkeypatch):
    bench = opened(request_timeout=40)
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    late, calls = threading.Event(), bench.service.api._calls
    assert calls._timeout_s == 40
    monkeypatch.setattr(calls, "_timeout_s", 0.5)
    misbehave(server, "GET", *[hang(late)] * 40)
    bench.ask_anew()
    assert "has not answered within 0.5 s" in str(bench.refusal(bench.service.poll([bench.handles[name]])))
    monkeypatch.undo()
    server.steps = []
    late.set()
    assert bench.status(name).state is JobState.RUNNING


def test_throttling_is_waited_out(patient, server):
    misbehave(server, "GET", refuse(429, "Throttling.User"), refuse(400, "Throttling"))
    assert patient.finish(patient.run("exit 3")).exits[0]["code"] == 3


def test_a_throttled_submission_has_made_nothing_and_is_made_again_at_once(bench, server):
    misbehave(server, CREATE, refuse(429, "Throttling.Api"))
    job = bench.job("true")
    assert isinstance(bench.refusal(bench.service.submit(job)), Throttled)
    bench.handles[job.name] = bench.call(bench.service.submit(job))
    assert bench.finish(job.name).exits[0]["code"] == 0


def test_a_job_for_which_there_is_no_room_waits_and_others_end(bench, server):
    misbehave(server, CREATE, refuse(400, "JobCountExceedQuota"), refuse(400, "InvalidParameter"))
    assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), NoCapacity)
    assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), ConfigError)


def test_patience_is_kept_when_dlc_asks_for_it(bench, server):
    misbehave(server, CREATE, refuse(429, "Throttling.User", x_acs_retry_after="300000"))
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 300
    before = len(server.seen)
    assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), Throttled)
    assert len(server.seen) == before


def test_a_key_that_is_disabled_says_nothing_of_the_jobs(bench, server):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    server.key = (KEY[0], "another")
    bench.ask_anew()
    error = bench.refusal(bench.service.poll([bench.handles[name]]))
    assert isinstance(error, AccessRefused)
    assert "accessKeyId and accessKeySecret belong together" in str(error)
    server.key = KEY
    assert bench.status(name).state is JobState.RUNNING


def test_calls_end_though_their_threads_do_not():
    late = threading.Event()
    with pytest.raises(Outage, match=r"has not answered within 0\.2 s \(the jobs\)"):
        asyncio.run(DlcCalls(0.2).run("the jobs", lambda: late.wait(600), patience_s=1.0))
    late.set()


# ------------------------------------------------------------ what becomes of jobs


def test_a_job_that_dlc_starts_anew_is_lost_and_stopped(bench, server):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    job = server.dlc.named(name)[0]
    server.dlc.start_anew(job)
    assert bench.wait(name).state is JobState.LOST
    bench.eventually(lambda: _removed(bench, name))
    assert job.state == "Stopped"


def _removed(bench, name):
    try:
        bench.call(bench.service.remove(bench.handles[name]))
    except ServiceError:
        return False
    return True


def test_a_job_that_waits_in_the_queue_tells_why_and_can_be_canceled(bench, server):
    server.dlc.room = 0
    name = bench.run("true")
    bench.eventually(lambda: "queued; JobEnqueued: waiting for resources of the quota" in bench.status(name).reason)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    assert server.dlc.named(name)[0].state == "Stopped"
