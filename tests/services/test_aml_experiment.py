"""Whole experiments: a real manager, Azure's real client, jobs that run. On a real workspace with NNILITE_TEST_AML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import example_runs
from nnilite.testing import eventually
from platforms.aml.bench import GIVEN, MARKS, section
from platforms.aml.login import SECRET

pytestmark = MARKS
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "aml" / "config.yaml"


@pytest.fixture
def create(tmp_path, monkeypatch, place):
    """Runs `nnictl create` on the example, with other fields; its standard output."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))

    def one(*words: str, service=None, **fields) -> str:
        config = example_runs.adapt(EXAMPLE, tmp_path / "config.yaml", {**section(), **(service or {})}, **fields)
        return example_runs.create(config, *words, limit_s=3600 if GIVEN else 110)

    return one


@pytest.mark.timeout(3600 if GIVEN else 240)
def test_the_example_runs_to_its_end(create, place):
    profile = json.loads(create("-p", "0", "--foreground", "--json", trialConcurrency=3, maxTrialNumber=3))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    if place is not None:
        assert place.workspace.uploads == 1
        assert {job.status for job in place.workspace.jobs.values()} == {"Completed"}


@pytest.mark.long  # callbacks are those of the contract, and each manager imports Azure's client for seconds
def test_the_example_runs_with_a_way_to_the_manager(create, azure):
    fields = {"callback": "rest", "maxTrialNumber": 2, "nniManagerIp": "127.0.0.1"}
    profile = json.loads(create("-p", "0", "--foreground", "--json", **fields))
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


def test_a_dry_run_prints_the_job_and_does_not_log_in(create, place):
    text = create("--dry-run", "--json")
    assert "does not log in to Azure; `nnictl doctor FILE` does" in json.loads(text)["unchecked"]
    [job] = json.loads(text)["jobs"].values()
    assert job["body"]["properties"]["jobType"] == "Command"
    assert SECRET not in text
    if place is not None:
        assert place.seen == []


def test_a_stop_leaves_nothing_running_on_azure(create, place, nnictl):
    create("-p", "0", trialCommand="sleep 600", trialConcurrency=2)
    if place is None:
        nnictl("stop", "--all")
        return
    eventually(lambda: [job.status for job in place.workspace.jobs.values()] == ["Running"] * 2, 90)
    nnictl("stop", "--all")
    assert {job.status for job in place.workspace.jobs.values()} <= {"Canceled", "CancelRequested"}
    eventually(lambda: {job.status for job in place.workspace.jobs.values()} == {"Canceled"})
