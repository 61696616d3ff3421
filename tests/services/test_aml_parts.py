"""The parts of the service of Azure Machine Learning, and trials that use all of its fields."""

from __future__ import annotations

import ast
import base64
import errno
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from nnilite.config import load
from nnilite.errors import ConfigError
from nnilite.records import EndCause, Exited
from nnilite.service import Job, JobState
from nnilite_aml import AmlConfig, _start, _status
from nnilite_aml._config import AmlDistribution, AmlIdentity
from nnilite_aml._log import _choose_first_log
from nnilite_aml._request import arguments, make_azure_name
from nnilite_aml._workspace import RunFacts, make_rest_body
from platforms.aml.bench import GIVEN, MARKS, AmlBench, config
from platforms.aml.contract import HERE

pytestmark = MARKS
PLACE = {"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}
NONE = RunFacts()
RANKS = """
import nnilite, os
nnilite.report_final_result("rank " + os.environ.get("{}", "-") + os.environ.get("WORLD_SIZE", ""))
"""


# ------------------------------------------------------------ the section


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({}, "instanceType"),
        ({"compute_target": "c", "subscription_id": " "}, "subscriptionId"),
        ({"compute_target": "c", "workspace_name": "a/b"}, "workspaceName"),
        ({"compute_target": "c", "environment": "pytorch"}, "environment"),
        ({"compute_target": "c", "environment": "pytorch:1", "docker_image": "x"}, "environment"),
        ({"compute_target": "c", "experiment_name": "a b"}, "experimentName"),
        ({"compute_target": "c", "instance_count": 2}, "distribution"),
        ({"compute_target": "c", "distribution": AmlDistribution(type="TensorFlow", worker_count=3)}, "instanceCount"),
        ({"compute_target": "c", "client_secret": "x", "client_id": "y"}, "tenantId"),
        ({"compute_target": "c", "environment_variables": {"A B": "1"}}, "environmentVariables"),
        ({"compute_target": "c", "environment_variables": {"NNILITE_START": "1"}}, "environmentVariables"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, where):
    with pytest.raises(ConfigError) as refused:
        AmlConfig(**{**PLACE, **fields})
    assert refused.value.place.field == where


FILE_OF_NNI_1 = """
authorName: x
experimentName: x
trialConcurrency: 1
maxExecDuration: 1h
maxTrialNum: 1
trainingServicePlatform: aml
searchSpacePath: space.json
useAnnotation: false
tuner: {builtinTunerName: Random}
trial: {command: python3 a.py, codeDir: ., image: msranni/nni}
amlConfig: {subscriptionId: s, resourceGroup: r, workspaceName: w, computeTarget: c, maxTrialNumPerGpu: 2}
"""


def test_a_file_of_nni_1_becomes_a_section(tmp_path):
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    (tmp_path / "config.yml").write_text(FILE_OF_NNI_1)
    [(_, platform, found)] = load(tmp_path / "config.yml").checked().services
    assert platform == "aml"
    assert (found.subscription_id, found.resource_group, found.workspace_name) == ("s", "r", "w")
    assert (found.compute_target, found.docker_image) == ("c", "msranni/nni")


def test_azures_library_is_not_imported_before_it_is_used():
    # Folders above it are namespaces, which have no file of their own.
    there = "[name for name, one in sys.modules.items() if name.startswith('azure') and one.__file__]"
    program = f"import sys, nnilite_aml; print({there})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "[]\n"


# ------------------------------------------------------------ from a job to Azure's


def _body(**fields):
    job = Job("nni-Exp-Tr-0", "Exp", "Tr", 0, 0, {}, None)
    return make_rest_body(arguments(job, config(**fields), "code", "environment", {}))["properties"]


def test_each_field_arrives_where_azure_has_it():
    found = _body(
        shm_size=2048, tags={"team": "a"}, environment_variables={"X": "1"}, instance_type="Standard_NC6",
        experiment_name="mine", identity=AmlIdentity(type="managed", client_id="id"),
    )  # fmt: skip
    assert found["resources"] == {
        "instanceCount": 1,
        "instanceType": "Standard_NC6",
        "shmSize": "2048m",
        "properties": {},
    }
    assert found["tags"] == {"team": "a", "nnilite": "Exp", "nnilite_Exp": "nni-Exp-Tr-0"}
    assert found["identity"] == {"identityType": "Managed", "clientId": "id"}
    assert (found["experimentName"], found["environmentVariables"]) == ("mine", {"X": "1"})
    assert found["outputs"]["checkpoints"]["uri"] == "azureml://datastores/workspaceblobstore/paths/nnilite/Exp/Tr/"


def test_serverless_compute_of_low_priority_is_asked_for_as_spot():
    found = _body(compute_target="serverless", instance_type="Standard_NC6", low_priority=True)
    assert found["queueSettings"] == {"jobTier": "Spot"}
    assert "computeId" not in found


@pytest.mark.parametrize(("ours", "theirs"), [("user", "UserIdentity"), ("token", "AMLToken")])
def test_each_identity_is_one_of_azures(ours, theirs):
    assert _body(identity=AmlIdentity(type=ours))["identity"]["identityType"] == theirs


def test_without_a_datastore_nothing_is_mounted():
    found = _body(checkpoint_datastore="")
    assert found["command"] == "sh ./nnilite-start"
    assert not found.get("outputs")


def test_names_that_differ_by_capitals_alone_stay_apart():
    assert make_azure_name("nni-x-Ab-0") != make_azure_name("nni-x-aB-0")
    assert make_azure_name("nni-x-Ab-0").islower()


# ------------------------------------------------------------ the states


def test_every_state_of_azure_has_a_meaning():
    text = (HERE / "HTTP_CALLS.md").read_text()
    states = text.partition("## Status values")[2].partition("`")[2].partition("`")[0].split()
    known = {*_status.WAITING, *_status.RUNNING, *_status.ENDED, _status.NOT_RESPONDING, "Unknown"}
    assert set(states) == known


def _exited(code, cause="", message=""):
    return Exited(9.0, code, message, EndCause(cause))


@pytest.mark.parametrize(
    ("status", "word", "facts", "state", "code"),
    [
        ("Completed", _exited(0), NONE, JobState.SUCCEEDED, 0),
        ("Completed", None, NONE, JobState.SUCCEEDED, 0),
        ("Failed", _exited(3), NONE, JobState.FAILED, 3),
        ("Failed", _exited(-15, "canceled"), NONE, JobState.CANCELED, -15),
        ("Failed", _exited(None, "interrupted"), NONE, JobState.LOST, None),
        ("Canceled", _exited(-15, "interrupted"), NONE, JobState.CANCELED, -15),
        ("Canceled", _exited(0), NONE, JobState.SUCCEEDED, 0),
        ("Canceled", None, NONE, JobState.CANCELED, None),
        ("Failed", None, RunFacts(error_code="UserError", error="exited with status code 137."), JobState.FAILED, 137),
        ("Failed", None, RunFacts(error_code="UserError", error="Image build failed"), JobState.FAILED, None),
        ("Failed", None, RunFacts(error_code="ServiceError", error="internal"), JobState.LOST, None),
        ("Failed", None, RunFacts(error_code="UserError", error="the node was preempted"), JobState.LOST, None),
        ("Failed", None, NONE, JobState.LOST, None),
    ],
)
def test_an_end_is_what_the_keeper_says_and_else_what_azure_says(status, word, facts, state, code):
    found = _status.judge_end(status, word, facts)
    assert (found.state, found.exit_code) == (state, code)


# ------------------------------------------------------------ the program on the nodes


def test_the_program_is_one_for_python_3_8_and_imports_the_standard_library_alone():
    tree = ast.parse(Path(_start.__file__).read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def _tensorflow(kind, index, *roles):
    return {
        "TF_CONFIG": json.dumps({"cluster": {role: ["x"] for role in roles}, "task": {"type": kind, "index": index}})
    }


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, "0"),
        ({"RANK": "3"}, "3"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "1"),
        (_tensorflow("worker", 0, "worker", "ps"), "0"),
        (_tensorflow("worker", 0, "chief", "worker"), "worker-0"),
        (_tensorflow("chief", 0, "chief", "worker"), "0"),
        (_tensorflow("ps", 0, "worker", "ps"), "ps-0"),
        ({"TF_CONFIG": "no JSON"}, "0"),
    ],
)
def test_one_process_of_each_distribution_reports(environment, rank):
    assert _start.rank(environment) == rank


def test_the_log_of_the_first_process_is_the_one_that_is_read():
    names = ["user_logs/std_log_process_01.txt", "user_logs/std_log_process_00.txt", "user_logs/std_log_ps.txt"]
    assert _choose_first_log({name: name for name in names}) == "user_logs/std_log_process_00.txt"
    assert _choose_first_log({"user_logs/std_log.txt": "one", "system_logs/x.txt": "two"}) == "one"
    assert _choose_first_log({"system_logs/x.txt": "two"}) == ""


def test_a_job_without_its_mount_runs_all_the_same(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert _start.is_first(str(tmp_path / "file"), "job")
    assert "cannot write to the mount" in capsys.readouterr().err
    assert _start.is_first(str(tmp_path / "mount"), "job")
    assert not _start.is_first(str(tmp_path / "mount"), "job")
    assert _start.is_first(str(tmp_path / "mount"), "another")


# ------------------------------------------------------------ on the stand-in


@pytest.mark.parametrize(
    ("distribution", "nodes", "variable", "value"),
    [
        (AmlDistribution(type="PyTorch", process_count_per_instance=2), 2, "RANK", "04"),
        (AmlDistribution(type="MPI"), 2, "OMPI_COMM_WORLD_RANK", "0"),
        (AmlDistribution(type="TensorFlow", worker_count=1, parameter_server_count=1), 2, "NNILITE_RANK", "0"),
    ],
    ids=lambda value: value.type if isinstance(value, AmlDistribution) else "",
)
def test_a_trial_on_several_nodes_reports_once(tmp_path, azure, distribution, nodes, variable, value):
    with AmlBench(tmp_path, by_log=True, instance_count=nodes, distribution=distribution) as bench:
        name = bench.python(RANKS.format(variable))
        assert bench.finish(name).values == [f"rank {value}"]
        assert bench.status(name).state is JobState.SUCCEEDED


@pytest.mark.timeout(3600 if GIVEN else 120)
def test_a_metric_arrives_by_the_log_while_the_trial_runs(tmp_path, place, record_property):
    with AmlBench(tmp_path, by_log=True) as bench:
        name = bench.python("import nnilite, time; nnilite.report_final_result(time.time()); time.sleep(60)")
        [reported] = bench.eventually(lambda: bench.report(name).values)
        delay_s = time.time() - reported
        assert bench.wait(name, JobState.RUNNING).reason == ""
    record_property("shown", f"Azure: a metric reached the manager by the log {delay_s:.2f} s after its report")


def test_what_a_trial_prints_comes_by_the_log_and_its_job_has_no_token(tmp_path, azure):
    with AmlBench(tmp_path, by_log=True) as bench:
        name = bench.run("echo hello")
        assert bench.finish(name).output["stdout"] == b"hello\n"
        assert bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 100)) == b"hello\n"
        given = azure.workspace.of(name).properties["environmentVariables"]["NNILITE_START"]
        assert bench.received(name).token not in zlib.decompress(base64.b64decode(given)).decode()


def test_a_trial_that_is_canceled_by_log_ends_at_once(tmp_path, azure):
    with AmlBench(tmp_path, by_log=True) as bench:
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED
        assert azure.workspace.of(name).status == "Canceled"


def test_a_conda_file_becomes_an_environment_that_is_made_once(tmp_path, azure):
    conda = tmp_path / "conda.yml"
    conda.write_text("name: x\ndependencies: [python=3.10]\n")
    with AmlBench(tmp_path, conda_file=conda, docker_image="ubuntu") as bench:
        for name in [bench.run("true") for _ in range(2)]:
            bench.finish(name)
    [made] = [one for one in azure.workspace.environments.values() if "condaFile" in one]
    assert "python=3.10" in made["condaFile"]
    assert len([line for line in azure.seen if line.startswith("PUT") and "/environments/" in line]) == 1


def test_an_environment_of_the_workspace_and_serverless_compute_are_used(tmp_path, azure):
    fields = {"compute_target": "serverless", "instance_type": "Standard_DS3_v2", "environment": "pytorch:3"}
    with AmlBench(tmp_path, **fields) as bench:
        name = bench.run("true")
        bench.finish(name)
    given = azure.workspace.of(name).properties
    assert given["environmentId"].endswith("/environments/pytorch/versions/3")
    assert not given.get("computeId")


def test_a_dry_run_shows_what_is_sent(tmp_path, azure):
    with AmlBench(tmp_path) as bench:
        job = bench.job("true")
        shown = bench.service.describe(job)["body"]["properties"]
        bench.finish(bench.submit(job))
    sent = azure.workspace.of(job.name).properties
    apart = ("codeId", "environmentId", "computeId", "environmentVariables", "properties")
    assert {key: value for key, value in shown.items() if key not in apart} == {
        key: value for key, value in sent.items() if key not in apart
    }
    assert set(shown["environmentVariables"]) == set(sent["environmentVariables"])


def test_files_are_handed_over_to_another_file_system_and_one_that_stays_holds_up_no_other(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "work" / "folder").mkdir(parents=True)
    for name in ("a", "b", "folder/c", ".hidden"):
        (tmp_path / "work" / name).write_text(name)

    def replace(path, target):
        trouble = errno.EIO if path.endswith("a") else errno.EXDEV
        raise OSError(trouble, os.strerror(trouble), path)

    monkeypatch.setattr(os, "replace", replace)
    _start.hand_over(str(tmp_path / "work"), str(tmp_path / "outputs"))
    kept = sorted(str(path.relative_to(tmp_path / "outputs")) for path in (tmp_path / "outputs").rglob("*"))
    assert kept == ["b", "folder", "folder/c"]
    assert "some of the trial's files cannot be kept" in capsys.readouterr().err
