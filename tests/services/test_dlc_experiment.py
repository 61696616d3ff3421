"""Whole experiments on PAI-DLC: a real manager, Alibaba's real client, jobs that run."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path

import pytest

import example_runs
from nnilite._experiments import registry
from nnilite.testing import eventually
from platforms.dlc.bench import section
from platforms.dlc.server import KEY, NAS, DlcServer
from processes import send_signal

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dlc" / "config.yaml"


@pytest.fixture
def server(tmp_path):
    with DlcServer(tmp_path / "dlc") as server:
        yield server
    assert server.broken + server.dlc.broken == []


@pytest.fixture
def create(tmp_path, monkeypatch, server):
    """Runs `nnictl create` on the example, with other fields; its standard output."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", KEY[1])
    run = functools.partial(example_runs.create, secret=KEY[1])

    def one(*words: str, service=None, **fields) -> str:
        config = example_runs.adapt(EXAMPLE, tmp_path / "config.yaml", {**section(server), **(service or {})}, **fields)
        return run(config, *words)

    return one


def test_the_example_runs_to_its_end_and_tells_no_secret(create, server, tmp_path):
    fields = {"trialConcurrency": 3, "maxTrialNumber": 3, "logLevel": "debug"}
    profile = json.loads(create("-p", "0", "--foreground", "--json", **fields))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    assert {job.state for job in server.dlc.jobs.values()} == {"Succeeded"}
    kept = [path.read_bytes() for path in (tmp_path / "kept 'here'").rglob("*") if path.is_file()]
    assert kept
    assert not any(KEY[1].encode() in content for content in kept)


def test_the_example_runs_with_a_way_to_the_manager_and_a_storage(create, tmp_path):
    storage = tmp_path / "storage"
    storage.mkdir()
    place = {"localStorageMountPoint": str(storage), "containerStorageMountPoint": str(storage)}
    fields = {"callback": "rest", "maxTrialNumber": 2, "nniManagerIp": "127.0.0.1"}
    profile = json.loads(
        create("-p", "0", "--foreground", "--json", service={"nasDataSourceId": NAS, **place}, **fields)
    )
    assert profile["counts"]["SUCCEEDED"] == 2
    assert len(list(storage.rglob("trial.stdout"))) == 2


def test_a_dry_run_prints_the_job_and_asks_dlc_whether_it_could_run(create, server):
    text = create("--dry-run", "--json")
    assert json.loads(text)["unchecked"] == ""
    [job] = json.loads(text)["jobs"].values()
    assert job["body"]["JobType"] == "TFJob"
    assert set(job["body"]["Envs"].values()) == {"********"}
    assert KEY[1] not in text
    assert server.asked("GET /api/v1/jobs?")
    assert server.dlc.jobs == {}


def test_a_stop_leaves_nothing_running_on_dlc(create, server, nnictl):
    create("-p", "0", trialCommand="sleep 600", trialConcurrency=2)
    eventually(lambda: [job.state for job in server.dlc.jobs.values()] == ["Running"] * 2, 60)
    nnictl("stop", "--all")
    eventually(lambda: {job.state for job in server.dlc.jobs.values()} == {"Stopped"}, 60)


def test_a_manager_that_is_killed_between_question_and_answer_makes_no_second_job(create, server, nnictl):
    killed = threading.Event()
    made = server.create_job

    def make_and_wait(query, body):
        answer = made(query, body)
        threading.Thread(target=_kill, args=(killed,), daemon=True).start()
        killed.wait(30)  # so the answer comes too late
        return answer

    server.create_job = make_and_wait
    create("-p", "0", maxTrialNumber=1, trialConcurrency=1)
    assert killed.wait(60)
    server.create_job = made
    [entry] = registry.entries()
    nnictl("resume", entry.id, "-p", "0", "--foreground")
    [job] = server.dlc.jobs.values()
    assert job.state == "Succeeded"


def _kill(killed: threading.Event) -> None:
    [entry] = registry.entries()
    send_signal(entry.pid)
    eventually(lambda: not registry.is_alive(entry.directory))
    killed.set()
