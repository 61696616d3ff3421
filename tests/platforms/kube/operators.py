"""Kubeflow's operators, as far as their rules are told in the contracts: what they refuse, make, tell and clean up."""

from __future__ import annotations

import json
import re
from typing import Any

from platforms.kube.client import MAPS, MPIJOBS_V1, MPIJOBS_V2, PYTORCHJOBS, TFJOBS, Api, Key
from platforms.kube.controllers import Controller, Operators, reference

CRDS: dict[Key, str] = {
    TFJOBS: "kubeflow.org_tfjobs.v1.yaml",
    PYTORCHJOBS: "kubeflow.org_pytorchjobs.v1.yaml",
    MPIJOBS_V1: "kubeflow.org_mpijobs.v1.yaml",
    MPIJOBS_V2: "kubeflow.org_mpijobs.v2beta1.yaml",
}
_L = "training.kubeflow.org/"


class KubeflowController(Controller):
    """What the kinds have in common."""

    specs = ""
    deletes_failed = True  # the training-operator, where a limit of restarts is given

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace)
        self._exceeded: set[str] = set()  # the uids of jobs that have failed too often

    def replicas(self, job: Any) -> dict[str, Any]:
        return job["spec"][self.specs]

    def reconcile(self, content: Any) -> None:
        status = content.get("status") or {}
        done = {entry["type"] for entry in status.get("conditions") or [] if entry["status"] == "True"}
        if {"Succeeded", "Failed"} & done:
            self.clean(content)
            return
        self.conclude(content, "Created", f"{content['kind']}Created")
        self.make(content)
        pods = self.by_role(content)
        if content["metadata"]["uid"] in self._exceeded or self.exceeds_limit(content, pods):
            self.end_all(content)
            return
        self.restart(content, pods)
        if any(pod["status"]["phase"] == "Running" for found in pods.values() for pod in found.values()):
            self.conclude(content, "Running", f"{content['kind']}Running")
        verdict = self.verdict(content, pods)
        if verdict:
            self.conclude(content, verdict, f"{content['kind']}{verdict}", f"{content['kind']} {verdict}")

    def exceeds_limit(self, job: Any, pods: dict[str, dict[int, Any]]) -> bool:
        """Whether pods have failed too often. Source: ReconcileJobs in pkg/controller.v1/common/job.go."""
        limit = (job["spec"].get("runPolicy") or {}).get("backoffLimit")
        failed = sum(pod["status"]["phase"] == "Failed" for found in pods.values() for pod in found.values())
        return self.deletes_failed and limit is not None and failed > limit

    def end_all(self, job: Any) -> None:
        """Delete all pods, the failed ones too, and then tell the failure.

        Source: DeletePodsAndServices in the same file: cleanPodPolicy counts for finished jobs alone, and this one is
        not finished yet. The status comes last here, as where the server refuses the first try to write it.
        """
        self._exceeded.add(job["metadata"]["uid"])
        pods = self.pods(job)
        self.delete(pods)
        if not any(pod["status"]["phase"] == "Failed" for pod in pods):
            message = f"{job['kind']} has failed because it has reached the specified backoff limit"
            self.conclude(job, "Failed", f"{job['kind']}Failed", message)

    def by_role(self, job: Any) -> dict[str, dict[int, Any]]:
        found: dict[str, dict[int, Any]] = {name.lower(): {} for name in self.replicas(job)}
        for pod in self.pods(job):
            labels = pod["metadata"]["labels"]
            found[labels[_L + "replica-type"]][int(labels[_L + "replica-index"])] = pod
        return found

    def make(self, job: Any) -> None:
        """The pods that are missing; those that are too many go."""
        have = self.by_role(job)
        for role, spec in self.replicas(job).items():
            for index in range(spec.get("replicas", 1)):
                if index not in have[role.lower()]:
                    self.make_role(job, role, index, spec)
            self.delete([pod for index, pod in have[role.lower()].items() if index >= spec.get("replicas", 1)])

    def make_role(self, job: Any, role: str, index: int, spec: Any) -> None:
        name = job["metadata"]["name"]
        labels = {_L + "job-name": name, _L + "replica-type": role.lower(), _L + "replica-index": str(index)}
        template = json.loads(json.dumps(spec["template"]))
        env = [{"name": key, "value": value} for key, value in self.environment(job, role, index).items()]
        for container in template["spec"]["containers"]:
            container["env"] = [*(container.get("env") or []), *env]
        self.adapt(job, role, template["spec"])
        policy = spec.get("restartPolicy", "Never")
        again = {"restartPolicy": "Never" if policy == "ExitCode" else policy}  # which pods do not know
        self.make_pod(job, f"{name}-{role.lower()}-{index}", template, labels, again)

    def environment(self, job: Any, role: str, index: int) -> dict[str, str]:
        return {}

    def adapt(self, job: Any, role: str, spec: Any) -> None:
        """Add to the spec of a pod."""

    def restart(self, job: Any, pods: dict[str, dict[int, Any]]) -> None:
        """ExitCode: what was killed is made anew."""
        for role, spec in self.replicas(job).items():
            if spec.get("restartPolicy") == "ExitCode":
                self.delete([pod for pod in pods[role.lower()].values() if exit_code(pod) >= 128])

    def verdict(self, job: Any, pods: dict[str, dict[int, Any]]) -> str:
        speaker = self.speakers(job, pods)
        if speaker and all(pod["status"]["phase"] == "Succeeded" for pod in speaker):
            return "Succeeded"
        for role, spec in self.replicas(job).items():
            again = spec.get("restartPolicy") == "ExitCode"
            for pod in pods[role.lower()].values():
                if pod["status"]["phase"] == "Failed" and not (again and exit_code(pod) >= 128):
                    return "Failed"
        return ""

    def speakers(self, job: Any, pods: dict[str, dict[int, Any]]) -> list[Any]:
        """Those whose success is the job's."""
        raise NotImplementedError

    def clean(self, job: Any) -> None:
        policy = (job["spec"].get("runPolicy") or {}).get("cleanPodPolicy", "None")
        phases = {"All": ("Running", "Pending", "Succeeded", "Failed"), "Running": ("Running", "Pending")}
        self.delete([pod for pod in self.pods(job) if pod["status"]["phase"] in phases.get(policy, ())])


class TFJobs(KubeflowController):
    key, specs = TFJOBS, "tfReplicaSpecs"

    def environment(self, job: Any, role: str, index: int) -> dict[str, str]:
        name, space = job["metadata"]["name"], job["metadata"]["namespace"]
        counts = {kind.lower(): spec.get("replicas", 1) for kind, spec in self.replicas(job).items()}
        if sum(counts.values()) == 1:
            return {}
        cluster = {k: [f"{name}-{k}-{n}.{space}.svc:2222" for n in range(c)] for k, c in counts.items()}
        task = {"type": role.lower(), "index": index}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}

    def speakers(self, job: Any, pods: dict[str, dict[int, Any]]) -> list[Any]:
        for role in ("chief", "master"):
            if pods.get(role):
                return list(pods[role].values())
        return [pod for index, pod in pods.get("worker", {}).items() if index == 0]


class PyTorchJobs(KubeflowController):
    key, specs = PYTORCHJOBS, "pytorchReplicaSpecs"

    def environment(self, job: Any, role: str, index: int) -> dict[str, str]:
        specs, name = self.replicas(job), job["metadata"]["name"]
        elastic = job["spec"].get("elasticPolicy")
        if elastic:
            nodes = f"{elastic['minReplicas']}:{elastic['maxReplicas']}"
            return {"PET_RDZV_ENDPOINT": f"{name}-worker-0:23456", "PET_NNODES": nodes}
        rank = 0 if role == "Master" else index + 1
        size = sum(spec.get("replicas", 1) for spec in specs.values())
        return {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": str(size), "RANK": str(rank)}

    def speakers(self, job: Any, pods: dict[str, dict[int, Any]]) -> list[Any]:
        if pods.get("master"):
            return list(pods["master"].values())
        workers = list(pods.get("worker", {}).values())
        done = [pod for pod in workers if pod["status"]["phase"] == "Succeeded"]
        return done if done and job["spec"].get("elasticPolicy") else workers


class MPIJobs(KubeflowController):
    """Version 1 of the training-operator. Hosts are named with their slots."""

    key, specs = MPIJOBS_V1, "mpiReplicaSpecs"
    # `sleep 365d` in truth: the first process of a container, which ignores SIGTERM.
    worker: tuple[str, ...] = ("/bin/sh", "-c", "trap '' TERM; exec sleep 1000")

    def replicas(self, job: Any) -> dict[str, Any]:
        """Workers are made first."""
        return dict(sorted(super().replicas(job).items(), reverse=True))

    def make(self, job: Any) -> None:
        self._tell_hosts(job)
        super().make(job)

    def host(self, job: Any, pod: Any) -> str:
        return f"{pod['metadata']['name']}:{job['spec'].get('slotsPerWorker', 1)}"

    def _tell_hosts(self, job: Any) -> None:
        workers = [pod for pod in self.by_role(job)["worker"].values() if pod["status"]["phase"] == "Running"]
        hosts = sorted(self.host(job, pod) for pod in workers if not pod["metadata"].get("deletionTimestamp"))
        data = {"discover_hosts.sh": "#!/bin/sh\n" + "".join(f"echo {host}\n" for host in hosts), "hostfile": ""}
        name = f"{job['metadata']['name']}-config"
        metadata = {"name": name, "ownerReferences": [reference(job)]}
        known = self.api.ensure(MAPS, self.namespace, {"metadata": metadata, "data": data})
        if known["data"] != data:
            self.api.patch(MAPS, self.namespace, name, {"data": data})

    def environment(self, job: Any, role: str, index: int) -> dict[str, str]:
        return {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"} if role == "Launcher" else {}

    def adapt(self, job: Any, role: str, spec: Any) -> None:
        for container in spec["containers"]:
            if role == "Worker" and self.worker:
                container.setdefault("command", self.worker)
        if role == "Launcher":
            source = {"configMap": {"name": f"{job['metadata']['name']}-config"}}
            spec["volumes"] = [*(spec.get("volumes") or []), {"name": "mpi-job-config", **source}]
            for container in spec["containers"]:
                mount = {"name": "mpi-job-config", "mountPath": "/etc/mpi"}
                container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]

    def speakers(self, job: Any, pods: dict[str, dict[int, Any]]) -> list[Any]:
        return list(pods["launcher"].values())

    def verdict(self, job: Any, pods: dict[str, dict[int, Any]]) -> str:
        return super().verdict(job, {**pods, "worker": {}})


class MPIJobsV2(MPIJobs):
    """The MPI operator: hosts without slots; a job that ended gets `Running: False` behind its result."""

    key = MPIJOBS_V2
    worker = ()
    deletes_failed = False  # its pods belong to a Job

    def host(self, job: Any, pod: Any) -> str:
        name = job["metadata"]["name"]
        return f"{pod['metadata']['name']}.{name}.{job['metadata']['namespace']}.svc"

    def refused(self, owner: Any, pod: str, message: str) -> None:
        """The launcher's pod is made by a Job of its own, and what that is refused is told of that Job."""
        if pod.endswith("-launcher-0"):
            name = f"{owner['metadata']['name']}-launcher"
            self.warn(owner, "FailedCreate", message, name=name, uid=f"{owner['metadata']['uid']}-launcher")
        else:
            super().refused(owner, pod, message)

    def clean(self, job: Any) -> None:
        super().clean(job)
        conditions = [entry for entry in job["status"]["conditions"] if entry["type"] != "Running"]
        self.tell(job, conditions=[*conditions, {"type": "Running", "status": "False", "reason": "MPIJobSucceeded"}])


def exit_code(pod: Any) -> int:
    """Of the first container; 0 if it has not ended."""
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        return int((entry["state"].get("terminated") or {}).get("exitCode") or 0)
    return 0


def admits_tfjob(body: Any) -> str:
    return _admits(body, "tfReplicaSpecs", "tensorflow")


def admits_pytorchjob(body: Any) -> str:
    specs = body["spec"].get("pytorchReplicaSpecs") or {}
    if "Master" in specs and specs["Master"].get("replicas") != 1:
        return "Master.replicas must be 1"
    if body["spec"].get("elasticPolicy") and "Worker" not in specs:
        return "elasticPolicy requires Worker"
    return _admits(body, "pytorchReplicaSpecs", "pytorch")


def _admits(body: Any, specs: str, container: str) -> str:
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", body["metadata"]["name"]):
        return "metadata.name is no DNS-1035 label"
    for role, spec in (body["spec"].get(specs) or {}).items():
        if container not in [entry["name"] for entry in spec["template"]["spec"]["containers"]]:
            return f"{role}: no container named {container}"
    return "" if body["spec"].get(specs) else f"{specs} required"


def install(mpi: Key = MPIJOBS_V2) -> Operators:
    """Controllers, CRDs and webhooks of a cluster with all operators; one of the two versions of MPIJob."""
    kinds = (TFJobs, PyTorchJobs, MPIJobsV2 if mpi == MPIJOBS_V2 else MPIJobs)
    crds = {kind.key: CRDS[kind.key] for kind in kinds}
    return Operators(kinds, crds, {TFJOBS: admits_tfjob, PYTORCHJOBS: admits_pytorchjob})
