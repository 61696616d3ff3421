"""The training service of all Kubernetes platforms.

A job is an object of the platform's kind and a Secret, which the object owns, both of a name that follows from the
job's. Two threads watch all objects and all pods of the experiment; `poll` answers from what they know, and asks the
server only for jobs that they do not know (any more). All calls to the server are made in a few threads of our own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nnilite.errors import ConfigError, NotFound, Place, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._access import check_quotas, check_rights
from nnilite_kubernetes._api import EVENTS, PODS, SECRETS, ApiError, Cluster, Resource, connect
from nnilite_kubernetes._config import ClusterConfig
from nnilite_kubernetes._kind import Kind
from nnilite_kubernetes._log import PodLog
from nnilite_kubernetes._memory import Memory, Note
from nnilite_kubernetes._mirror import Mirror
from nnilite_kubernetes._roles import RoleRecords
from nnilite_kubernetes._status import (
    Facts,
    container_start,
    pod_end,
    rank,
    reporting,
    role_of,
    status,
    unexplained,
    wait_of,
)
from nnilite_kubernetes._submitter import Submitter

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS = 4
_SILENCE_S = 60.0  # a server that has not answered for so long: nothing can be said of jobs
_NOTES_EVERY_S = 10.0
_LAST_LOGS_S = 10.0  # so long an ended job is kept for the logs of its pods
_CANCEL = {"metadata": {"annotations": {"nnilite/canceled": "true"}}}


class ClusterService(TrainingService):
    """A handle is {"job": its name, "uid": of its object, "report": how it reports}; all else follows from the name."""

    make_kind: ClassVar[type[Any]]  # a Kind, made from the config

    def __init__(self, name: str, config: ClusterConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._kind: Kind = self.make_kind(config)
        self._namespace = config.namespace
        self._pool: ThreadPoolExecutor | None = None
        self._cluster: Cluster | None = None
        self._objects: Mirror | None = None
        self._pods: Mirror | None = None
        self._memories: dict[tuple[str, str], Memory] = {}  # by the names and uids of the jobs' objects
        self._lock = threading.Lock()
        self._roles: RoleRecords | None = None
        self._submitter = Submitter(name, self._kind, config, context)

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubernetes")
        self._submitter = Submitter(self.name, self._kind, self.config, self.context)  # the code is taken anew
        if self.config.reuse_mode:
            log.info("reuseMode has no effect: each trial has pods of its own")
        try:
            await self._in_thread(self._open)
        except BaseException as error:
            await self.close()
            if isinstance(error, ApiError) and error.status in (401, 403):
                raise ConfigError(str(error), Place(field="kubeconfig")) from error
            raise

    def _open(self) -> None:
        kubeconfig = self.config.kubeconfig
        self._cluster = connect(str(kubeconfig) if kubeconfig else None, self.config.kube_context)
        report = "stdout" if self.context.defaults.get("callback") == "log" else "rest"
        check_rights(self._cluster, self._namespace, self._kind, self._submitter.sends_code(report))
        self._kind.check(self._cluster)
        place = (self._namespace, manifests.selector(self.context.experiment, self.name))
        self._objects = Mirror(self._cluster, self._kind.resource, *place, self._object_changed)
        self._pods = Mirror(self._cluster, PODS, *place, self._pod_changed)
        self._roles = RoleRecords(self._cluster, self._namespace, self.context.directory)
        self._objects.start()
        self._pods.start()
        if not self._objects.all():  # else there are trials to be watched, whatever has changed since they began
            check_quotas(self._cluster, self._namespace, self._submitter.demand(self._sample(report)))
            self._submitter.check_storage(report)
        self._tidy_up(self._cluster)
        if self._submitter.sends_code(report):
            self._submitter.delete_code_pod(self._cluster)

    def _sample(self, report: str) -> Job:
        """A job such as will come."""
        gpus = self.context.defaults.get("trialGpuNumber")
        return Job("nni-sample", self.context.experiment, "sample", 0, 0, {"report": report}, gpus)

    def _tidy_up(self, cluster: Cluster) -> None:
        """What an earlier manager left half made is set right; its keepers are told where this one is."""
        address = manifests.encoded(self._submitter.address(cluster))
        selector = manifests.selector(self.context.experiment, self.name)
        for resource in (SECRETS, *self._kind.owned):
            for item in cluster.select(resource, self._namespace, labelSelector=selector).get("items") or []:
                kept = self._settled(cluster, resource, item)
                if kept and (item.get("data") or {}).get("callback") not in (None, address):
                    change = {"data": {"callback": address}}
                    cluster.patch(resource, self._namespace, item["metadata"]["name"], change)

    def _settled(self, cluster: Cluster, resource: Resource, item: Json) -> bool:
        """What was made for a job goes if there is no such job, and else belongs to it; False if it is gone."""
        metadata = item["metadata"]
        if metadata.get("ownerReferences"):
            return True
        owner = self._object(metadata["name"])
        if owner is None:
            cluster.delete(resource, self._namespace, metadata["name"], metadata["uid"])
            return False
        self._submitter.own(cluster, resource, item, owner)
        return True

    async def close(self) -> None:
        for mirror in (self._objects, self._pods):
            if mirror is not None:
                mirror.close()
        if self._roles is not None:
            self._roles.close()
        self._objects = self._pods = self._roles = None
        pool, self._pool = self._pool, None
        try:
            if pool is not None and self._cluster is not None and self._submitter.filling:
                await asyncio.get_running_loop().run_in_executor(pool, self._submitter.close, self._cluster)
        finally:  # no thread may wait for the server any more: the process would wait for the thread
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
            if self._cluster is not None:
                self._cluster.close()

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        if self._pool is None:
            raise ServiceError(f"{self.name} is not open")
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        made = await self._in_thread(lambda: self._submitter.submit(self._connected(), job))
        if self._objects is not None:
            self._objects.put(made)
        return {"job": job.name, "uid": made["metadata"]["uid"], "report": job.spec.get("report") or "rest"}

    def describe(self, job: Job) -> Json:
        return {"name": job.name, "manifests": self._submitter.describe(job)}

    def _name(self, job: str) -> str:
        return self._submitter.name(job)

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        objects = self._objects
        if objects is None or self._pods is None:
            raise ServiceError(f"{self.name} is not open")
        silent = max(objects.age_s, self._pods.age_s)
        if silent > _SILENCE_S:
            raise ServiceError(f"the cluster has not answered for {silent:.0f} s: {objects.trouble}")
        return await self._in_thread(lambda: [self._status(handle) for handle in handles])

    def _status(self, handle: Handle) -> JobStatus:
        uid, name = str(handle["uid"]), self._name(str(handle["job"]))
        memory = self._memory(name, uid)
        if memory.end is not None:
            return memory.end
        if handle.get("report") == "stdout":
            self._follow(handle)
        content = self._object(name)
        if content is None or content["metadata"]["uid"] != uid:
            return memory.end or self._gone(name, memory)
        facts = self._facts(content)
        found = status(self._kind, facts)
        if found.state.ended and found.ended is None and any(_is_alive(pod) for pod in facts.pods):
            facts = replace(facts, pods=self._pods_now(name))  # the object's end was heard of before its pods'
            found = status(self._kind, facts)
        if facts.canceled and not found.state.ended and not content["metadata"].get("deletionTimestamp"):
            self._delete(content)  # the server had refused, or the manager ended in between
        if found.state is JobState.WAITING and not facts.canceled:
            found = self._patience(facts, found)
        if found.state.ended:
            memory.end = found
            if found.state is JobState.LOST and any(_is_alive(pod) for pod in facts.pods):
                self._delete(content)  # the other roles would go on beside the next attempt
        return found

    def _memory(self, name: str, uid: str) -> Memory:
        return self._memories.setdefault((name, uid), Memory())

    def _memory_of(self, content: Json) -> Memory:
        return self._memory(content["metadata"]["name"], content["metadata"]["uid"])

    def _gone(self, name: str, memory: Memory) -> JobStatus:
        """The object is gone; its pods may still be ending."""
        if any(_is_alive(pod) for pod in self._pods_of(name)):
            return JobStatus(JobState.RUNNING, "it is being ended")
        if memory.canceled:
            return JobStatus(JobState.CANCELED, "canceled")
        return JobStatus(JobState.LOST, "its object is no longer in the cluster")

    def _pods_of(self, name: str) -> list[Json]:
        pods = [] if self._pods is None else self._pods.all()
        return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(manifests.JOB) == name]

    def _pods_now(self, name: str) -> list[Json]:
        selector = f"{manifests.JOB}={name}"
        return list(self._connected().select(PODS, self._namespace, labelSelector=selector).get("items") or [])

    def _object(self, name: str) -> Json | None:
        """An object that is not known to the mirror may be newer than what that has heard of."""
        objects = self._objects
        content = objects.get(name) if objects is not None else None
        if content is None:
            content = self._connected().get(self._kind.resource, self._namespace, name)
            if content is not None and objects is not None:
                objects.put(content)
        return content

    def _facts(self, content: Json) -> Facts:
        known = self._facts_without_asking(content, ())
        silent = unexplained(known)
        if silent is None:
            return known
        return replace(known, note=self._note(silent, self._memory_of(content)))

    def _facts_without_asking(self, content: Json, more: Sequence[Json]) -> Facts:
        """`more`: pods that may no longer be known."""
        name = content["metadata"]["name"]
        newer = {pod["metadata"]["uid"] for pod in more}
        pods = [*more, *(pod for pod in self._pods_of(name) if pod["metadata"]["uid"] not in newer)]
        memory = self._memory_of(content)
        if not pods and memory.reporter is not None and self._kind.outcome(content).state is not None:
            pods = [memory.reporter]  # deleted already, as the job has ended
        canceled = memory.canceled or _is_canceled(content)
        return Facts(content, pods, self._kind.roles(_job_of(content)), canceled)

    def _patience(self, facts: Facts, found: JobStatus) -> JobStatus:
        """A job that has waited too long for a node or an image is given up."""
        wait = wait_of(facts)
        limits = {"image": self.config.image_pull_limit, "schedule": self.config.schedule_limit}
        limit = limits.get(wait.stuck)
        if limit is None or time.time() - wait.since < limit:
            return found
        self._delete(facts.content)
        return JobStatus(JobState.FAILED, f"given up after {limit} s: {wait.reason}")

    def _note(self, content: Json, memory: Memory) -> str:
        """The latest warning about a job that has no pods, or a pod that does not start: quota, account, volumes."""
        metadata, known = content["metadata"], memory.note
        if known is None or known.uid != metadata["uid"]:
            known = Note(metadata["uid"], float("-inf"), "")
        if time.monotonic() - known.looked < _NOTES_EVERY_S:
            return known.text
        try:
            query = {"fieldSelector": f"involvedObject.uid={known.uid},type=Warning"}
            found = self._connected().select(EVENTS, self._namespace, **query).get("items") or []
        except ApiError as error:
            log.debug("events of %s cannot be read: %s", metadata["name"], error)
            found = []
        found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        text = f"{found[-1].get('reason')}: {found[-1].get('message')}" if found else known.text
        memory.note = Note(known.uid, time.monotonic(), text)
        return text

    def _object_changed(self, content: Json, gone: bool) -> None:
        if gone and self._memory_of(content).removed:
            self._memories.pop((content["metadata"]["name"], content["metadata"]["uid"]), None)
        elif gone:
            self._remember(content)
        self.context.wake()

    def _pod_changed(self, pod: Json, gone: bool) -> None:
        """A pod may be taken away as soon as it has ended: what it told must be noted now."""
        name = (pod["metadata"].get("labels") or {}).get(manifests.JOB)
        content = self._objects.get(name) if self._objects is not None and name else None
        role = self._role(pod)
        if role is not None and self._roles is not None:
            self._roles.note(pod, role, gone)
        if content is not None and not self._memory_of(content).removed:
            if role is not None and role.reports and not _is_alive(pod):
                self._memory_of(content).reporter = pod
            self._remember(content, pod)
            if role is not None:
                (self._mourn if gone else self._replace)(content, pod, role)
        self.context.wake()

    def _role(self, pod: Json) -> manifests.Role | None:
        return next((role for role in self._kind.roles(_job_of(pod)) if role.name == role_of(pod)), None)

    def _replace(self, content: Json, pod: Json, role: manifests.Role) -> None:
        """A lost worker of an elastic job is taken away where the operator would leave it."""
        if not self._kind.replaces(role) or pod["metadata"].get("deletionTimestamp"):
            return
        end = pod_end(pod, role.container)
        if end is not None and end.state is JobState.LOST and self._kind.outcome(content).state is None:
            metadata = pod["metadata"]
            log.info("the worker %s was lost and is replaced: %s", metadata["name"], end.reason)
            try:
                self._connected().delete(PODS, self._namespace, metadata["name"], metadata["uid"])
            except ApiError as error:
                log.warning("the lost worker %s cannot be deleted: %s", metadata["name"], error)

    def _mourn(self, content: Json, pod: Json, role: manifests.Role) -> None:
        """The trial is lost with its reporting pod: another one would begin it anew within the same attempt."""
        end = pod_end(pod, role.container)
        speaks = role.reports and rank(pod) == 0 and (end is None or end.state is JobState.CANCELED)
        name, memory = content["metadata"]["name"], self._memory_of(content)
        if not (speaks and self._kind.remakes_pods) or memory.canceled:
            return
        try:
            now = self._connected().get(self._kind.resource, self._namespace, name) or content
            if self._kind.outcome(now).state or now["metadata"].get("deletionTimestamp") or _is_canceled(now):
                return
            reason = f"its pod {pod['metadata']['name']} was deleted by somebody else"
            memory.end = memory.end or JobStatus(JobState.LOST, reason)
            self._delete(content)
        except ApiError as error:
            log.warning("what became of %s cannot be told: %s", name, error)

    def _remember(self, content: Json, *pods: Json) -> None:
        """Keep the end of a job whose objects may be gone when it is asked for."""
        facts = self._facts_without_asking(content, pods)
        found = status(self._kind, facts)
        certain = found.ended is not None or not any(_is_alive(pod) for pod in facts.pods)
        if found.state.ended and certain and (pods or found.state is not JobState.LOST):
            memory = self._memory_of(content)
            memory.end = memory.end or found

    # ------------------------------------------------------------ canceling, logs, the end

    async def cancel(self, handle: Handle) -> None:
        await self._in_thread(self._cancel, handle)

    def _cancel(self, handle: Handle) -> None:
        if self._status(handle).state.ended:
            return
        content = self._object(self._name(str(handle["job"])))
        if content is None:
            return
        self._memory_of(content).canceled = True
        try:
            self._connected().patch(self._kind.resource, self._namespace, content["metadata"]["name"], _CANCEL)
        except ApiError as error:
            if error.status != 404:
                log.debug("the cancellation of %s cannot be noted: %s", handle["job"], error)
        self._delete(content)

    def _delete(self, content: Json) -> None:
        metadata = content["metadata"]
        place = (self._kind.resource, self._namespace, metadata["name"], metadata["uid"])
        self._connected().delete(*place, policy=self._kind.deletion)

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        return await self._in_thread(self._read_reports, handle)

    def _read_reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        pod_log = self._log_of(handle)
        return pod_log.read(with_output=handle.get("report") == "stdout") if pod_log is not None else ()

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """The pod's log has both streams in one; it is given as standard output."""
        if stream not in ("stdout", "stderr"):
            raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")
        if stream == "stderr":
            return b""
        return await self._in_thread(self._read_log, handle, offset, limit)

    def _follow(self, handle: Handle) -> None:
        """Read on in a log before it is rotated, or deleted with its pod."""
        pod_log = self._log_of(handle)
        try:
            if pod_log is not None:
                pod_log.follow()
        except ApiError as error:
            log.debug("the log of %s cannot be read now: %s", handle["job"], error)

    def _read_log(self, handle: Handle, offset: int, limit: int) -> bytes:
        pod_log = self._log_of(handle)
        return pod_log.output(offset, limit) if pod_log is not None else b""

    def _log_of(self, handle: Handle) -> PodLog | None:
        uid, name = str(handle["uid"]), self._name(str(handle["job"]))
        memory = self._memory(name, uid)
        content = None if memory.log is not None else self._object(name)
        if content is None or content["metadata"]["uid"] != uid:
            return memory.log
        pod, role = reporting(self._facts_without_asking(content, ()))
        if pod is None:
            return None
        place = (self._namespace, pod["metadata"]["name"], role.container)
        with self._lock:  # two would give the same output twice
            memory.log = memory.log or PodLog(self._connected(), *place)
        return memory.log

    async def scale(self, handle: Handle, workers: int) -> None:
        await self._in_thread(self._scale, handle, workers)

    def _scale(self, handle: Handle, workers: int) -> None:
        name = self._name(str(handle["job"]))
        content = self._object(name)
        if content is None or content["metadata"]["uid"] != str(handle["uid"]):
            raise NotFound(f"{handle['job']} is no longer in the cluster")
        change = self._kind.scaling(content, workers)
        self._connected().patch(self._kind.resource, self._namespace, name, change)

    async def fetch(self, handle: Handle, target: Path) -> None:
        """What the pods that still run have printed by now; that of the others is in the attempt's folder already."""
        await self._in_thread(self._fetch, handle)

    def _fetch(self, handle: Handle) -> None:
        for pod in self._pods_of(self._name(str(handle["job"]))):
            role = self._role(pod)
            if role is not None and self._roles is not None and container_start(pod, role.container):
                self._roles.refresh(pod, role)

    def hosts(self) -> list[Host]:
        running: dict[str, int] = {}
        for pod in self._pods.all() if self._pods is not None else []:
            node = (pod.get("spec") or {}).get("nodeName")
            ours = manifests.JOB in (pod["metadata"].get("labels") or {})
            if node and ours and (pod.get("status") or {}).get("phase") == "Running":
                running[node] = running.get(node, 0) + 1
        return [Host(node, "up", running=number) for node, number in sorted(running.items())]

    async def remove(self, handle: Handle) -> None:
        await self._in_thread(self._remove, handle)

    def _remove(self, handle: Handle) -> None:
        """Delete the object and what it owns, also what is left of an earlier try; nothing else of that name."""
        cluster, name, uid = self._connected(), self._name(str(handle["job"])), str(handle["uid"])
        content = self._object(name)
        if content is not None and content["metadata"]["uid"] != uid:
            return
        self._keep_logs(self._pods_now(name))
        if content is None:
            self._memories.pop((name, uid), None)
        else:  # its end is still to be heard of
            self._memories[name, uid] = Memory(removed=True)
        cluster.delete(self._kind.resource, self._namespace, name, uid, self._kind.deletion)
        for resource in (SECRETS, *self._kind.owned):
            cluster.delete(resource, self._namespace, name)

    def _keep_logs(self, pods: Sequence[Json]) -> None:
        """Those of pods that have ended are waited for; the others' are read while they are being deleted."""
        records = self._roles
        if records is None:
            return
        for pod in pods:
            role = self._role(pod)
            if role is not None:
                records.note(pod, role, ending=True)
        records.settle([pod for pod in pods if not _is_alive(pod)], _LAST_LOGS_S)

    def _connected(self) -> Cluster:
        if self._cluster is None:
            raise ServiceError(f"{self.name} is not open")
        return self._cluster


def _is_canceled(content: Json) -> bool:
    return "nnilite/canceled" in (content["metadata"].get("annotations") or {})


def _is_alive(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Pending", "Running")


def _job_of(content: Json) -> Job:
    """As much of a job as its roles' names depend on."""
    return Job(content["metadata"]["name"], "", "", 0, 0, {})
