"""What became of the fields of NNI's older format: tables from their places to those of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOP = {
    "experimentName": "experimentName",
    "trialConcurrency": "trialConcurrency",
    "maxExecDuration": "maxExperimentDuration",
    "maxTrialNum": "maxTrialNumber",
    "maxTrialDuration": "maxTrialDuration",
    "nniManagerIp": "nniManagerIp",
    "debug": "debug",
    "logLevel": "logLevel",
    "useAnnotation": "useAnnotation",
    "searchSpacePath": "searchSpaceFile",
    "logDir": "experimentWorkingDirectory",
    "trial.command": "trialCommand",
    "trial.codeDir": "trialCodeDirectory",
    "trial.gpuNum": "trialGpuNumber",
    "tuner.gpuIndices": "tunerGpuIndices",
    "advisor.gpuIndices": "tunerGpuIndices",
    "sharedStorage": "sharedStorage",
}
FOR_PEOPLE = ("authorName", "description")
"""Left out without a warning: they were notes for people, and never had an effect."""
DROPPED = ("multiThread", "multiPhase", "versionCheck", "logCollection")
DROPPED_BELOW = (
    "includeIntermediateResults",
    "checkpointDir",
    "passWord",
    "uploadRetryCount",
    "dataDir",
    "outputDir",
    "authFile",
    "portList",
    *("label", "beginAt", "portNumber"),  # of portList
    "nasMode",
    "privateRegistryAuthPath",
    "shmMB",
    "resourceGroupName",  # for an Azure account without its key
)
_NFS = {"storage": "storage.storageType", "nfs.server": "storage.server", "nfs.path": "storage.path"}
_KUBERNETES_STORAGE = {
    **_NFS,
    "keyVault.vaultName": "storage.keyVaultName",
    "keyVault.name": "storage.keyVaultKey",
    "azureStorage.accountName": "storage.azureAccount",
    "azureStorage.azureShare": "storage.azureShare",
    "azureStorage.azureKey": "storage.azureKey",
    "azureStorage.azureSecret": "storage.azureSecret",
    "pvc.path": "storage.path",
    "pvc.claim": "storage.claim",
    "reuse": "reuseMode",
    "namespace": "namespace",
    "apiVersion": "apiVersion",
}
_GPUS = {"gpuIndices": "gpuIndices", "maxTrialNumPerGpu": "maxTrialNumberPerGpu", "useActiveGpu": "useActiveGpu"}
ROLE = {
    "command": "command",
    "gpuNum": "gpuNumber",
    "cpuNum": "cpuNumber",
    "memoryMB": "memorySize",
    "image": "dockerImage",
}
MACHINE = {
    "ip": "host",
    "port": "port",
    "username": "user",
    "passwd": "password",
    "sshKeyPath": "sshKeyFile",
    "passphrase": "sshPassphrase",
    "pythonPath": "pythonPath",
    **_GPUS,
}
_POLICY = "frameworkAttemptCompletionPolicy"
TASK = {
    "name": "name",
    "taskNum": "taskNumber",
    **ROLE,
    f"{_POLICY}.minFailedTaskCount": f"{_POLICY}.minFailedTaskCount",
    f"{_POLICY}.minSucceededTaskCount": f"{_POLICY}.minSucceedTaskCount",
}


def _put_under(prefix: str, table: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}.{old}": new for old, new in table.items()}


def _put_into(section: str, table: Mapping[str, str]) -> dict[str, str]:
    return {old: f"{section}.{new}" for old, new in table.items()}


PLATFORMS: dict[str, tuple[str, dict[str, str]]] = {
    "local": ("local", _put_under("localConfig", _GPUS)),
    "remote": ("remote", {"remoteConfig.reuse": "reuseMode"}),
    "pai": (
        "openpai",
        {
            "trial.nniManagerNFSMountPath": "localStorageMountPoint",
            "trial.containerNFSMountPath": "containerStorageMountPoint",
            "trial.cpuNum": "trialCpuNumber",
            "trial.memoryMB": "trialMemorySize",
            "trial.image": "dockerImage",
            "trial.virtualCluster": "virtualCluster",
            "trial.paiStorageConfigName": "storageConfigName",
            "trial.paiConfigPath": "openpaiConfigFile",
            "paiConfig.userName": "username",
            "paiConfig.token": "token",
            "paiConfig.passWord": "password",
            "paiConfig.host": "host",
            "paiConfig.reuse": "reuseMode",
            "paiConfig.gpuNum": "trialGpuNumber",
            "paiConfig.cpuNum": "trialCpuNumber",
            "paiConfig.memoryMB": "trialMemorySize",
        },
    ),
    "aml": (
        "aml",
        {
            "trial.image": "dockerImage",
            "amlConfig.subscriptionId": "subscriptionId",
            "amlConfig.resourceGroup": "resourceGroup",
            "amlConfig.workspaceName": "workspaceName",
            "trial.computeTarget": "computeTarget",
            "amlConfig.computeTarget": "computeTarget",
            "amlConfig.maxTrialNumPerGpu": "maxTrialNumberPerGpu",
        },
    ),
    "kubeflow": (
        "kubeflow",
        {"kubeflowConfig.operator": "operator", **_put_under("kubeflowConfig", _KUBERNETES_STORAGE)},
    ),
    "frameworkcontroller": (
        "frameworkcontroller",
        {
            "frameworkcontrollerConfig.serviceAccountName": "serviceAccountName",
            "frameworkcontrollerConfig.configPath": "configPath",
            **_put_under("frameworkcontrollerConfig", _KUBERNETES_STORAGE),
        },
    ),
    "dlts": (
        "dlts",
        {
            "trial.image": "image",
            **_put_under("dltsConfig", {name: name for name in ("dashboard", "cluster", "team", "email", "password")}),
        },
    ),
    "adl": (
        "adl",
        {
            "trial.image": "dockerImage",
            "trial.cpuNum": "cpuNumber",
            "trial.memorySize": "memorySize",
            **_put_under(
                "trial",
                {name: name for name in ("namespace", "imagePullSecrets", "nfs", "adaptive", "checkpoint")},
            ),
        },
    ),
}
INSTEAD = {
    "privateRegistryAuthPath": "name a Secret of the cluster by imagePullSecrets instead",
    "multiThread": "one thread makes all calls of a tuner, one after the other",
}
NO_MORE = {
    "paiyarn": "is OpenPAI before 1.0, on YARN, which nnilite does not support. OpenPAI 1.0 and later is `pai`; "
    "`nnictl config convert --from openpai` converts a job file of that time",
    "dlc": "is supported only in configs of version 2, as in NNI: write `trainingService: {platform: dlc, ...}`",
    "paik8s": "is called `pai` here, as in later versions of NNI",
}
"""Platforms of NNI that are not carried over, and what to do."""
ROLE_PLATFORMS = {"kubeflow": ("worker", "ps", "master")}
NO_MEANING = {  # by platform, the known fields that have no effect
    "pai": ("paiConfig.maxTrialNumPerGpu", "paiConfig.useActiveGpu"),
    "aml": ("amlConfig.useActiveGpu",),
}


def tables() -> list[Mapping[str, str]]:
    """Return the tables from old places to new ones."""
    return [TOP, MACHINE, TASK, *(table for _, table in PLATFORMS.values())]


def list_older_names() -> dict[str, str]:
    """Return the names in the older format of the fields that sentences name, by their present names."""
    found = {new: old for old, new in [*TOP.items(), *_GPUS.items()] if not old.startswith("advisor.")}
    return {new: old for new, old in {**found, "sshKeyFile": "sshKeyPath"}.items() if new != old}


def list_older_places(section: Any) -> dict[tuple[str | int, ...], tuple[str | int, ...]]:
    """Return where the older format has the fields of a platform's section, by their places in the present one."""
    platform = section.get("platform") if isinstance(section, Mapping) else None
    table = next((table for name, table in PLATFORMS.values() if name == platform), {})
    roles = {f"trial.{role}": role for role in (*ROLE_PLATFORMS.get(str(platform), ()), "taskRoles")}
    both = {**roles, **table}.items()
    return {("trainingService", *new.split(".")): tuple(old.split(".")) for old, new in both}


def list_by_platform() -> list[tuple[str, Mapping[str, str]]]:
    """Return the platforms by their present names, with tables of what their sections have."""
    roles = {name: name for name in ROLE_PLATFORMS["kubeflow"]}
    storage = dict.fromkeys(("nfs", "azureStorage", "keyVault", "pvc"), "storage")
    tasks = {"taskRoles": "taskRoles", _POLICY: f"taskRoles.{_POLICY}"}
    lists = {
        "remote": MACHINE,
        "kubeflow": {**storage, **roles, "replicas": "worker.replicas", **_put_into("worker", ROLE)},
        "frameworkcontroller": {**storage, **tasks, **_put_into("taskRoles", TASK)},
        "adl": {"containerMountPath": "nfs", "storageClass": "checkpoint", "storageSize": "checkpoint"},
    }
    return [(name, {**table, **lists.get(name, {})}) for name, table in PLATFORMS.values()]


def list_without_meaning() -> tuple[str, ...]:
    """Return the names of fields that had a meaning once."""
    return (*FOR_PEOPLE, *DROPPED, *DROPPED_BELOW)
