"""Whole experiments on Ray: a real manager, the example's files, jobs that run."""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import example_runs
from function_programs import check_function_on
from nnilite.testing import eventually
from platforms.ray_cluster.cluster import TOKEN

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ray" / "config.yaml"


@pytest.fixture
def create(tmp_path, monkeypatch):
    """Runs `nnictl create` on a config; its standard output, or its complaint."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)

    return functools.partial(example_runs.create, secret=TOKEN)


@pytest.fixture
def adapted(tmp_path):
    """Writes the example for this address, with other fields; the file."""

    def one(url: str, service=None, **fields) -> Path:
        own = {"address": url, "nniManagerIp": "127.0.0.1", **(service or {})}
        return example_runs.adapt(EXAMPLE, tmp_path / "config.yaml", own, **fields)

    return one


def logs(folder: Path) -> str:
    return "".join(path.read_text("utf-8", "replace") for path in folder.rglob("*.log"))


def test_the_example_runs_to_its_end_and_tells_no_secret(create, adapted, head, tmp_path):
    head.token = TOKEN
    profile = json.loads(
        create(adapted(head.url, logLevel="debug", maxTrialNumber=3), "-p", "0", "--foreground", "--json")
    )
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    assert head.jobs == {}
    written = logs(tmp_path / "kept 'here'")
    assert "uploading the code to Ray" in written
    assert TOKEN not in written


def test_the_example_runs_without_a_way_to_the_manager(create, adapted, head):
    config = adapted(head.url, {"nniManagerIp": "192.0.2.1"}, callback="log", maxTrialNumber=2)
    profile = json.loads(create(config, "-p", "0", "--foreground", "--json"))
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


@pytest.mark.real
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(300)
def test_the_example_runs_on_a_real_cluster(create, adapted, real_ray):
    config = adapted(real_ray.url, maxTrialNumber=3)
    profile = json.loads(create(config, "-p", "0", "--foreground", "--json"))
    assert (profile["state"], profile["counts"]["SUCCEEDED"]) == ("DONE", 3)
    left = [
        job["entrypoint"] for job in real_ray.ask("/api/jobs/").json() if profile["id"] in str(job["submission_id"])
    ]
    assert left == []


def test_a_trial_whose_node_dies_is_tried_again_on_another_one(create, adapted, head, tmp_path):
    (tmp_path / "code").mkdir()
    node = head.nodes[0]
    wait = "while test $NNILITE_ATTEMPT = 0; do sleep 0.02; done"
    more = {"trialCommand": f"{wait}; python3 trial.py", "maxTrialNumber": 1, "maxTrialRetries": 1}
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(create, adapted(head.url, **more), "-p", "0", "--foreground", "--json")
        eventually(lambda: [job for job in list(head.jobs.values()) if job.status == "RUNNING"])
        head.kill_node(node)
        head.add_node("10.0.0.2", CPU=2)
        profile = json.loads(ran.result())
    assert profile["counts"]["SUCCEEDED"] == 1


def test_a_dry_run_prints_the_request(create, adapted, head):
    text = create(adapted(head.url), "--dry-run", "--json")
    assert f'"request": "POST {head.url}/api/jobs/"' in text
    assert '"entrypoint_num_cpus": 0.5' in text
    assert head.asked("POST") == 0


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ({"token": "wrong-wrong-wrong"}, "token: Ray does not accept this token"),
        ({"address": "ray://head:10001"}, "address: 'ray://head:10001' is not the address of Ray's dashboard"),
        ({"entrypointNumCPUs": "many"}, "entrypointNumCpus"),
    ],
)
def test_bad_input_is_one_sentence_with_its_place(create, adapted, head, service, words):
    head.token = TOKEN
    told = create(adapted(head.url, service), "-p", "0", "--foreground", code=1)
    assert words in told
    assert "Traceback" not in told


def test_a_function_runs_as_trials(head, tmp_path, monkeypatch):
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    section = {"platform": "ray", "address": head.url, "nniManagerIp": "127.0.0.1"}
    check_function_on(tmp_path / "it's code", section)
