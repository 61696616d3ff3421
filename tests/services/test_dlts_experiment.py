"""Whole experiments on DLTS: a real manager, the example's files, jobs that run."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import yaml

import example_runs
from platforms.dlts.cluster import EMAIL, TEAM
from platforms.dlts.dashboard import PASSWORD

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dlts" / "config.yaml"

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dlts-experiment")]


@pytest.fixture
def create(tmp_path, monkeypatch):
    """Runs `nnictl create` on a config; its standard output, or its complaint."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    monkeypatch.setenv("DLTS_JOB_TOKEN", PASSWORD)

    return functools.partial(example_runs.create, secret=PASSWORD)


@pytest.fixture
def adapted(tmp_path, dashboard):
    """Writes the example for this dashboard, with other fields; the file."""

    def one(service=None, **fields) -> Path:
        own = {"dashboard": dashboard.url, "team": TEAM, "email": EMAIL, "nniManagerIp": "127.0.0.1"}
        return example_runs.adapt(EXAMPLE, tmp_path / "config.yaml", {**own, **(service or {})}, **fields)

    return one


def logs(folder: Path) -> str:
    return "".join(path.read_text("utf-8", "replace") for path in folder.rglob("*.log"))


def test_the_example_runs_to_its_end_and_tells_no_secret(create, adapted, dashboard, tmp_path):
    profile = json.loads(create(adapted(logLevel="debug", maxTrialNumber=3), "-p", "0", "--foreground", "--json"))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    assert len(dashboard.cluster.jobs) == 3
    written = logs(tmp_path / "kept 'here'")
    assert "is served at" in written
    assert PASSWORD not in written


@pytest.mark.long  # every day test_dlts_jobs has such a job without an experiment
def test_the_example_runs_without_a_way_to_the_manager(create, adapted):
    config = adapted({"nniManagerIp": "192.0.2.1"}, callback="log", maxTrialNumber=2)
    profile = json.loads(create(config, "-p", "0", "--foreground", "--json"))
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


def test_a_config_of_nni_1_runs_as_it_is(create, dashboard, tmp_path):
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    old = {
        "trainingServicePlatform": "dlts",
        "authorName": "me",
        "trialConcurrency": 1,
        "maxTrialNum": 1,
        "searchSpacePath": "space.json",
        "nniManagerIp": "127.0.0.1",
        "tuner": {"builtinTunerName": "Random"},
        "trial": {"command": "python3 trial.py", "codeDir": str(EXAMPLE.parent), "gpuNum": 1, "image": "python:3.11"},
        "dltsConfig": {"dashboard": dashboard.url + "/", "team": TEAM, "email": EMAIL, "password": PASSWORD},
    }
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(old))
    profile = json.loads(create(tmp_path / "old.yaml", "-p", "0", "--foreground", "--json"))
    assert profile["counts"]["SUCCEEDED"] == 1
    assert [job.gpus for job in dashboard.cluster.jobs.values()] == [1]


def test_a_dry_run_prints_the_request_and_needs_no_dashboard(create):
    text = create(EXAMPLE, "--dry-run", "--json")
    assert '"request": "POST https://dlts.example.com/api/clusters/.default/jobs"' in text
    assert '"vcName": "my-team"' in text


def test_a_wrong_login_is_one_sentence_with_its_place(create, adapted):
    told = create(adapted({"password": "00000000000000000000000000000000"}), "-p", "0", "--foreground", code=1)
    assert "password: DLTS answers 403" in told
    assert "Traceback" not in told
