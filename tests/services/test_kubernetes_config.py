"""The sections of the Kubernetes platforms, as people write them: today's fields, and NNI's."""

from __future__ import annotations

import pytest

from nnilite.config import from_dict, load
from nnilite.errors import ConfigError
from nnilite_kubernetes import _manifest as manifests

BASE = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialConcurrency": 1,
    "trialCommand": "python3 trial.py",
    "tuner": {"name": "Random"},
}
_V1_KUBEFLOW = """
trialConcurrency: 2
trainingServicePlatform: kubeflow
searchSpacePath: space.json
tuner: {builtinTunerName: Random}
trial:
  codeDir: .
  worker: {replicas: 2, command: python3 w.py, gpuNum: 1, cpuNum: 1, memoryMB: 8192, image: "some:image"}
  ps: {replicas: 1, command: python3 p.py, gpuNum: 0, cpuNum: 1, memoryMB: 1024, image: "some:image"}
kubeflowConfig:
  operator: tf-operator
  apiVersion: v1
  storage: nfs
  nfs: {server: 10.1.1.1, path: /nfs}
"""
_V1_ADL = """
trialConcurrency: 2
trainingServicePlatform: adl
searchSpacePath: space.json
tuner: {builtinTunerName: Random}
nniManagerIp: 10.1.1.2
trial:
  codeDir: .
  command: python3 trial.py
  gpuNum: 1
  image: some:image
  adaptive: true
  memorySize: 2Gi
  checkpoint: {storageClass: fast, storageSize: 5Gi}
"""


def section(platform, **fields):
    """The checked section of a config."""
    return from_dict({**BASE, "trainingService": {"platform": platform, **fields}}).checked().services[0].config


def converted(tmp_path, text):
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    (tmp_path / "config.yml").write_text(text)
    return load(tmp_path / "config.yml").checked().services[0].config


def test_a_plain_section_needs_no_more_than_an_image():
    config = section("kubernetes", dockerImage="python:3.11-slim", memorySize="2gb")
    assert (config.namespace, config.memory_size) == ("default", 2048)


def test_nnis_kubeflow_section_is_understood():
    worker = {"replicas": 2, "command": "python3 w.py", "gpuNumber": 1, "cpuNumber": 1, "memorySize": "8gb"}
    role = {**worker, "dockerImage": "some:image", "codeDirectory": "."}
    storage = {"storageType": "nfs", "server": "10.1.1.1", "path": "/nfs"}
    config = section("kubeflow", operator="tf-operator", apiVersion="v1", storage=storage, worker=role, reuseMode=True)
    assert (config.worker.replicas, config.worker.memory_size) == (2, 8192)


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta2"])
def test_a_version_of_nnis_kubeflow_examples_becomes_todays_with_a_warning(version):
    role = {"replicas": 1, "dockerImage": "some:image"}
    service = {"platform": "kubeflow", "operator": "tf-operator", "apiVersion": version, "worker": role}
    checked = from_dict({**BASE, "trialCommand": "true", "trainingService": service}).checked()
    assert checked.services[0].config.api_version == "v1"
    assert checked.warnings == [f"apiVersion {version} of kubeflow.org is no longer served by any cluster; v1 is used"]


def test_nnis_frameworkcontroller_section_is_understood():
    policy = {"minFailedTaskCount": 1, "minSucceedTaskCount": 1}
    role = {"name": "worker", "taskNumber": 2, "command": "x", "gpuNumber": 1, "cpuNumber": 1, "memorySize": "1gb"}
    roles = [{**role, "frameworkAttemptCompletionPolicy": policy}]
    config = section("frameworkcontroller", taskRoles=roles, serviceAccountName="barrier")
    assert config.task_roles[0].framework_attempt_completion_policy.min_succeed_task_count == 1


def test_an_old_kubeflow_file_is_understood(tmp_path):
    config = converted(tmp_path, _V1_KUBEFLOW)
    assert config.worker.command == "python3 w.py"
    assert config.ps.memory_size == 1024
    assert config.storage.server == "10.1.1.1"


def test_an_old_adl_file_is_understood(tmp_path):
    config = converted(tmp_path, _V1_ADL)
    assert (config.adaptive, config.memory_size, config.checkpoint.storage_size) == (True, 2048, "5Gi")
    assert config.nni_manager_ip == "10.1.1.2"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"podTemplate": {"spec": {"restartPolicy": "Always"}}}, "restartPolicy"),
        ({"podTemplate": {"containers": []}}, "metadata or spec"),
        ({"podTemplate": {"spec": {"containers": [{"command": ["x"]}]}}}, "trialCommand is the command"),
        ({"namespace": "Not A Name"}, "cannot be the name of a namespace"),
        ({"cpuNumber": 0}, "must be above 0"),
        ({"storage": {"storageType": "nfs"}}, "is needed for storageType nfs"),
        ({"storage": {"storageType": "azureStorage", "azureShare": "s"}}, "azureKey"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(fields, message):
    with pytest.raises(ConfigError, match=message):
        section("kubernetes", dockerImage="some:image", **fields)


def test_names_of_different_jobs_differ_and_suit_kubernetes():
    names = [manifests.make_object_name(job) for job in ("nni-e-Ab1cd-0", "nni-e-aB1cd-0", "nni-e-Ab1cd-1", "1" * 200)]
    assert len(set(names)) == 4
    assert all(len(name) <= 43 and name == name.lower() and name[0].isalpha() for name in names)


def test_labels_take_any_name_of_an_experiment():
    assert manifests.label("abc") == "abc"
    assert manifests.label("ünfit name") != manifests.label("unfit name ")


def test_a_template_is_merged_by_name():
    base = {
        "spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}], "tolerations": [{"key": "k"}]}
    }
    more = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "b"}]}}
    found = manifests.merged(base, {**more, "metadata": {"labels": {"nnilite/trial": "x", "mine": "y"}}})
    assert [entry["name"] for entry in found["spec"]["containers"]] == ["a", "b"]
    assert [entry["name"] for entry in found["spec"]["containers"][0]["env"]] == ["X", "Y"]


def test_labels_of_ours_cannot_be_taken():
    base = {"metadata": {"labels": {"nnilite/trial": "T"}}}
    more = {"metadata": {"labels": {"nnilite/trial": "other", "team": "a"}}}
    assert manifests.merged(base, more) == {"metadata": {"labels": {"nnilite/trial": "T", "team": "a"}}}
