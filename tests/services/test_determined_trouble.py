"""What goes wrong on Determined, and what becomes of trials then."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nnilite.errors import ConfigError, ServiceError
from nnilite.platform_http import Throttled
from nnilite.records import UNSTARTED
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_determined import DeterminedConfig
from nnilite_determined import _context as contexts
from nnilite_determined import _service as services
from nnilite_determined._config import DeterminedStorage
from nnilite_determined._convert import end_status
from platforms.determined.bench import DeterminedBench, maker
from platforms.determined.cluster import MISSING_IMAGE
from platforms.determined.master import Master

pytestmark = pytest.mark.process

WAIT = "while ! test -e '{}'; do sleep 0.05; done"
SAVE = """
import nnilite, os, pathlib, signal, sys, time
def stop(*_):
    with nnilite.checkpoint("state") as path: path.write_text("saved")
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
found = nnilite.checkpoint_dir() / "state"
nnilite.report_intermediate_result(found.read_text() if found.exists() else "none")
if not found.exists(): time.sleep(60)
"""


@pytest.fixture
def master(tmp_path):
    with Master(tmp_path / "cluster") as master:
        yield master


@pytest.fixture
def opened(tmp_path, master):
    """Opens a bench with these fields of the section."""
    benches: list[DeterminedBench] = []

    def make(**fields) -> DeterminedBench:
        benches.append(DeterminedBench(tmp_path, maker(master, **fields)))
        return benches[-1].__enter__()

    yield make
    for bench in benches:
        bench.__exit__()


@pytest.fixture
def bench(opened):
    return opened()


def _refused(tmp_path: Path, master: Master, **fields) -> ConfigError:
    bench = DeterminedBench(tmp_path / "refused", maker(master, **fields))
    with pytest.raises(ConfigError) as refused:
        bench.__enter__()
    return refused.value


# ------------------------------------------------------------ what can never work is told before anything starts


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"password": "wrong"}, "password", "401"),
        ({"password": None, "token": "wrong"}, "token", "401"),
        ({"resource_pool": "tpu"}, "resourcePool", "choose one of: default, gpu"),
        ({"resource_pool": "gpu", "slots": 3}, "slots", "asks for 3 slots, but the resource pool gpu has 2"),
        ({"workspace": "Nowhere", "project": "nni"}, "workspace", "no workspace 'Nowhere'"),
        ({"workspace": "Research", "project": "other"}, "project", "project 'other' not found"),
    ],
)
def test_a_config_that_can_never_work_is_refused_at_its_field(tmp_path, master, fields, place, words):
    error = _refused(tmp_path, master, **fields)
    assert error.place.field == place
    assert words in str(error)
    assert not master.cluster.experiments


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "token"),
        ({"token": "x", "workspace": "w"}, "project"),
        ({"token": "x", "priority": 100}, "priority"),
        ({"token": "x", "environment": {"a b": "1"}}, "environment"),
        ({"token": "x", "expconf": {"searcher": {}}}, "expconf"),
        ({"token": "x", "expconf": {"labels": []}}, "expconf"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, place):
    with pytest.raises(ConfigError) as refused:
        DeterminedConfig(master="http://x", **fields)
    assert refused.value.place.field == place


def test_code_that_is_too_large_is_refused_before_anything_is_sent(tmp_path, master, monkeypatch):
    monkeypatch.setattr(contexts, "CONTEXT_LIMIT_BYTES", contexts._SPEC_BYTES + 1000)
    error = _refused(tmp_path, master)
    assert error.place.field == "codeFrom"
    assert "Determined takes a context directory of" in str(error)
    assert master.seen == []


def test_the_limit_is_that_of_determineds_own_client():
    assert contexts.CONTEXT_LIMIT_BYTES == 99_614_720


# ------------------------------------------------------------ an outage


def test_an_outage_loses_nothing(bench, master, tmp_path):
    name = bench.run(WAIT.format(tmp_path / "go") + "; exit 5")
    bench.wait(name, JobState.RUNNING)
    master.misbehave("/api/v1", 1000)
    with pytest.raises(ServiceError):
        bench.call(bench.service.poll([bench.handles[name]]), 60)
    master.misbehavior.clear()
    (tmp_path / "go").touch()
    assert bench.finish(name).exits[0]["code"] == 5
    assert bench.status(name).exit_code == 5


@pytest.mark.parametrize("how", [{"status": 502, "body": b"<html>proxy</html>"}, {"status": 503}, {"status": 0}])
def test_a_submission_whose_answer_is_lost_is_not_made_twice(bench, master, how):
    job = bench.job("true")
    master.misbehave("POST /api/v1/experiments", 1, after=True, **how)
    assert isinstance(bench.refusal(bench.service.submit(job)), ServiceError)
    bench.submit(job)
    assert bench.finish(job.name).exits[0]["code"] == 0
    assert [one.config["name"] for one in master.cluster.experiments.values()] == [job.name]


def test_patience_is_kept_when_determined_asks_for_it(bench, master):
    master.misbehave("POST /api/v1/experiments", 1, status=429, headers={"Retry-After": "300"})
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 300


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413])
def test_a_submission_that_determined_refuses_is_told_in_its_words(bench, master, status):
    body = json.dumps({"error": {"code": 3, "reason": "x", "error": "the priority is taken"}}).encode()
    master.misbehave("POST /api/v1/experiments", 1, status=status, body=body)
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert "the priority is taken" in str(error)
    assert str(status) in str(error)


def test_an_expired_session_is_renewed_while_trials_run(bench, master):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    master.cluster.token = "another session's token"
    assert bench.status(name).state is JobState.RUNNING
    assert master.cluster.logins == 2


def test_a_log_that_is_cut_says_nothing_of_the_end(bench, master):
    name = bench.run("exit 4")
    master.misbehave("/logs?", 1, status=200, body=b'{"result": {"id": "1", "lo')
    eventually(lambda: bench.status(name).state in (JobState.UNKNOWN, JobState.FAILED))
    assert bench.wait(name).exit_code == 4


# ------------------------------------------------------------ one job's fate


def test_what_a_trial_waits_for_is_told_in_determineds_words(opened):
    bench = opened(resource_pool="gpu", slots=2)
    first, second, third = (bench.run("sleep 60") for _ in range(3))
    bench.wait(first, JobState.RUNNING)
    assert bench.status(second).reason == "queued in the resource pool gpu for 2 slots"
    assert bench.status(third).reason.endswith(", 1 jobs ahead of it")
    assert "/det/experiments/" in bench.status(second).url


def test_an_image_that_is_not_there_ends_the_trial_with_determineds_words(opened):
    bench = opened(image=MISSING_IMAGE)
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert MISSING_IMAGE in status.reason


def test_a_lost_container_is_a_lost_job(bench, master):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    master.cluster.lose(master.cluster.named(name))
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "container failed with non-zero exit code" in status.reason


def test_a_preempted_trial_saves_itself_and_goes_on_in_the_next_attempt(bench, master):
    job = bench.job(f"{sys.executable} -c '{SAVE}'", trial="Tsave")
    name = bench.submit(job)
    eventually(lambda: bench.received(name).values == ["none"])
    master.cluster.preempt(master.cluster.named(name))
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert master.cluster.named(name).acknowledged == 1
    assert bench.finish(_again(bench, job)).values == ["saved"]


def _again(bench: DeterminedBench, job) -> str:
    """Submit the next attempt of a job; its name."""
    number = job.attempt + 1
    name = f"{job.name.rpartition('-')[0]}-{number}"
    bench.receiver.expect(name, job.spec["token"])
    spec = {**job.spec, "job": name, "attempt": number}
    return bench.submit(type(job)(name, job.experiment, job.trial, number, job.sequence, spec, job.gpus))


def test_a_trial_that_is_paused_on_determined_waits_there_in_its_next_attempt(bench, master):
    job = bench.job(f"{sys.executable} -c '{SAVE}'", trial="Tsave")
    name = bench.submit(job)
    eventually(lambda: bench.received(name).values == ["none"])
    master.cluster.pause(master.cluster.named(name))
    assert "paused" in bench.wait(name).reason
    bench.call(bench.service.remove(bench.handles[name]))
    bench.restart()  # the manager that goes on knows of the pause as well
    again = _again(bench, job)
    assert bench.status(again).reason == "the job is paused on Determined; activate it there"
    master.cluster.activate(master.cluster.named(again))
    assert bench.finish(again).values == ["saved"]


def test_determineds_own_checkpoints_are_handed_on_to_the_next_attempt(bench, master):
    job = bench.job("sleep 60", trial="Tsave")
    name = bench.submit(job)
    bench.wait(name, JobState.RUNNING)
    saved = master.cluster.checkpoint(master.cluster.named(name))
    master.cluster.lose(master.cluster.named(name))
    bench.wait(name)
    job.spec["command"] = 'cat "$NNILITE_CHECKPOINT_DIR"/determined-latest/weights; echo " $DET_LATEST_CHECKPOINT"'
    received = bench.finish(_again(bench, job))
    assert received.output["stdout"].decode() == f"of Determined {saved}\n"


def test_a_canceled_trial_that_does_not_hear_of_it_is_killed(bench, master, monkeypatch):
    monkeypatch.setattr(services, "_KILL_AFTER_S", 0.5)
    master.misbehave("/signals/preemption", 1000, status=500)
    name = bench.run("sleep 60", grace_s=0.5)
    bench.wait(name, JobState.RUNNING)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    assert any(line.endswith("/kill") for line in master.seen)


def test_trials_that_somebody_has_deleted_are_lost(bench, master):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    gone = master.cluster.named(name)
    master.cluster.cancel(gone, kill=True)
    eventually(lambda: gone.container is None)
    master.cluster.delete(gone)
    assert bench.wait(name).state is JobState.LOST


@pytest.mark.parametrize("wish", ["archive", "keep", "delete"])
def test_an_ended_experiment_is_left_as_the_section_says(opened, master, wish):
    bench = opened(when_finished=wish)
    name = bench.run("true")
    bench.finish(name)
    for _ in range(2):
        bench.call(bench.service.remove(bench.handles[name]))
    left = [one.archived for one in master.cluster.experiments.values()]
    assert left == {"archive": [True], "keep": [False], "delete": []}[wish]


def test_a_running_job_that_is_removed_is_ended_first(bench, master):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    eventually(lambda: bench.refusal(bench.service.remove(bench.handles[name])) is None)
    assert master.cluster.named(name).state == "STATE_CANCELED"


# ------------------------------------------------------------ what is asked and sent


def test_one_listing_tells_of_all_jobs(bench, master):
    names = [bench.run("sleep 60") for _ in range(5)]
    for name in names:
        bench.wait(name, JobState.RUNNING)
    master.seen.clear()
    statuses = bench.call(bench.service.poll([bench.handles[name] for name in names]))
    assert [status.state for status in statuses] == [JobState.RUNNING] * 5
    assert len([call for call in master.seen if "/allocations/" not in call]) == 1  # those are the containers' own


def test_all_fields_reach_determined(opened, master):
    bench = opened(
        workspace="Research", project="nni", resource_pool="gpu", slots=1, image="python:3.11", priority=7,
        shm_size=2048, labels=["mine"], environment={"A": "it's $x"},
        expconf={"environment": {"force_pull_image": True}},
        bind_mounts=[], checkpoint_storage=None,
    )  # fmt: skip
    name = bench.run("true", parameters={"lr": 0.1})
    bench.finish(name)
    config = master.cluster.named(name).config
    assert config["resources"] == {"slots_per_trial": 1, "resource_pool": "gpu", "priority": 7, "shm_size": "2048 MiB"}
    assert config["environment"]["environment_variables"] == ["A=it's $x"]
    assert config["environment"]["force_pull_image"] is True
    assert (config["workspace"], config["project"], config["labels"][0]) == ("Research", "nni", "mine")
    assert config["hyperparameters"] == {"lr": {"type": "const", "val": 0.1}}


def test_the_code_may_come_from_the_manager(opened, master):
    bench = opened(code_from="manager")
    bench.put_code(**{"mod.py": "print('found')"})
    name = bench.run("python3 mod.py")
    assert bench.finish(name).exits[0]["code"] == 0
    assert [entry["path"] for entry in master.cluster.named(name).files] == [
        "nnilite",
        "nnilite/spec",
        "nnilite/keeper",
    ]


def test_trials_that_cannot_reach_the_manager_report_by_their_log(tmp_path, master):
    with DeterminedBench(tmp_path, maker(master), report="stdout", callback=None) as bench:
        name = bench.python("import nnilite; print('hello'); nnilite.report_final_result(0.5)")
        received = bench.finish(name)
        assert received.values == [0.5]
        assert received.output["stdout"] == b"hello\n"


def test_no_secret_is_told_in_a_dry_run(opened):
    storage = DeterminedStorage(type="s3", bucket="b", access_key="k", secret_key="very secret")
    bench = opened(checkpoint_storage=storage)
    text = json.dumps(bench.service.describe(bench.job("true")))
    assert "very secret" not in text
    assert '"bucket": "b"' in text


def test_a_start_that_its_machine_failed_and_a_fenced_run_are_lost_and_not_failed():
    for cause, reason in (("machine", f"{UNSTARTED}: no space"), ("fenced", "no space")):
        status = end_status("STATE_ERROR", {"code": None, "cause": cause, "message": "no space"}, "", "")
        assert (status.state, status.reason) == (JobState.LOST, reason)
