"""What goes wrong on a Ray cluster, on a stand-in that can be told to: each in words, and nothing else is lost."""

from __future__ import annotations

import json
import os
import signal

import pytest

from nnilite.errors import ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.batch_contract import lose_reports
from nnilite.testing.probes import runs
from platforms.ray_cluster.bench import have_patience
from platforms.ray_cluster.head import answer

BY_LOG = {"report": "stdout", "callback": None}
pytestmark = pytest.mark.usefixtures("impatient")

TOKEN = "sesame-0123456789abcdef"


# ---------------------------------------------------------------- when it opens


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({}, "token", r"asks for a token: on the head node `ray get-auth-token` prints it"),
        ({"token": "wrong-token"}, "token", "Ray does not accept this token"),
    ],
)
def test_a_login_that_is_wrong_is_told_with_its_field(open_bench, head, fields, place, words):
    head.token = TOKEN
    with pytest.raises(ConfigError, match=words) as caught:
        open_bench(**fields)
    assert caught.value.place.field == place
    assert "wrong-token" not in str(caught.value)


def test_a_ray_that_is_too_old_is_told(open_bench, head):
    head.version = "2.6.3"
    with pytest.raises(ConfigError, match=r"runs Ray 2\.6\.3, but trials need 2\.10 or later: upgrade") as caught:
        open_bench()
    assert caught.value.place.field == "address"


@pytest.mark.parametrize("version", ["2.10.0", "3.0.0.dev0", "nightly"])
def test_a_ray_that_is_new_enough_is_taken(open_bench, head, version):
    head.version = version
    assert open_bench().service


def test_an_address_where_no_ray_is_is_told(open_bench, head):
    head.steps = [answer(404, b"nothing here")]
    with pytest.raises(ConfigError, match=r"no dashboard of Ray with the Jobs interface of ray\[default\]"):
        open_bench()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_head_node_in_trouble_is_no_fault_of_the_config(open_bench, head, status):
    head.steps = [answer(status) for _ in range(20)]
    with pytest.raises(ServiceError, match=str(status)) as caught:
        open_bench()
    assert not isinstance(caught.value, ConfigError)


def test_headers_reach_a_proxy_with_each_call(open_bench, head):
    head.headers = {"X-Gate": "open-for-me-please"}
    bench = open_bench(headers={"X-Gate": "open-for-me-please"})
    assert bench.finish(bench.run("exit 3")).exits[0]["code"] == 3


def test_a_token_that_is_renewed_in_its_file_is_read_again(open_bench, head, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    head.token = TOKEN
    bench = open_bench(token_file=file)
    name = bench.run("sleep 60")
    head.token = "another-0123456789"
    file.write_text(head.token)
    head.steps = [answer(401)]
    assert bench.wait(name, JobState.RUNNING)


def test_a_manager_that_trials_cannot_reach_is_told(open_bench):
    with pytest.raises(ConfigError, match=r"listens on this machine's loopback only.*set callback: log") as caught:
        open_bench(nni_manager_ip=None)
    assert caught.value.place.field == "nniManagerIp"


# ---------------------------------------------------------------- secrets


def test_tokens_are_in_no_log_and_in_no_error(open_bench, head, kept_log):
    head.token = TOKEN
    bench = open_bench(token=TOKEN)
    name = bench.run("true")
    bench.finish(name)
    head.steps = [answer(502, TOKEN.encode()), answer(403, TOKEN.encode())]
    told = [str(bench.refusal(bench.service.poll([bench.handles[name]]))) for _ in range(2)]
    assert TOKEN not in kept_log.text + "".join(told)


def test_a_trial_finds_neither_its_token_nor_how_to_get_it(open_bench):
    bench = open_bench(runtime_env={"env_vars": {"MINE": "yes"}})
    program = "import nnilite, os; nnilite.report_final_result(dict(os.environ))"
    [env] = bench.finish(bench.python(program)).values
    config = json.loads(env["RAY_JOB_CONFIG_JSON_ENV_VAR"])
    assert not [name for name in env if name.startswith("NNILITE_START")]
    assert config["runtime_env"] == {"env_vars": {"MINE": "yes"}}
    assert env["MINE"] == "yes"


def test_a_dry_run_shows_the_request_and_asks_nobody(open_bench, head):
    bench = open_bench(entrypoint_num_gpus=0.5, entrypoint_memory=512, runtime_env={"pip": ["torch"]})
    before = len(head.seen)
    told = bench.service.describe(bench.job("echo hi"))
    assert told["request"] == f"POST {head.url}/api/jobs/"
    assert told["body"]["entrypoint_num_gpus"] == 0.5
    assert told["body"]["entrypoint_memory"] == 512 * 1024**2
    assert told["body"]["runtime_env"]["pip"] == ["torch"]
    assert told["body"]["runtime_env"]["env_vars"]["NNILITE_START"] == "********"
    assert len(head.seen) == before


# ---------------------------------------------------------------- waiting


def test_a_job_that_waits_says_for_what(open_bench, head):
    bench = open_bench(entrypoint_num_cpus=5)
    first, second = bench.run("sleep 60"), bench.run("true")
    bench.wait(first, JobState.RUNNING)
    # What is in use is asked for at intervals: the first answer can be from before the first job began.
    bench.eventually(
        lambda: bench.status(second).reason == "the job is waiting for 5 CPU on one node: 5 of 8 CPU are in use"
    )
    status = bench.status(second)
    assert status.state is JobState.WAITING
    assert status.url == f"{head.url}/#/jobs/{second}"
    head.add_node("10.0.0.2", CPU=5)
    assert bench.wait(second).state is JobState.SUCCEEDED


def test_a_job_that_no_node_can_have_says_so_and_runs_when_one_joins(open_bench, head):
    bench = open_bench(entrypoint_num_gpus=2)
    name = bench.run("true")
    assert "no node of the cluster has 2 GPU (the largest has 0)" in bench.status(name).reason
    head.add_node("10.0.0.2", CPU=4, GPU=2)
    assert bench.wait(name).host == "10.0.0.2"


def test_a_cluster_that_does_not_tell_what_is_in_use_has_its_own_words(open_bench, head):
    head.usage_works = False
    bench = open_bench(entrypoint_num_cpus=100)
    assert "may be waiting for resources" in bench.status(bench.run("true")).reason


def test_a_job_that_ray_could_not_start_in_time_goes_on_waiting(open_bench, head):
    head.start_timeout_s = 0.3
    bench = open_bench(entrypoint_num_gpus=1)
    name = bench.run("exit 3")
    eventually(lambda: "the job was submitted again" in bench.status(name).reason)
    eventually(lambda: "the job was submitted again" in bench.status(name).reason)
    head.add_node("10.0.0.2", CPU=4, GPU=1)
    assert bench.wait(name).exit_code == 3
    assert head.asked("POST /api/jobs/") >= 3


def test_a_job_that_ray_gave_up_and_whose_code_has_changed_is_lost(open_bench, head):
    head.start_timeout_s = 0.3
    bench = open_bench(entrypoint_num_gpus=1)
    name = bench.run("true")
    bench.put_code(**{"new.py": "x = 1"})
    assert "dropped its code" in bench.wait(name, JobState.LOST).reason


def test_a_job_that_is_canceled_while_it_waits_is_gone(open_bench, head):
    bench = open_bench(entrypoint_num_gpus=1)
    name = bench.run("true")
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    eventually(lambda: bench.refusal(bench.service.remove(bench.handles[name])) is None)
    eventually(lambda: bench.refusal(bench.service.remove(bench.handles[name])) is None and not head.jobs)


def test_a_job_that_waits_and_cannot_be_ended_will_not_run(open_bench, head, monkeypatch):
    have_patience(monkeypatch, give_up_pending_s=0.1)
    bench = open_bench(entrypoint_num_gpus=1)
    name = bench.run(bench.tell("ran"))
    bench.call(bench.service.cancel(bench.handles[name]))
    assert "while it waited" in bench.wait(name, JobState.CANCELED).reason
    assert isinstance(bench.refusal(bench.service.remove(bench.handles[name])), ServiceError)
    head.add_node("10.0.0.2", CPU=4, GPU=1)
    eventually(lambda: bench.refusal(bench.service.remove(bench.handles[name])) is None)
    assert bench.lines() == []


# ---------------------------------------------------------------- the ends of jobs


def test_a_node_that_dies_loses_its_jobs_with_a_reason_and_no_others(open_bench, head):
    node = head.add_node("10.0.0.2", CPU=4, special=1)
    bench = open_bench(entrypoint_resources={"special": 1})
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    head.kill_node(node)
    status = bench.wait(name, JobState.LOST)
    assert status.reason.startswith("Ray lost the job: The actor is dead because its node has died")
    assert status.host == "10.0.0.2"


def test_a_trial_whose_keeper_is_killed_ends_and_its_metrics_arrive(open_bench, head):
    bench = open_bench()
    program = "import nnilite, os, time; nnilite.report_intermediate_result(os.getpid()); time.sleep(60)"
    name = bench.python(program, heartbeat_s=60)
    eventually(lambda: bench.received(name).values)
    head.kill_supervisor(head.jobs[name])
    assert "low on memory" in bench.wait(name, JobState.LOST).reason
    eventually(lambda: not runs(bench.received(name).values[0]))
    eventually(lambda: not list(head.nodes[0].folder.glob("nnilite-*")))


def test_what_a_killed_keeper_has_not_delivered_is_in_the_log(open_bench, head):
    bench = open_bench(BY_LOG)
    name = bench.python("import nnilite, time; nnilite.report_intermediate_result(7); time.sleep(60)")
    eventually(lambda: bench.report(name).values)
    head.kill_supervisor(head.jobs[name])
    bench.wait(name, JobState.LOST)
    eventually(lambda: not list(head.nodes[0].folder.glob("nnilite-*")))
    assert bench.report(name).values == [7]


def test_nothing_of_an_ended_trial_stays_on_its_node(open_bench, head):
    bench = open_bench()
    bench.finish(bench.run('touch "$NNI_OUTPUT_DIR"/model'))
    eventually(lambda: not list(head.nodes[0].folder.glob("nnilite-*")))


def test_a_job_that_comes_back_after_its_removal_is_removed_again(open_bench, head, monkeypatch):
    head.brings_back_s = 60.0
    have_patience(monkeypatch, comes_back_s=0.5)
    bench = open_bench()
    name = bench.run("true")
    bench.finish(name)
    bench.call(bench.service.remove(bench.handles[name]))
    assert eventually(lambda: name in head.jobs)
    bench.close()
    assert name not in head.jobs


def test_a_cluster_that_was_started_anew_has_lost_the_jobs(open_bench, head):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    head.restart()
    status = bench.wait(name, JobState.LOST)
    assert status.reason == "the cluster was restarted and does not know the job (session_1 is over)"
    assert bench.finish(bench.run("true")).exits


def test_a_job_that_somebody_has_deleted_is_lost(open_bench, head):
    bench = open_bench()
    name = bench.run("true")
    eventually(lambda: head.jobs[name].over)
    del head.jobs[name]
    assert bench.wait(name, JobState.LOST).reason == "Ray no longer knows the job"


def test_a_job_that_somebody_stops_is_canceled(open_bench, head):
    bench = open_bench()
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    head.jobs[name].stop_asked = True
    assert bench.wait(name).state is JobState.CANCELED


def test_a_job_that_its_node_ends_is_lost(open_bench, head):
    bench = open_bench()
    name = bench.run(f"{bench.tell('up')}; sleep 60")
    bench.eventually(bench.lines)
    os.kill(head.jobs[name].process.pid, signal.SIGTERM)
    assert bench.wait(name, JobState.LOST).reason == "the job's node ended it"


def test_a_job_whose_keeper_ended_without_a_word_is_lost(open_bench, head):
    bench = open_bench()
    name = bench.run(f"{bench.tell('up')}; sleep 60")
    bench.eventually(bench.lines)
    os.kill(head.jobs[name].process.pid, signal.SIGKILL)
    assert "the trial's keeper was killed on the node" in bench.wait(name, JobState.LOST).reason


def test_a_node_without_a_folder_for_trials_fails_them_in_words(open_bench):
    bench = open_bench(work_directory="/nowhere/at/all")
    status = bench.wait(bench.run("true"), JobState.FAILED)
    assert status.reason.startswith("cannot create a folder for the trial's files")


def test_a_runtime_environment_that_cannot_be_made_fails_the_trial_in_words(open_bench, head):
    bench = open_bench(entrypoint_num_gpus=1)
    name = bench.run("true")
    said = "runtime_env setup failed: Failed to set up runtime environment.\nValueError: no such package: zzz"
    head.jobs[name].end("FAILED", said, "RUNTIME_ENV_SETUP_FAILURE")
    status = bench.wait(name, JobState.FAILED)
    assert status.reason == "Ray could not set up the runtime environment: ValueError: no such package: zzz"


def test_a_package_that_ray_has_dropped_loses_the_job_and_goes_up_again(open_bench, head):
    bench = open_bench(entrypoint_num_gpus=1)
    name = bench.run("true")
    head.packages.clear()
    head.add_node("10.0.0.2", CPU=4, GPU=1)
    assert bench.wait(name).state is JobState.LOST
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_reports_that_the_log_has_lost_come_by_the_recap(open_bench, monkeypatch):
    lose_reports(monkeypatch, [0, 2])
    bench = open_bench(BY_LOG)
    received = bench.finish(bench.python("import nnilite\nfor n in range(3): nnilite.report_intermediate_result(n)"))
    assert received.values == [0, 1, 2]
