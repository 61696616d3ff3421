"""Each field that NNI 1 and 2 had for a platform, in its own place and in the places where people put it.

The names are those of NNI's schema of version 1 and of its classes of version 2, not of our tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from nnilite.config import ExperimentConfig, ServiceConfig, from_dict
from nnilite.errors import ConfigError
from unit.test_nni_fields import OLDER, PRESENT, SPACE, is_an_answer, said_of

COMMON = """
authorName: me
experimentName: e
description: d
trialConcurrency: 2
maxExecDuration: 1h
maxTrialDuration: 30m
maxTrialNum: 10
multiPhase: false
multiThread: false
nniManagerIp: 10.0.0.9
logDir: /tmp
debug: true
versionCheck: false
logLevel: info
logCollection: http
useAnnotation: false
tuner: {builtinTunerName: TPE, classArgs: {optimize_mode: maximize}, gpuIndices: "0,1", includeIntermediateResults: no}
assessor: {builtinAssessorName: Medianstop, classArgs: {optimize_mode: maximize}}
sharedStorage: {storageType: NFS, localMountPoint: /m, remoteMountPoint: /m, nfsServer: h, exportedDirectory: /e,
  localMounted: usermount}
"""
PAI_TRIAL = """command: c, codeDir: ., gpuNum: 0, cpuNum: 1, memoryMB: 1024, image: i, virtualCluster: v,
  paiStorageConfigName: s, nniManagerNFSMountPath: /n, containerNFSMountPath: /c"""
ROLE = "command: c, gpuNum: 0, cpuNum: 1, memoryMB: 1024, image: i, privateRegistryAuthPath: f"
TASK = f"""name: w, taskNum: 1, {ROLE},
    frameworkAttemptCompletionPolicy: {{minFailedTaskCount: 1, minSucceededTaskCount: 1}}"""
AZURE = """storage: azureStorage, keyVault: {vaultName: v, name: n}, uploadRetryCount: 2,
  azureStorage: {accountName: aaa, azureShare: sss, azureSecret: s}"""
VERSION_1 = {
    "local": """
trial: {command: c, codeDir: ., gpuNum: 0, nasMode: classic_mode}
localConfig: {gpuIndices: "0", maxTrialNumPerGpu: 2, useActiveGpu: true}""",
    "remote": """
trial: {command: c, codeDir: ., gpuNum: 0}
remoteConfig: {reuse: true}
machineList:
- {ip: h, port: 22, username: me, sshKeyPath: k, passphrase: p, gpuIndices: "0", maxTrialNumPerGpu: 2, useActiveGpu: on,
  pythonPath: /p}
- {ip: g, username: me, passwd: x}""",
    "pai": f"""
trial: {{{PAI_TRIAL}}}
paiConfig: {{userName: me, token: t, host: h, reuse: on, gpuNum: 0, cpuNum: 1, memoryMB: 9, maxTrialNumPerGpu: 1,
  useActiveGpu: on}}""",
    "pai with a password": """
trial: {command: c, codeDir: ., gpuNum: 0, cpuNum: 1, memoryMB: 1024, image: i, authFile: f, shmMB: 1, dataDir: "hdfs://h:9/x",
  outputDir: "hdfs://h:9/y", virtualCluster: v, nasMode: enas_mode, portList: [{label: l, beginAt: 1, portNumber: 2}]}
paiConfig: {userName: me, passWord: p, host: h}""",
    "aml": """
trial: {command: c, codeDir: ., image: i, gpuNum: 0}
amlConfig: {subscriptionId: s, resourceGroup: r, workspaceName: w, computeTarget: c, maxTrialNumPerGpu: 1,
  useActiveGpu: on}""",
    "dlts": """
trial: {command: c, codeDir: ., image: i, gpuNum: 0}
dltsConfig: {dashboard: "http://h", cluster: c, team: t, email: e, password: p}""",
    "adl": """
trial: {command: c, codeDir: ., image: i, gpuNum: 0, namespace: n, imagePullSecrets: [{name: s}], adaptive: false,
  nfs: {server: h, path: /p, containerMountPath: /c}, checkpoint: {storageClass: s, storageSize: 1Gi}, cpuNum: 1,
  memorySize: 1Gi}""",
    "kubeflow": f"""
trial: {{codeDir: ., nasMode: darts_mode, ps: {{replicas: 1, {ROLE}}}, worker: {{replicas: 1, {ROLE}}}}}
kubeflowConfig: {{operator: tf-operator, apiVersion: v1, storage: nfs, nfs: {{server: h, path: /p}}, reuse: on,
  namespace: n}}""",
    "kubeflow on Azure": f"""
trial: {{codeDir: ., master: {{replicas: 1, {ROLE}}}}}
kubeflowConfig: {{operator: pytorch-operator, apiVersion: v1, {AZURE}}}""",
    "frameworkcontroller": f"""
trial: {{codeDir: ., taskRoles: [{{{TASK}}}]}}
frameworkcontrollerConfig: {{storage: nfs, serviceAccountName: s, nfs: {{server: h, path: /p}}, namespace: n,
  reuse: on}}""",
    "frameworkcontroller on Azure": f"""
trial: {{codeDir: ., taskRoles: [{{{TASK}}}]}}
frameworkcontrollerConfig: {{{AZURE}}}""",
    "frameworkcontroller on a claim": f"""
trial: {{codeDir: ., taskRoles: [{{{TASK}}}]}}
frameworkcontrollerConfig: {{pvc: {{path: /p, claim: mine}}}}""",
    "hybrid": f"""
trial: {{{PAI_TRIAL}, nasMode: oneshot_mode}}
hybridConfig: {{trainingServicePlatforms: [local, remote, pai, aml]}}
localConfig: {{useActiveGpu: true}}
remoteConfig: {{reuse: true}}
machineList: [{{ip: h, username: me, passwd: x}}]
paiConfig: {{userName: me, token: t, host: h}}
amlConfig: {{subscriptionId: s, resourceGroup: r, workspaceName: w, computeTarget: c}}""",
}
ROLE_2 = "command: c, gpuNumber: 0, cpuNumber: 1, memorySize: 1gb, dockerImage: i"
VERSION_2 = {
    "local": "useActiveGpu: true, maxTrialNumberPerGpu: 2, gpuIndices: [0], reuseMode: false",
    "remote": """reuseMode: true, machineList: [{host: h, port: 22, user: me, password: x, sshKeyFile: k,
      sshPassphrase: p, useActiveGpu: true, maxTrialNumberPerGpu: 2, gpuIndices: "0", pythonPath: /p}]""",
    "openpai": """host: h, username: me, token: t, trialCpuNumber: 1, trialMemorySize: 1gb, storageConfigName: s,
      dockerImage: i, virtualCluster: v, localStorageMountPoint: /l, containerStorageMountPoint: /c, reuseMode: true""",
    "aml": """subscriptionId: s, resourceGroup: r, workspaceName: w, computeTarget: c, dockerImage: i,
      maxTrialNumberPerGpu: 1""",
    "dlc": """type: Worker, image: i, jobType: TFJob, podCount: 1, ecsSpec: e, region: r, workspaceId: w,
      nasDataSourceId: n, ossDataSourceId: o, accessKeyId: a, accessKeySecret: b, localStorageMountPoint: /l,
      containerStorageMountPoint: /c""",
    "kubeflow": f"""operator: tf-operator, apiVersion: v1, reuseMode: true, namespace: n,
      storage: {{storageType: nfs, server: h, path: /p}}, worker: {{replicas: 1, codeDirectory: ., {ROLE_2}}},
      ps: {{replicas: 1, codeDirectory: ., {ROLE_2}}}""",
    "frameworkcontroller": f"""serviceAccountName: s, reuseMode: true, namespace: n,
      storage: {{storageType: azureStorage, azureAccount: aaa, azureShare: sss, azureKey: k, keyVaultName: v,
      keyVaultKey: k}}, taskRoles: [{{name: w, taskNumber: 1, {ROLE_2},
      frameworkAttemptCompletionPolicy: {{minFailedTaskCount: 1, minSucceedTaskCount: 1}}}}]""",
}


def older(name: str) -> dict[str, Any]:
    platform = name.partition(" ")[0]
    return {**yaml.safe_load(COMMON + VERSION_1[name]), "trainingServicePlatform": platform, "searchSpace": SPACE}


def service(platform: str) -> dict[str, Any]:
    return {"platform": platform, **yaml.safe_load(f"{{{VERSION_2[platform]}}}")}


def names(value: Any) -> Iterator[str]:
    """Return the names of all fields in a value."""
    for name, below in value.items() if isinstance(value, Mapping) else ():
        yield name
        yield from names(below)
    for below in value if isinstance(value, list) else ():
        yield from names(below)


@pytest.mark.parametrize("name", VERSION_1)
def test_a_file_with_every_field_of_its_platform_is_taken(name: str) -> None:
    checked = from_dict(older(name)).checked(paths=False)
    platform = name.partition(" ")[0]
    assert checked.services[0].platform == {"pai": "openpai", "hybrid": "local"}.get(platform, platform)


@pytest.mark.parametrize("platform", VERSION_2)
def test_every_field_of_a_present_platform_is_taken_in_yaml_and_in_python(platform: str) -> None:
    section = service(platform)
    config = {**PRESENT, "trialGpuNumber": 0, "trainingService": section}
    read = from_dict(config).checked(paths=False).services[0]
    fields = {key: value for key, value in section.items() if key != "platform"}
    made = ExperimentConfig(**{**config, "trainingService": ServiceConfig(platform, **fields)})
    assert made.checked(paths=False).services[0] == read


def test_a_claim_without_its_name_is_asked_for_in_the_format_of_the_file() -> None:
    config = older("frameworkcontroller on a claim")
    del config["frameworkcontrollerConfig"]["pvc"]["claim"]
    with pytest.raises(ConfigError, match=r"^frameworkcontrollerConfig.pvc.claim: is needed for storageType pvc"):
        from_dict(config).checked(paths=False)


def test_a_list_without_a_meaning_is_left_out_with_one_warning() -> None:
    warnings = from_dict(older("pai with a password")).checked(paths=False).warnings
    assert [line for line in warnings if "portList" in line] == [
        "trial.portList no longer has an effect and was left out"
    ]


FIELDS = sorted(
    {name for file in VERSION_1 for name in names(yaml.safe_load(VERSION_1[file]))}
    | {name for platform in VERSION_2 for name in names(service(platform)) if name != "platform"}
    | {"openpaiConfig", "openpaiConfigFile"}  # job files of OpenPAI
    | {"storageType", "localMountPoint", "remoteMountPoint", "localMounted", "nfsServer", "exportedDirectory"}
    | {"storageAccountName", "storageAccountKey", "containerName", "resourceGroupName"}  # of the shared storage
)
STORAGE = yaml.safe_load(COMMON)["sharedStorage"]
PLACES = {
    "the top of a present file": (PRESENT, ()),
    "trainingService": (PRESENT, ("trainingService",)),
    "the present tuner": (PRESENT, ("tuner",)),
    "the top of an older file": (OLDER, ()),
    "trial": (OLDER, ("trial",)),
    "localConfig": ({**OLDER, "localConfig": {}}, ("localConfig",)),
    "the present sharedStorage": ({**PRESENT, "sharedStorage": STORAGE}, ("sharedStorage",)),
    "the older sharedStorage": ({**OLDER, "sharedStorage": STORAGE}, ("sharedStorage",)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_field_of_a_platform_in_another_place_is_answered(place: str) -> None:
    config, path = PLACES[place]
    for name in FIELDS:
        odd = {name: "x"}
        whole = {**config, **odd} if not path else {**config, path[0]: {**config[path[0]], **odd}}
        said = said_of(whole, name)
        assert is_an_answer(said), name
        assert len(said) < 300, name
