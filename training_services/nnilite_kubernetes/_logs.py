"""The logs of a service's pods: that of the reporting pod, in pieces, and those of all roles, kept in files."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nnilite.records import Json, KeeperEvent
from nnilite_kubernetes._api import ApiError
from nnilite_kubernetes._known import KnownJobs
from nnilite_kubernetes._log import PodLog
from nnilite_kubernetes._role_records import RoleRecords
from nnilite_kubernetes._status import find_container_start, is_alive, reporting
from nnilite_kubernetes._waits import ClusterPatience

log = logging.getLogger(__name__)


class Logs:
    """Several threads may call all methods, which raise ApiError unless they say otherwise."""

    def __init__(self, known: KnownJobs, roles: RoleRecords, patience: ClusterPatience) -> None:
        self._known = known
        self._patience = patience
        self._roles = roles

    def reports(self, name: str, uid: str, with_output: bool) -> Sequence[KeeperEvent]:
        """Return the keeper's events in the log since the last call."""
        pod_log, memory = self._find_log(name, uid), self._known.memory(name, uid)
        if pod_log is None:
            return ()
        ended = with_output and (memory.end is not None or memory.reporter is not None)
        return pod_log.read(with_output, ended)

    def output(self, name: str, uid: str, offset: int, limit: int) -> bytes:
        """Return the trial's output."""
        pod_log = self._find_log(name, uid)
        return pod_log.output(offset, limit) if pod_log is not None else b""

    def follow(self, name: str, uid: str) -> None:
        """Read on in a log before it is rotated, or deleted with its pod. Raises nothing."""
        try:
            pod_log = self._find_log(name, uid)
            if pod_log is not None:
                pod_log.follow()
        except ApiError as error:
            log.debug("the log of %s cannot be read now: %s", name, error)

    def refresh(self, name: str) -> None:
        """Keep the present output of the pods that still run."""
        for pod in self._known.list_known_pods(name):
            role = self._known.role(pod)
            if role is not None and find_container_start(pod, role.container):
                self._roles.refresh(pod, role)

    def keep(self, name: str) -> None:
        """Keep all logs before a job is deleted: wait for those of ended pods, and read the others to their end."""
        for pod in (pods := self._list_all_pods(name)):
            role = self._known.role(pod)
            if role is not None:
                self._roles.record(pod, role, ending=True)
        self._roles.settle([pod for pod in pods if not is_alive(pod)], self._patience.last_logs_s)

    def _list_all_pods(self, name: str) -> list[Json]:
        """Return all pods, from the server if the watch may not have all of them."""
        pods, content = self._known.list_known_pods(name), self._known.watched(name)
        facts = self._known.facts(content) if content is not None else None
        expected = sum(role.replicas for role in facts.roles) if facts is not None else len(pods) + 1
        return pods if len(pods) >= expected else self._known.list_pods_now(name)

    def _find_log(self, name: str, uid: str) -> PodLog | None:
        """Return the log of the reporting pod."""
        memory = self._known.memory(name, uid)
        content = None if memory.log is not None else self._known.object(name)
        if content is None or content["metadata"]["uid"] != uid:
            return memory.log
        pod, role = reporting(self._known.facts(content))
        if pod is None:
            return None
        place = (self._known.namespace, pod["metadata"]["name"], role.container)
        with self._known.lock:  # two would give the same output twice
            memory.log = memory.log or PodLog(self._known.cluster, *place)
        return memory.log
