"""What goes wrong on Determined, and what becomes of trials then."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nnilite.errors import ConfigError
from nnilite.platform_http import HttpAnswer, Outage
from nnilite.service import JobState
from nnilite.testing import BatchContract, eventually
from nnilite.testing.listener import Handler, Listener
from nnilite_determined import _context as contexts
from nnilite_determined import _start
from nnilite_determined._api import DeterminedApi
from nnilite_determined._config import DeterminedConfig
from nnilite_determined._status import in_queue
from platforms.determined.bench import DeterminedBench, maker
from platforms.determined.cluster import MISSING_IMAGE
from platforms.determined.master import Master
from platforms.determined.trouble import DeterminedTrouble

pytestmark = pytest.mark.process

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
def bench(open_determined):
    return open_determined()


class TestDeterminedTrouble(BatchContract):
    every_case = False

    @pytest.fixture
    def trouble(self, bench, master):
        return DeterminedTrouble(bench, master)


def _refused(tmp_path: Path, master: Master, **fields) -> ConfigError:
    bench = DeterminedBench(tmp_path / "refused", maker(master, **fields))
    with pytest.raises(ConfigError) as refused:
        bench.__enter__()
    return refused.value


# ------------------------------------------------------------ what can never work is said before anything starts


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


def test_code_that_is_too_large_is_refused_before_anything_is_sent(tmp_path, master, monkeypatch):
    assert contexts.CONTEXT_LIMIT_BYTES == 99_614_720  # as Determined's own client has it
    monkeypatch.setattr(contexts, "CONTEXT_LIMIT_BYTES", contexts._SPEC_BYTES + 1000)
    error = _refused(tmp_path, master)
    assert error.place.field == "codeFrom"
    assert "Determined takes a context directory of" in str(error)
    assert master.seen == []


# ------------------------------------------------------------ while trials run


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


def test_what_a_trial_waits_for_is_told_in_determineds_words(open_determined):
    bench = open_determined(resource_pool="gpu", slots=2)
    first, second, third = (bench.run("sleep 60") for _ in range(3))
    bench.wait(first, JobState.RUNNING)
    assert bench.status(second).reason == "queued in the resource pool gpu for 2 slots"
    assert bench.status(third).reason.endswith(", 1 jobs ahead of it")
    assert "/det/experiments/" in bench.status(second).url


def test_an_image_that_is_not_there_ends_the_trial_with_determineds_words(open_determined):
    bench = open_determined(image=MISSING_IMAGE)
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert MISSING_IMAGE in status.reason


def test_a_preempted_trial_saves_itself_and_goes_on_in_the_next_attempt(bench, master):
    job = bench.job(f"{sys.executable} -c '{SAVE}'", trial="Tsave")
    name = bench.submit(job)
    eventually(lambda: bench.received(name).values == ["none"])
    bench.wait(name, JobState.RUNNING)
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
    bench.restart()  # the next manager knows of the pause, too
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


def test_a_canceled_trial_that_does_not_hear_of_it_is_killed(bench, master):
    master.misbehave("/signals/preemption", 1000, status=500)
    name = bench.run("sleep 60", grace_s=0.5)
    bench.wait(name, JobState.RUNNING)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    assert [line.rpartition("/")[2] for line in master.seen if line.endswith(("/cancel", "/kill"))] == [
        "cancel",
        "kill",
    ]


def test_a_trial_without_a_way_to_the_manager_ends_softly_by_determined(open_determined, master):
    bench = open_determined({"report": "stdout", "callback": None})
    name = bench.run("trap 'echo saved; exit 3' TERM; echo begun; while :; do sleep 0.05; done", grace_s=20)
    eventually(lambda: bench.status(name) and b"begun" in bench.received(name).output["stdout"])
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.finish(name).output["stdout"].startswith(b"begun\nsaved\n")
    assert bench.status(name).state is JobState.CANCELED


# ------------------------------------------------------------ answers that make no sense


def _saying(monkeypatch, content):
    """An API whose master answers each question with this."""
    api = DeterminedApi(DeterminedConfig(master="http://there", token="x"), 1.0)

    async def get(path, query=None):
        return HttpAnswer(200, {}, json.dumps(content).encode(), path)

    monkeypatch.setattr(api, "_get", get)
    return api


async def test_a_list_without_an_end_is_an_outage(monkeypatch):
    api = _saying(monkeypatch, {"experiments": [{"id": number} for number in range(200)]})
    with pytest.raises(Outage, match="the same experiments again and again"):
        await api.experiments({})


@pytest.mark.parametrize("allocations", [True, "x", {"a": 1}, [1, None, "x"]])
async def test_containers_that_are_none_are_left_out(monkeypatch, allocations):
    assert await _saying(monkeypatch, {"task": {"allocations": allocations}}).allocations("t") == []


@pytest.mark.parametrize("summary", [True, "x", [1], 5])
def test_a_place_in_the_queue_that_makes_no_sense_is_left_out(summary):
    assert in_queue({"summary": summary, "resourcePool": "gpu"}) == "queued in the resource pool gpu"


class Redirect(Handler):
    """A master's proxy that sends its callers to another host, which keeps what they show it."""

    def do_GET(self) -> None:
        self.owner.append(self.headers.get("Authorization"))
        there = f"http://localhost:{self.server.server_address[1]}/there"
        if self.path == "/there":
            self.send(200, "application/json", b"{}")
        else:
            self.send(302, "text/plain", b"", Location=there)


def test_a_redirect_does_not_take_the_token_of_a_container_to_another_host():
    seen: list[str | None] = []
    listener = Listener(Redirect, seen)
    listener.start()
    about = {"DET_MASTER": listener.url, "DET_ALLOCATION_ID": "a", "DET_SESSION_TOKEN": "secret"}
    assert _start.Preemption(about, None)._call("GET", "/api/v1/x") == {}
    listener.stop()
    assert seen == ["Bearer secret", None]


async def test_what_a_trial_prints_breaks_no_line_of_its_log(monkeypatch):
    api = _saying(monkeypatch, None)
    texts = ["a\x85b", "c\u2028d", "e"]
    lines = "\n".join(json.dumps({"result": {"log": text}}, ensure_ascii=False) for text in texts)

    async def call(request):
        return HttpAnswer(200, {}, lines.encode(), request.path)

    monkeypatch.setattr(api, "_call", call)
    assert [entry["log"] for entry in await api.logs("task", {})] == texts
