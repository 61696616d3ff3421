"""Determines the status of a job, and ends in the cluster what is lost or given up.

It sees each change as soon as the watch does: an object or a pod may be deleted right after it has ended, so its end
must be noted before. An end is reported once, and does not change afterwards.

Times of the cluster are never compared with this machine's clock, which may be another one, or jump: a job would be
given up at once, or count as lost while it runs. How long something lasts is what this manager has seen of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from nnilite.records import Json
from nnilite.service import JobState, JobStatus
from nnilite_kubernetes._api import EVENTS, PODS, ApiError
from nnilite_kubernetes._config import ClusterConfig
from nnilite_kubernetes._kind import suspension
from nnilite_kubernetes._known import KnownJobs, find_job
from nnilite_kubernetes._kueue import Kueue
from nnilite_kubernetes._manifest import Role
from nnilite_kubernetes._memory import ClusterMemory, ClusterWarning
from nnilite_kubernetes._role_records import RoleRecords
from nnilite_kubernetes._status import (
    CANCELED,
    Facts,
    deleted,
    disruption,
    find_grace_s,
    interrupted,
    is_alive,
    is_canceled,
    judge_pod_end,
    rank,
    removal,
    reporting,
    status,
    unexplained,
    wait_of,
)
from nnilite_kubernetes._waits import ClusterPatience

log = logging.getLogger(__name__)

_MOST_EVENTS = "500"  # who may make events in the namespace may make a million about one job
_NOTE_CANCELED = {"metadata": {"annotations": {CANCELED: "true"}}}


class Judge:
    """Judges jobs. It calls `wake` when something may have changed."""

    def __init__(
        self,
        known: KnownJobs,
        config: ClusterConfig,
        roles: RoleRecords,
        wake: Callable[[], None],
        patience: ClusterPatience,
    ) -> None:
        self._known = known
        self._config = config
        self._roles = roles
        self._wake = wake
        self._patience = patience
        self._kueue = Kueue(known.cluster, known.namespace)

    def status(self, name: str, uid: str) -> JobStatus:
        """Return the status of the job whose object has this name and uid. Raises: ApiError."""
        memory = self._known.memory(name, uid)
        if memory.end is not None:
            return memory.end
        content = self._known.object(name)
        if content is None or content["metadata"]["uid"] != uid:
            return memory.end or self._gone(name, memory)
        facts = self._facts(content)
        judged = self._found(facts)
        if judged.state.ended and judged.ended is None and any(map(is_alive, facts.pods)):
            judged, facts = self._judge_with_pods_now(name, facts)
        if facts.canceled and not judged.state.ended and not content["metadata"].get("deletionTimestamp"):
            self.delete(content)  # the server had refused, or the manager ended in between
        if not facts.canceled:
            judged = self._check_limits(facts, judged, memory)
        if judged.state.ended:
            memory.end = judged
            if judged.state is JobState.LOST and any(map(is_alive, facts.pods)):
                self.delete(content)  # or the other roles would run at the same time as the next attempt
        return judged

    def _found(self, facts: Facts) -> JobStatus:
        """Judge a job. The pod whose failure has failed it may be gone: its record is asked."""
        judged = status(self._known.kind, facts)
        if judged.state is not JobState.LOST or self._known.kind.outcome(facts.content).state is not JobState.FAILED:
            return judged
        return self._roles.failure(facts.content) or judged

    def _judge_with_pods_now(self, name: str, facts: Facts) -> tuple[JobStatus, Facts]:
        """Judge an object whose end was seen before that of its pods. Raises: ApiError."""
        before, _ = reporting(facts)
        facts = replace(facts, pods=self._known.list_pods_now(name))
        judged = self._found(facts)
        now, _ = reporting(facts)
        if judged.state is JobState.LOST and now is None and before is not None:
            # It was deleted, and the watch of the pods has not said so yet. The object only counts its failures.
            judged = replace(judged, reason=f"{removal(before)} ({judged.reason})")
        return judged, facts

    def cancel(self, name: str, uid: str) -> None:
        """Ask for the job's end. Raises: ApiError."""
        if self.status(name, uid).state.ended:
            return
        content = self._known.object(name)
        if content is None:
            return
        self._known.find_memory(content).canceled = True
        try:
            self._known.cluster.patch(self._known.kind.resource, self._known.namespace, name, _NOTE_CANCELED)
        except ApiError as error:
            if error.status != 404:
                log.debug("the cancellation of %s cannot be noted: %s", name, error)
        self.delete(content)

    def delete(self, content: Json) -> None:
        """Delete a job from the cluster. Raises: ApiError."""
        metadata, kind = content["metadata"], self._known.kind
        self._known.cluster.delete(
            kind.resource, self._known.namespace, metadata["name"], metadata["uid"], policy=kind.deletion
        )

    # ------------------------------------------------------------ what the watches tell

    def object_changed(self, content: Json, gone: bool) -> None:
        """Handle a change of a job's object; the watch of the objects calls this."""
        metadata = content["metadata"]
        if gone and self._known.find_memory(content).removed:
            self._known.forget(metadata["name"], metadata["uid"], gone=True)
        elif gone:
            self._remember(content)
        self._wake()

    def pod_changed(self, pod: Json, gone: bool) -> None:
        """Handle a change of a pod; the watch of the pods calls this."""
        name, role = find_job(pod), self._known.role(pod)
        content = self._known.watched(name) if name else None
        if role is not None:
            self._roles.record(pod, role, gone)
        if content is not None and not self._known.find_memory(content).removed:
            if role is not None and role.reports and (gone or not is_alive(pod)):
                self._known.find_memory(content).reporter = pod
            self._remember(content, pod)
            if role is not None:
                (self._mark_lost_with_pod if gone else self._replace)(content, pod, role)
        self._wake()

    def _remember(self, content: Json, *pods: Json) -> None:
        """Keep the end of a job whose objects may be gone when it is asked for."""
        facts = self._known.facts(content, pods)
        judged = self._found(facts)
        certain = judged.ended is not None or not any(map(is_alive, facts.pods))
        if judged.state.ended and certain and (pods or judged.state is not JobState.LOST):
            memory = self._known.find_memory(content)
            memory.end = memory.end or judged

    def _replace(self, content: Json, pod: Json, role: Role) -> None:
        """Delete a lost worker of an elastic job if the operator would leave it."""
        if not self._known.kind.replaces(role) or pod["metadata"].get("deletionTimestamp"):
            return
        end = judge_pod_end(pod, role.container)
        lost = end is not None and end.state in (JobState.LOST, JobState.CANCELED)
        if end is not None and lost and self._known.kind.outcome(content).state is None:
            metadata = pod["metadata"]
            log.info("the worker %s was lost and is replaced: %s", metadata["name"], end.reason)
            try:
                self._known.cluster.delete(PODS, self._known.namespace, metadata["name"], metadata["uid"])
            except ApiError as error:
                log.warning("the lost worker %s cannot be deleted: %s", metadata["name"], error)

    def _mark_lost_with_pod(self, content: Json, pod: Json, role: Role) -> None:
        """Count the trial as lost with its reporting pod: another pod would begin it again within the same attempt."""
        end = judge_pod_end(pod, role.container)
        taken = end is None or end.state in (JobState.CANCELED, JobState.LOST)
        name, memory = content["metadata"]["name"], self._known.find_memory(content)
        ends_trial = self._known.kind.ends_with_pod and role.reports and rank(pod) == 0
        if not (ends_trial and taken) or memory.canceled:
            return
        try:
            now = self._known.cluster.get(self._known.kind.resource, self._known.namespace, name) or content
            if self._known.kind.outcome(now).state or now["metadata"].get("deletionTimestamp") or is_canceled(now):
                return
            failure = self._roles.failure(content) if self._known.kind.failure_ends_all else None
            memory.end = memory.end or failure or JobStatus(JobState.LOST, removal(pod))
            self.delete(content)
        except ApiError as error:
            log.warning("cannot find out what became of %s: %s", name, error)

    # ------------------------------------------------------------ what only time tells

    def _facts(self, content: Json) -> Facts:
        known = self._known.facts(content)
        silent = unexplained(known)
        return known if silent is None else replace(known, note=self._note(silent, content))

    def _gone(self, name: str, memory: ClusterMemory) -> JobStatus:
        """Return the status of a job whose object is gone; its pods may still be ending."""
        pods = self._known.list_known_pods(name)
        if any(is_alive(pod) and not self._is_overdue(pod, memory) for pod in pods):
            return JobStatus(JobState.RUNNING, "it is being ended")
        if memory.canceled:
            return JobStatus(JobState.CANCELED, "canceled")
        kind = self._known.kind.resource.kind
        return JobStatus(JobState.LOST, f"the {kind} {name} was deleted, not by this experiment")

    def _is_overdue(self, pod: Json, memory: ClusterMemory) -> bool:
        """Return whether a pod that is being deleted should have ended long ago."""
        grace_s = find_grace_s(pod)
        lasts_s = memory.seen.lasts_s(f"deletion of {pod['metadata']['uid']}", grace_s is not None)
        return grace_s is not None and lasts_s > grace_s + self._patience.overdue_s

    def _check_limits(self, facts: Facts, judged: JobStatus, memory: ClusterMemory) -> JobStatus:
        """Give up a job that has waited too long; count one as lost if it was removed without a reason."""
        if judged.state is JobState.WAITING:
            return self._give_up(facts, judged, memory)
        if judged.state is not JobState.RUNNING:
            return judged
        pod, _ = reporting(facts)
        if pod is not None and self._is_overdue(pod, memory):
            return replace(judged, state=JobState.LOST, reason=f"{removal(pod)}, and its node does not answer")
        end = interrupted(facts)
        lasts_s = memory.seen.lasts_s("interrupted", end is not None)
        if end is None or pod is None or lasts_s < self._patience.reason_s:
            return judged
        known = disruption(pod) or pod["metadata"].get("deletionTimestamp")
        reason = removal(pod) if known else "its container received SIGTERM, not from this experiment"
        return replace(end, state=JobState.LOST, reason=reason, exit_code=None)

    def _give_up(self, facts: Facts, judged: JobStatus, memory: ClusterMemory) -> JobStatus:
        """Give up a job that has waited too long for a node or an image."""
        if facts.content["metadata"].get("deletionTimestamp"):
            return replace(judged, reason=deleted(facts.content))
        wait = wait_of(facts)
        limits = {"image": self._config.image_pull_limit, "schedule": self._config.schedule_limit}
        limit = limits.get(wait.stuck)
        if limit is None or memory.seen.lasts_s(f"{wait.stuck} since {wait.since}") < limit:
            return judged
        self.delete(facts.content)
        return JobStatus(JobState.FAILED, f"given up after {limit} s: {wait.reason}")

    def _note(self, silent: Json, content: Json) -> str:
        """Return the latest warning about a job without pods, or a pod that does not start: quota, account, volumes."""
        uid, memory = silent["metadata"]["uid"], self._known.find_memory(content)
        note = memory.note
        if note is None or note.uid != uid:
            first_s = min(self._patience.first_note_s, self._config.schedule_limit / 3)
            note = memory.note = ClusterWarning(uid, time.monotonic() + first_s)
        if time.monotonic() < note.look_at:
            return note.text
        selectors = [f"involvedObject.uid={uid}"]
        if uid == content["metadata"]["uid"]:
            selectors += [f"involvedObject.name={name}" for name in self._known.kind.makers(content)]
        reason = self._kueue.reason(uid) if suspension(silent) else self._find_warning(selectors)
        memory.note = ClusterWarning(uid, time.monotonic() + self._patience.note_pause_s, reason or note.text)
        return memory.note.text

    def _find_warning(self, selectors: list[str]) -> str:
        """Return the latest warning about any of these; "" if there is none, or it cannot be read."""
        events: list[Json] = []
        for selector in selectors:
            query = {"fieldSelector": f"{selector},type=Warning", "limit": _MOST_EVENTS}
            try:
                events += self._known.cluster.select(EVENTS, self._known.namespace, **query).get("items") or []
            except ApiError as error:
                log.debug("events (%s) cannot be read: %s", selector, error)
        events.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return f"{events[-1].get('reason')}: {events[-1].get('message')}" if events else ""
