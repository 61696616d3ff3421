"""Each field of a service's section changes what a dry run shows, or is listed here with what else it does.

A new field fails these tests until it does something, is declared to be ignored, or is listed with its effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnilite._experiments.address import Address
from nnilite._manager import assembly
from nnilite._plugins import lookup
from nnilite.config import ExperimentConfig, from_dict
from nnilite.config._record import ConfigField, record_of
from nnilite.errors import ConfigError
from nnilite.service import Job, JobSpec
from unit.test_options_by_platform import PLATFORMS, SECTIONS

# Of the libraries of Azure's client.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LOGIN = "who calls the platform, and how it is reached"
WATCH = "how jobs are watched, how long they may wait, and what stays of them"
ROOM = "how many trials run at once, and who is next"
BACK = "where trials reach the manager, which is known when they are submitted"
NUMBER = "as trialGpuNumber of the experiment, or checked when the service opens"
INSIDE = "is in the part of the request that holds the trial's token, which is not shown"

_HTTP = dict.fromkeys(("caCert", "insecureSkipTlsVerify", "requestTimeout"), LOGIN)
_ELSEWHERE = {"nniManagerIp": BACK, "trialGpuNumber": NUMBER}
_KUBERNETES = {
    "nniManagerIp": BACK,
    **dict.fromkeys(("kubeconfig", "kubeContext"), LOGIN),
    **dict.fromkeys(("scheduleLimit", "imagePullLimit"), WATCH),
}
_ROLES = {**_KUBERNETES, "trialCommand": INSIDE}
_PAI = {**_ELSEWHERE, **_HTTP, **dict.fromkeys(("username", "token", "password"), LOGIN), "trialCommand": INSIDE}
ELSEWHERE: dict[str, dict[str, str]] = {
    "adl": _KUBERNETES,
    "kubernetes": _KUBERNETES,
    "kubeflow": _ROLES,
    "frameworkcontroller": _ROLES,
    "aml": {
        **_ELSEWHERE,
        **dict.fromkeys(("tenantId", "clientId", "clientSecret", "cloud", "requestTimeout"), LOGIN),
        "condaFile": "what the environment is registered with, when the first trial is submitted",
    },
    "determined": {
        **_ELSEWHERE,
        **_HTTP,
        **dict.fromkeys(("username", "password", "token"), LOGIN),
        "whenFinished": WATCH,
    },
    "dlc": {**_ELSEWHERE, **_HTTP, **dict.fromkeys(("accessKeyId", "accessKeySecret", "securityToken"), LOGIN)},
    "dlts": {**_HTTP, "nniManagerIp": BACK, "password": LOGIN, "imagePullLimit": WATCH},
    "openpai": _PAI,
    "pai": _PAI,
    "ray": {
        **_ELSEWHERE,
        **_HTTP,
        **dict.fromkeys(("token", "tokenFile", "headers"), LOGIN),
        **dict.fromkeys(("codeFrom", "workDirectory", "checkpointDirectory"), INSIDE),
    },
    "redis": {
        **dict.fromkeys(("user", "password", "caFile"), LOGIN),
        **dict.fromkeys(("workerProcessors", "workerRemoteProcessors", "maxSlots", "priority"), ROOM),
    },
    "remote": {
        "trialGpuNumber": NUMBER,
        **dict.fromkeys(("hostKeyPolicy", "knownHostsFile", "sshConfigFile"), LOGIN),
        **dict.fromkeys(("keep", "keepPackages", "orphanAfter"), WATCH),
        **dict.fromkeys(("maxSlots", "priority"), ROOM),
        "preload": "what each machine imports before its first trial, when it is connected",
    },
    "batch": {
        "nniManagerIp": BACK,
        **dict.fromkeys(("schedulerPath", "loginSetUp"), LOGIN),
        **dict.fromkeys(("keep", "patterns", "states"), WATCH),
    },
    "slurm": {
        "slurmPath": LOGIN,
        "keep": WATCH,
        "jobArraySize": "how many trials are submitted as one job array",
    },
    "local": {
        "trialGpuNumber": NUMBER,
        **dict.fromkeys(("maxSlots", "priority"), ROOM),
        **dict.fromkeys(("useActiveGpu", "gpuIndices", "maxTrialNumberPerGpu"), "which GPUs a trial gets as it starts"),
    },
    "simulated": {},
}
"""The fields that a dry run does not show, with what they do."""

PAI_JOB = """
protocolVersion: 2
prerequisites: [{type: dockerimage, name: i, uri: python}]
taskRoles: {a: {dockerImage: i, commands: [x], resourcePerInstance: {cpu: 1, memoryMB: 1, gpu: 0}}}
"""
FRAMEWORK = """
spec: {taskRoles: [{name: a, task: {pod: {spec: {containers: [{image: i, command: [x]}]}}}}]}
"""

_STORAGE = {"storage": {"storageType": "nfs", "server": "s", "path": "/p"}}
_ON_CLUSTERS = {"storage": _STORAGE, "imagePullSecrets": {"imagePullSecrets": [{"name": "mine"}]}}
_TEMPLATE = {"podTemplate": {"podTemplate": {"spec": {"nodeSelector": {"kind": "gpu"}}}}}
_ROLE = {"replicas": 2}
SAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "adl": {
        **_TEMPLATE,
        **_ON_CLUSTERS,
        "storage": {"storage": {"storageType": "s3", "bucket": "b"}},
        "checkpoint": {"checkpoint": {"storageSize": "2Gi"}},
        "nfs": {"nfs": {"server": "s", "path": "/p", "containerMountPath": "/m"}},
    },
    "kubernetes": {**_TEMPLATE, **_ON_CLUSTERS},
    "kubeflow": {
        **_ON_CLUSTERS,
        "apiVersion": {"operator": "mpi-operator", "apiVersion": "v2beta1"},
        "worker": {"worker": _ROLE},
        "ps": {"ps": _ROLE},
        "master": {"master": {}},
        "chief": {"chief": {}},
        "evaluator": {"evaluator": {}},
        "launcher": {"operator": "mpi-operator", "launcher": {}},
        "reportingRole": {"chief": {}, "reportingRole": "worker"},
        "runtime": {"operator": "trainer", "runtime": "torch"},
        "runtimeKind": {"operator": "trainer", "runtime": "torch", "runtimeKind": "TrainingRuntime"},
        "trainJob": {"operator": "trainer", "trainJob": {"suspend": True}},
        **{
            name: {"operator": "mpi-operator", "worker": _ROLE, name: number}
            for name, number in (("minReplicas", 1), ("maxReplicas", 3))
        },
        "elasticPolicy": {"operator": "pytorch-operator", "elasticPolicy": {"maxReplicas": 3}},
    },
    "frameworkcontroller": {
        **_ON_CLUSTERS,
        "taskRoles": {"taskRoles": [{"name": "other"}]},
        "reportingRole": {"taskRoles": [{"name": "a"}, {"name": "b"}], "reportingRole": "b"},
        "configPath": {"taskRoles": [], "configPath": "framework.yaml"},
    },
    "aml": {
        "environment": {"environment": "mine:2"},
        "instanceCount": {"instanceCount": 2, "distribution": {"type": "MPI"}},
        "distribution": {"distribution": {"type": "PyTorch"}},
        "identity": {"identity": {"type": "user"}},
        "clientSecret": {"clientSecret": "s", "tenantId": "t", "clientId": "c"},
    },
    "determined": {
        **{name: {"workspace": "w", "project": "p"} for name in ("workspace", "project")},
        "bindMounts": {"bindMounts": [{"hostPath": "/a", "containerPath": "b"}]},
        "checkpointStorage": {"checkpointStorage": {"type": "directory", "containerPath": "/c"}},
    },
    "dlc": {
        "podCount": {"podCount": 2, "jobType": "PyTorchJob"},
        "localStorageMountPoint": {
            "localStorageMountPoint": ".",
            "nasDataSourceId": "d",
            "containerStorageMountPoint": "/m",
        },
        **{
            name: {"vpcId": "v", "switchId": "s", "securityGroupId": "g"}
            for name in ("vpcId", "switchId", "securityGroupId")
        },
    },
    "openpai": {
        "password": {"token": None, "password": "p"},
        "registryLogin": {"registryLogin": {"username": "u", "password": "p"}},
        **{
            name: {"storageConfigName": "nas", name: value}
            for name, value in (("localStorageMountPoint", "."), ("containerStorageMountPoint", "/m"))
        },
        "taskRoles": {"taskRoles": [{"name": "other"}]},
        "reportingRole": {"taskRoles": [{"name": "a"}, {"name": "b"}], "reportingRole": "b"},
        "openpaiConfig": {"openpaiConfig": yaml.safe_load(PAI_JOB)},
        "openpaiConfigFile": {"openpaiConfigFile": "pai.yaml"},
    },
    "dlts": {"dashboard": {"dashboard": "http://other"}},
    "redis": {"redis": {"redis": "redis://other"}, "storage": {"storage": {"bucket": "b"}}},
    "remote": {
        "machineList": {"machineList": [{"host": "other", "user": "u"}]},
        "machineLabels": {
            "machineList": [{"host": "h", "user": "u"}, {"host": "g", "user": "u", "labels": ["a"]}],
            "machineLabels": ["a"],
        },
        "priority": {"maxSlots": 2, "priority": 3},
    },
    "ray": {"address": {"address": "http://other:8265"}, "tokenFile": {"tokenFile": "text"}},
    "batch": {
        "login": {"login": {"host": "h", "user": "u"}},
        "commands": {"commands": {"submit": "put script"}},
        "patterns": {"patterns": {"jobId": "job (.*)"}},
        "states": {"states": {"running": "R"}},
        "values": {"cpus": 2, "values": {"parallelEnvironment": "mpi"}},
    },
    "slurm": {"login": {"login": {"host": "h", "user": "u"}}, "container": {"container": {"image": "a.sif"}}},
    "local": {
        "preload": {"preload": ["json"]},
        "priority": {"maxSlots": 2, "priority": 3},
        **{name: {"trialGpuNumber": 1, "useActiveGpu": True} for name in ("useActiveGpu", "trialGpuNumber")},
        "maxTrialNumberPerGpu": {"trialGpuNumber": 1, "useActiveGpu": True, "maxTrialNumberPerGpu": 2},
        "gpuIndices": {"trialGpuNumber": 1, "useActiveGpu": True, "gpuIndices": [0]},
    },
    "simulated": {
        "objective": {"curves": None, "objective": "trial.py:curve"},
        "minWorkers": {"workers": 2, "minWorkers": 1},
    },
}
"""Sections of which a field is part that cannot be had from its type alone."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trials' code, which all cases share, as none changes it."""
    made = tmp_path_factory.mktemp("code")
    for name, text in (
        ("curves.jsonl", "[0.5]\n"),
        ("text", "x"),
        ("pai.yaml", PAI_JOB),
        ("framework.yaml", FRAMEWORK),
    ):
        (made / name).write_text(text)
    return made


def config_of(folder: Path, platform: str, extra: dict[str, Any]) -> ExperimentConfig:
    section = {"platform": platform, **SECTIONS[platform], **extra}
    section = {name: value for name, value in section.items() if value is not None}
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    whole = {"searchSpace": space, "tuner": {"name": "Random"}, "trialConcurrency": 1, "trialCommand": "true"}
    return from_dict({**whole, "trainingService": section}, folder).checked()


@cache
def plain(folder: Path, platform: str) -> str:
    """What is shown where a section has only what it must have."""
    return shown(folder, config_of(folder, platform, {}))


def shown(folder: Path, config: ExperimentConfig) -> str:
    """What a dry run would print of a trial."""
    experiment = folder.parent / f"{folder.name}-experiment"
    (experiment / "code").mkdir(parents=True, exist_ok=True)
    service = assembly.make_service(experiment, config, Address(port=1), lambda: None)
    spec = JobSpec(job="nni-exp-t-0", experiment="exp", trial="t", command="true", checkpoint_dir="/c")
    return json.dumps(service.describe(Job("nni-exp-t-0", "exp", "t", 0, 0, spec.json(), 1)), sort_keys=True)


def sections_of(platform: str, entry: ConfigField) -> Iterator[dict[str, Any]]:
    """Sections in which the field is not as it is by default; some of them are refused."""
    if entry.key in SAMPLES.get(platform, {}):
        yield SAMPLES[platform][entry.key]
        return
    schema = entry.kind.json_schema()
    words = [*schema.get("enum", ()), *(word for one in schema.get("anyOf", ()) for word in one.get("enum", ()))]
    values = [True, False, 3, 2.5, "/xy", "xy", "2h", "4gb", [1], ["a"], ["--x=1"], {"a": "b"}, {"a": 1}, "text", "."]
    yield from ({entry.key: value} for value in [*words, *values])


def verdict(folder: Path, platform: str, entry: ConfigField) -> str:
    """How a field shows: "shown", "ignored", "listed", "hidden", or "refused" if no value of it was taken."""
    found = "refused"
    for section in sections_of(platform, entry):
        try:
            config = config_of(folder, platform, section)
        except ConfigError:
            continue
        if getattr(config.services[0].config, entry.name) == entry.default and entry.key not in SECTIONS[platform]:
            continue
        if any(one.option == entry.key for one in config.without_effect):
            return "ignored"
        if entry.key in ELSEWHERE[platform]:
            return "listed"
        found = "hidden"
        if shown(folder, config) != plain(folder, platform):
            return "shown"
    return found


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_field_is_shown_by_a_dry_run_or_is_known_for_what_else_it_does(folder: Path, platform: str) -> None:
    entries = record_of(lookup.training_service_class(platform).Config).entries
    found = {entry.key: verdict(folder, platform, entry) for entry in entries}
    assert [key for key, seen in found.items() if seen == "hidden"] == [], "show these, or list them in ELSEWHERE"
    assert [key for key, seen in found.items() if seen == "refused"] == [], "give these a section in SAMPLES"


@pytest.mark.parametrize("platform", PLATFORMS)
def test_only_fields_that_there_are_are_listed(platform: str) -> None:
    known = {entry.key for entry in record_of(lookup.training_service_class(platform).Config).entries}
    assert [name for name in (*ELSEWHERE[platform], *SAMPLES.get(platform, {})) if name not in known] == []


SAMPLES["pai"] = SAMPLES["openpai"]
