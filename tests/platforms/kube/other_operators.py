"""FrameworkController and AdaptDL's scheduler, as far as their rules are told in the contracts."""

from __future__ import annotations

from typing import Any

from platforms.kube.client import ADAPTDLJOBS, FRAMEWORKS
from platforms.kube.controllers import Controller, Operators
from platforms.kube.operators import exit_code

_DELETED = {
    "code": -101,
    "phrase": "PodExternalDeleted",
    "type": {"name": "Failed", "attributes": ["Transient"]},
}


class Frameworks(Controller):
    """Makes a pod for each task, and deletes all of them when a completion policy is met."""

    key = FRAMEWORKS
    status_part = ""

    def reconcile(self, content: Any) -> None:
        state = (content.get("status") or {}).get("state")
        if state in ("Completed", "AttemptDeleting"):
            self._end(content)
            return
        wanted = sum(role["taskNumber"] for role in content["spec"]["taskRoles"])
        if state is None:
            for role in content["spec"]["taskRoles"]:
                for index in range(role["taskNumber"]):
                    self._make(content, role, index)
        pods = self.pods(content)
        running = any(pod["status"]["phase"] == "Running" for pod in pods)
        if len(pods) == wanted:
            self.tell(content, state="AttemptRunning" if running else "AttemptPreparing")
        completion = self._convert_completion(content, pods) or (_DELETED if state and len(pods) < wanted else None)
        if completion:
            self.tell(content, state="AttemptDeleting", attemptStatus={"completionStatus": completion})

    def _make(self, content: Any, role: Any, index: int) -> None:
        name = content["metadata"]["name"]
        labels = {"FC_FRAMEWORK_NAME": name, "FC_TASKROLE_NAME": role["name"], "FC_TASK_INDEX": str(index)}
        template = dict(role["task"]["pod"])
        own = [{"name": key, "value": value} for key, value in labels.items()]
        containers = [{**c, "env": [*(c.get("env") or []), *own]} for c in template["spec"]["containers"]]
        spec = {**template["spec"], "containers": containers}
        self.make_pod(content, f"{name}-{role['name']}-{index}", {**template, "spec": spec}, labels)

    def _convert_completion(self, content: Any, pods: list[Any]) -> Any:
        for role in content["spec"]["taskRoles"]:
            mine = [pod for pod in pods if pod["metadata"]["labels"]["FC_TASKROLE_NAME"] == role["name"]]
            failed = [pod for pod in mine if pod["status"]["phase"] == "Failed"]
            done = [pod for pod in mine if pod["status"]["phase"] == "Succeeded"]
            policy = role["frameworkAttemptCompletionPolicy"]
            if 0 < policy["minFailedTaskCount"] <= len(failed):
                return {
                    "code": exit_code(failed[0]),
                    "phrase": "ContainerUnrecognizedFailed",
                    "type": {"name": "Failed"},
                }
            if 0 < policy["minSucceededTaskCount"] <= len(done):
                return {"code": 0, "phrase": "Succeeded", "type": {"name": "Succeeded"}}
        if pods and all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods):
            return {"code": 0, "phrase": "Succeeded", "type": {"name": "Succeeded"}}
        return None

    def _end(self, content: Any) -> None:
        pods = self.pods(content)
        self.delete(pods)
        if not pods:
            self.tell(content, state="Completed")


class AdaptDLJobs(Controller):
    """Places all replicas at once; another allocation means to end all and start anew.

    The allocator would be another part of the scheduler; here the fewest replicas are what a job gets, until somebody
    else says otherwise in `status.allocation`, a list with the node of each replica.
    """

    key = ADAPTDLJOBS

    def reconcile(self, content: Any) -> None:
        status = content.get("status") or {}
        phase = status.get("phase", "Pending")
        if phase in ("Succeeded", "Failed"):
            return
        pods = self.pods(content)
        if phase == "Pending":
            self._place(content, status)
        elif phase == "Stopping":
            if not pods:
                self.tell(content, phase="Pending", group=status["group"] + 1)
        else:
            self._judge(content, status, pods)

    def _place(self, content: Any, status: Any) -> None:
        group = status.get("group", 0)
        number = len(status.get("allocation") or ()) or content["spec"].get("minReplicas") or 1
        metadata = content["metadata"]
        for rank in range(number):
            name = f"{metadata['name']}-{metadata['uid'][:8]}-{group}-{rank}"
            template = {**content["spec"]["template"]}
            notes = {"adaptdl/rank": str(rank), "adaptdl/group": str(group)}
            own = template.get("metadata") or {}
            template["metadata"] = {**own, "annotations": {**(own.get("annotations") or {}), **notes}}
            known = {"RANK": rank, "NUM": number}
            variables = {"ADAPTDL_REPLICA_RANK": known["RANK"], "ADAPTDL_NUM_REPLICAS": known["NUM"]}
            variables["ADAPTDL_NUM_RESTARTS"] = group
            env = [{"name": key, "value": str(value)} for key, value in variables.items()]
            spec = {**_with_memory(template["spec"], env), "restartPolicy": "Never"}
            if not self.make_pod(content, name, template, {"adaptdl/job": metadata["name"]}, spec):
                self.tell(content, phase="Failed", reason="PodCreationError")
                return
        self.tell(content, phase="Starting", group=group, replicas=number, allocation=["node"] * number)

    def _judge(self, content: Any, status: Any, pods: list[Any]) -> None:
        phases = [pod["status"]["phase"] for pod in pods]
        if pods and set(phases) == {"Succeeded"}:
            self.tell(content, phase="Succeeded")
            self.delete(pods)
        elif any(pod["status"]["phase"] == "Failed" and not self._preempted(content, pod) for pod in pods):
            self.tell(content, phase="Failed", reason="PodFailure")
            self.delete([pod for pod in pods if pod["status"]["phase"] != "Failed"])
        elif not pods or "Failed" in phases or len(status["allocation"]) != status["replicas"]:
            self.tell(content, phase="Stopping")
            self.delete(pods)
        elif set(phases) == {"Running"}:
            self.tell(content, phase="Running")

    @staticmethod
    def _preempted(content: Any, pod: Any) -> bool:
        return bool(content["spec"].get("preemptible", True)) and exit_code(pod) == 143


def _with_memory(spec: Any, env: list[Any]) -> dict[str, Any]:
    """Containers and volumes as AdaptDL changes them: each container gets variables, and memory at /dev/shm."""
    mount = {"name": "adaptdl-shm", "mountPath": "/dev/shm"}
    containers = [
        {**c, "env": [*(c.get("env") or []), *env], "volumeMounts": [*(c.get("volumeMounts") or []), mount]}
        for c in spec["containers"]
    ]
    volume = {"name": "adaptdl-shm", "emptyDir": {"medium": "Memory"}}
    return {"containers": containers, "volumes": [*(spec.get("volumes") or []), volume]}


def install_frameworkcontroller() -> Operators:
    return Operators((Frameworks,), {FRAMEWORKS: "frameworks-crd.v1.yaml"})


def install_adaptdl() -> Operators:
    return Operators((AdaptDLJobs,), {ADAPTDLJOBS: "adaptdl-crd.v1.yaml"})
