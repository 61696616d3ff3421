"""Kubeflow Trainer (version 2) and JobSet, as far as their sources and definitions tell their rules.

kubeflow/trainer           pkg/runtime/framework/plugins/{jobset,torch}, pkg/controller, pkg/webhooks
kubernetes-sigs/jobset     docs of labels; pkg/controllers/jobset_controller.go
"""

from __future__ import annotations

import json
from typing import Any

from platforms.kube.client import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS, Api
from platforms.kube.controllers import INDEX, Controller, Operators, reference

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_PORT = "29500"


def condition(content: Any, kind: str) -> Any | None:
    found = (content.get("status") or {}).get("conditions") or []
    return next((entry for entry in found if entry["type"] == kind and entry["status"] == "True"), None)


class TrainJobs(Controller):
    """Makes a JobSet of a TrainJob and its runtime, and tells what becomes of it."""

    key = TRAINJOBS
    follows = (JOBSETS, RUNTIMES)

    def reconcile(self, content: Any) -> None:
        if condition(content, "Complete") or condition(content, "Failed"):
            return
        self._tell_suspension(content)
        metadata = content["metadata"]
        runtime = self.api.get(RUNTIMES, self.namespace, content["spec"]["runtimeRef"]["name"])
        if runtime is None:
            self.warn(content, "TrainJobResourcesCreationFailed", "TrainJob resources reconciliation failed: not found")
            return
        spec = self._job_set(content, runtime)
        known = self.api.ensure(
            JOBSETS,
            self.namespace,
            {"metadata": {"name": metadata["name"], "ownerReferences": [reference(content)]}, "spec": spec},
        )
        if known["spec"].get("suspend", False) != spec["suspend"]:
            self.api.patch(JOBSETS, self.namespace, metadata["name"], {"spec": {"suspend": spec["suspend"]}})
        for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
            found = condition(known, theirs)
            if found:
                self.conclude(content, ours, found["reason"], found["message"])

    def _tell_suspension(self, job: Any) -> None:
        suspended, known = bool(job["spec"].get("suspend")), condition(job, "Suspended")
        if suspended == bool(known):
            return
        if suspended:
            self.conclude(job, "Suspended", "Suspended", "TrainJob is suspended")
            return
        others = [entry for entry in job["status"]["conditions"] if entry["type"] != "Suspended"]
        resumed = {**known, "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}
        self.tell(job, conditions=[*others, resumed])

    def _job_set(self, job: Any, runtime: Any) -> Any:
        spec = json.loads(json.dumps(runtime["spec"]["template"]["spec"]))
        policy, trainer = runtime["spec"].get("mlPolicy") or {}, job["spec"].get("trainer")
        nodes = (trainer or {}).get("numNodes") or policy.get("numNodes") or 1
        for replicated in spec["replicatedJobs"]:
            if ((replicated["template"].get("metadata") or {}).get("labels") or {}).get(_STEP) == "trainer":
                replicated["template"]["spec"].update(parallelism=nodes, completions=nodes)
                if trainer is not None and "torch" in policy:
                    _add_torch(job, replicated, nodes, trainer.get("numProcPerNode") or "auto")
        return {**spec, "suspend": bool(job["spec"].get("suspend"))}


def _add_torch(job: Any, replicated: Any, nodes: int, processes: Any) -> None:
    """The variables of torchrun, which only the container `node` gets."""
    name = job["metadata"]["name"]
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    known = {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(processes), "PET_MASTER_PORT": _PORT}
    known["PET_MASTER_ADDR"] = f"{name}-node-0-0.{name}"
    for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
        if container["name"] == "node":
            more = [{"name": key, "value": value} for key, value in known.items()]
            container["env"] = [*(container.get("env") or []), *more, {"name": "PET_NODE_RANK", "valueFrom": index}]


class JobSets(Controller):
    """Makes the pods, for the Job of each replicated Job, too: Kubernetes 1.20, which tests use, has no numbered ones.

    A Job whose pods fail more often than its limit ends the others, and then tells it. A pod that somebody has deleted
    counts as failed (syncJob and `trackJobStatusAndRemoveFinalizers` in pkg/controller/job/job_controller.go).
    """

    key = JOBSETS

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace)
        self._made: set[tuple[str, str]] = set()  # uids of JobSets, and names of their pods
        self._over: set[str] = set()

    def reconcile(self, content: Any) -> None:
        uid, pods = content["metadata"]["uid"], self.pods(content)
        if condition(content, "Completed") or condition(content, "Failed"):
            return
        if content["spec"].get("suspend"):
            self.delete(pods)
            self._made = {(owner, name) for owner, name in self._made if owner != uid}
            return
        limit = max(job["template"]["spec"].get("backoffLimit", 6) for job in content["spec"]["replicatedJobs"])
        names = {pod["metadata"]["name"] for pod in pods}
        gone = sum(owner == uid and name not in names for owner, name in self._made)
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods) + gone
        if failed > limit or uid in self._over:
            self._fail(content, pods)
            return
        for job in content["spec"]["replicatedJobs"]:
            self._make(content, job)
        if pods and all(pod["status"]["phase"] == "Succeeded" for pod in pods):
            self.conclude(content, "Completed", "AllJobsCompleted", "jobset completed successfully")

    def _fail(self, job_set: Any, pods: list[Any]) -> None:
        self._over.add(job_set["metadata"]["uid"])
        alive = [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
        self.delete(alive)
        if not alive:
            self.conclude(job_set, "Failed", "FailedJobs", "jobset failed due to one or more job failures")

    def _make(self, job_set: Any, replicated: Any) -> None:
        metadata, spec = job_set["metadata"], replicated["template"]["spec"]
        for number in range(spec.get("completions") or 1):
            name = f"{metadata['name']}-{replicated['name']}-0-{number}-x1"
            if (metadata["uid"], name) in self._made:
                continue
            marks = {"jobset.sigs.k8s.io/jobset-name": metadata["name"], INDEX: str(number)}
            template = json.loads(json.dumps(spec["template"]))
            own = template.setdefault("metadata", {})
            own["annotations"] = {**(own.get("annotations") or {}), INDEX: str(number)}
            for container in template["spec"]["containers"]:
                mark = {"name": "JOB_COMPLETION_INDEX", "value": str(number)}
                container["env"] = [*(container.get("env") or []), mark]
            labels = {**marks, "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"]}
            if self.make_pod(job_set, name, template, labels):
                self._made.add((metadata["uid"], name))

    def refused(self, owner: Any, pod: str, message: str) -> None:
        """What a Job is refused is told of it."""
        name = pod.rsplit("-", 2)[0]
        self.warn(owner, "FailedCreate", message, name=name, uid=f"{owner['metadata']['uid']}-{name}")


def admits_runtime(body: Any) -> str:
    """What the webhook of runtimes says. Source: validateReplicatedJobs in pkg/webhooks/trainingruntime_webhook.go."""
    for job in body["spec"]["template"]["spec"]["replicatedJobs"]:
        if ((job["template"].get("metadata") or {}).get("labels") or {}).get(_STEP) != "trainer":
            continue
        if job.get("replicas", 1) != 1:
            return "replicas: always must be 1"
        if "node" not in [each["name"] for each in job["template"]["spec"]["template"]["spec"]["containers"]]:
            return "must contain the required container for the ancestor: trainer"
    return ""


def install_trainer() -> Operators:
    group = "trainer.kubeflow.org_"
    crds = {
        TRAINJOBS: f"{group}trainjobs.yaml",
        RUNTIMES: f"{group}trainingruntimes.yaml",
        CLUSTER_RUNTIMES: f"{group}clustertrainingruntimes.yaml",
        JOBSETS: "jobset.x-k8s.io_jobsets.yaml",
    }
    return Operators((TrainJobs, JobSets), crds, {RUNTIMES: admits_runtime, CLUSTER_RUNTIMES: admits_runtime})
