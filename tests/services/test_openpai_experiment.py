"""Whole experiments on OpenPAI: a real manager, the example's files, jobs that run; and the way from older files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import nnictl_runs
from nnilite.config import from_dict

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "openpai" / "config.yaml"


@pytest.fixture
def nnictl(tmp_path, monkeypatch):
    """Runs a command; its standard output."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))

    def one(*words: object, **env: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            ran = nnictl_runs.nnictl(*map(str, words))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return one


@pytest.fixture
def adapted(tmp_path, pai):
    """Writes the example for the stand-in, with other fields; the file."""

    def one(**fields) -> Path:
        config = {**yaml.safe_load(EXAMPLE.read_text()), "trialCodeDirectory": str(EXAMPLE.parent), **fields}
        config["trainingService"].update(host=pai.url, username=pai.user, nniManagerIp="127.0.0.1")
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return one


def test_the_example_runs_to_its_end(pai, nnictl, adapted):
    out = nnictl("create", "-c", adapted(maxTrialNumber=3), "-p", 0, "--foreground", "--json", PAI_TOKEN=pai.token)
    profile = json.loads(out)
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    assert len(pai.jobs) == 3


def test_the_example_runs_without_a_way_to_the_manager(pai, nnictl, adapted):
    config = adapted(callback="log", maxTrialNumber=2, trialConcurrency=2)
    profile = json.loads(nnictl("create", "-c", config, "-p", 0, "--foreground", "--json", PAI_TOKEN=pai.token))
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


def test_a_dry_run_prints_the_request_and_needs_no_cluster(nnictl):
    text = nnictl("create", "-c", EXAMPLE, "--dry-run", "--json", PAI_TOKEN="never-shown")
    assert '"request": "POST https://pai.example.com/rest-server/api/v2/jobs"' in text
    assert "never-shown" not in text


# As PAI's own "tensorflow-distributed" of 2018: a parameter server never ends, and workers find it by variables.
ROLE = {"taskNumber": 1, "cpuNumber": 1, "memoryMB": 1024}
DISTRIBUTED = {
    "jobName": "tensorflow-distributed",
    "image": "openpai/pai.example.tensorflow",
    "codeDir": "$PAI_DEFAULT_FS_URI/code",
    "killAllOnCompletedTaskNumber": 2,
    "taskRoles": [
        {**ROLE, "name": "ps_server", "portList": [{"label": "http", "portNumber": 1}], "command": "sleep 600"},
        {
            **ROLE,
            "name": "worker",
            "taskNumber": 2,
            "command": 'test -n "$PAI_TASK_ROLE_ps_server_HOST_LIST" -a -n "$PAI_PORT_LIST_ps_server_0_http" && '
            "python3 -c 'import nnilite; nnilite.report_final_result(7)'",
        },
    ],
}
# As NNI's documentation of paiYarn had it, without a name for the role.
NAMELESS = {
    "jobName": "mnist",
    "image": "msranni/nni",
    "retryCount": 0,
    "taskRoles": [{**ROLE, "gpuNumber": 0, "command": "python3 -c 'import nnilite; nnilite.report_final_result(7)'"}],
}


@pytest.mark.parametrize("classic", [DISTRIBUTED, NAMELESS], ids=["distributed", "nameless"])
def test_a_classic_job_runs_to_its_end(tmp_path, pai, nnictl, classic):
    file = tmp_path / "job.json"
    file.write_text(json.dumps(classic))
    converted = yaml.safe_load(nnictl("config", "convert", "--from", "openpai", file))
    service = {**converted["trainingService"], "host": pai.url, "username": pai.user, "nniManagerIp": "127.0.0.1"}
    (tmp_path / "code").mkdir()
    rest = {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "tuner": {"name": "Random"}}
    rest |= {"trialCodeDirectory": str(tmp_path / "code"), "trialConcurrency": 1, "maxTrialNumber": 1}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**converted, **rest, "trainingService": service}))
    out = nnictl("create", "-c", path, "-p", 0, "--foreground", "--json", PAI_TOKEN=pai.token)
    profile = json.loads(out)
    assert (profile["counts"]["SUCCEEDED"], profile["best"]["value"]) == (1, 7)


CLASSIC = {
    "jobName": "tf-distributed",
    "image": "pai.run.tensorflow",
    "authFile": "hdfs://10.0.0.1/auth.txt",
    "dataDir": "$PAI_DEFAULT_FS_URI/data",
    "outputDir": "$PAI_DEFAULT_FS_URI/out",
    "codeDir": "$PAI_DEFAULT_FS_URI/code",
    "virtualCluster": "vision",
    "gpuType": "V100",
    "retryCount": 2,
    "killAllOnCompletedTaskNumber": 1,
    "taskRoles": [
        {
            "name": "ps_server",
            "taskNumber": 2,
            "cpuNumber": 2,
            "memoryMB": 8192,
            "gpuNumber": 0,
            "portList": [{"label": "http", "beginAt": 0, "portNumber": 1}],
            "command": "python train.py --job_name=ps",
        },
        {
            "name": "worker",
            "taskNumber": 2,
            "cpuNumber": 4,
            "memoryMB": 16384,
            "shmMB": 64,
            "gpuNumber": 1,
            "command": "cd $PAI_CODE_DIR && python train.py --job_name=worker",
            "minFailedTaskCount": 1,
            "minSucceededTaskCount": 2,
        },
    ],
}


def test_a_classic_job_becomes_a_section_that_works(tmp_path, nnictl, monkeypatch):
    monkeypatch.setenv("PAI_TOKEN", "t")
    monkeypatch.setenv("REGISTRY_PASSWORD", "p")
    file = tmp_path / "job.json"
    file.write_text(json.dumps(CLASSIC))
    converted = yaml.safe_load(nnictl("config", "convert", "--from", "openpai", file))
    assert converted["maxTrialRetries"] == 2
    service = converted["trainingService"]
    ps, worker = service["taskRoles"]
    assert (ps["name"], ps["instances"], ps["memorySize"], ps["ports"]) == ("psserver", 2, "8192mb", {"http": 1})
    assert ps["completion"] == {"minSucceededInstances": 1}
    assert worker["completion"] == {"minFailedInstances": 1, "minSucceededInstances": 2}
    rest = {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "tuner": {"name": "Random"}}
    config = from_dict({**rest, **converted, "trialCodeDirectory": ".", "trialConcurrency": 1}, tmp_path).checked()
    assert config.services[0].config.virtual_cluster == "vision"
