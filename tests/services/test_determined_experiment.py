"""Whole experiments on Determined: a real manager, containers that run; and what its official client makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import example_runs
from platforms.determined.bench import DeterminedBench, maker

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "determined" / "config.yaml"
CLIENT = """
import json, sys
from determined.common import api
from determined.common.api import authentication, bindings
from determined.experimental import client
address, password = sys.argv[1:]
session = authentication.login(address, "determined", password)
found = bindings.get_GetExperiments(session, limit=-1).experiments
told = {}
for one in found:
    trials = bindings.get_GetExperimentTrials(session, experimentId=one.id).trials
    task = bindings.get_GetTask(session, taskId=trials[0].taskIds[0]).task
    lines = [line.log for line in bindings.get_TaskLogs(session, taskId=task.taskId)]
    ends = any("NNILITE_EVENT" in line and '"type": "exit"' in line for line in lines)
    told[one.name] = [one.state.name, trials[0].state.name, len(task.allocations), ends]
pools = [pool.name for pool in bindings.get_GetResourcePools(session).resourcePools]
queue = bindings.get_GetJobs(session, limit=10).jobs
checkpoints = bindings.get_GetTrialCheckpoints(session, id=trials[0].id).checkpoints
bindings.post_ArchiveExperiment(session, id=found[0].id)
print(json.dumps({"told": told, "pools": pools, "checkpoints": [one.uuid for one in checkpoints]}))
"""


@pytest.fixture
def create(tmp_path, monkeypatch, master):
    """Runs `nnictl create` on the example, with other fields; its standard output."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    monkeypatch.setenv("DET_PASS", master.cluster.password)

    def one(*words: str, service=None, **fields) -> str:
        own = {"master": master.address, **(service or {})}
        return example_runs.create(example_runs.adapt(EXAMPLE, tmp_path / "config.yaml", own, **fields), *words)

    return one


def test_the_example_runs_to_its_end(create, master):
    own = {"nniManagerIp": "127.0.0.1"}
    profile = json.loads(create("-p", "0", "--foreground", "--json", service=own, maxTrialNumber=3))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    assert all(one.archived for one in master.cluster.experiments.values())


def test_the_example_runs_without_a_way_to_the_manager(create):
    text = create("-p", "0", "--foreground", "--json", callback="log", maxTrialNumber=2)
    profile = json.loads(text)
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


def test_a_dry_run_prints_the_request_and_has_determined_check_it(create, master):
    text = create("--dry-run", "--json", service={"nniManagerIp": "127.0.0.1"})
    assert json.loads(text)["unchecked"] == ""
    [job] = json.loads(text)["jobs"].values()
    assert job["body"]["config"]["searcher"]["name"] == "single"
    assert master.cluster.password not in text
    assert "POST /api/v1/experiments" in master.seen
    assert master.cluster.experiments == {}


def test_a_dry_run_needs_no_master(create):
    text = create("--dry-run", "--json", service={"master": "http://127.0.0.1:9"})
    assert "127.0.0.1:9" in json.loads(text)["unchecked"]


@pytest.fixture(scope="session")
def official_client(tmp_path_factory):
    """A Python with Determined's own client, which pins other versions than ours, so it is not among our packages."""
    folder = tmp_path_factory.mktemp("client")
    python = folder / "bin" / "python"
    quiet = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    ran = subprocess.run([sys.executable, "-m", "venv", str(folder)], **quiet)
    install = [str(python), "-m", "pip", "install", "--quiet", "determined==0.38.1"]
    if not ran.returncode:
        ran = subprocess.run(install, **quiet)
    if ran.returncode:
        pytest.skip(f"the client of Determined cannot be installed here: {(ran.stdout + ran.stderr)[-300:]}")
    return python


@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(420)
def test_determineds_own_client_understands_the_stand_in(official_client, master, tmp_path):
    with DeterminedBench(tmp_path, maker(master)) as bench:
        name = bench.run("true")
        bench.finish(name)
        saved = master.cluster.checkpoint(master.cluster.named(name))
        command = [str(official_client), "-c", CLIENT, master.address, master.cluster.password]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "told": {name: ["COMPLETED", "COMPLETED", 1, True]},
        "pools": ["default", "gpu"],
        "checkpoints": [saved],
    }
