"""What Kueue says of a job that waits in one of its queues.

It suspends the job's object, and makes a Workload of its own for it, whose conditions say why it is not admitted.
"""

from __future__ import annotations

import logging

from nnilite.records import Json
from nnilite_kubernetes._api import ApiError, Cluster, Resource

log = logging.getLogger(__name__)

_GROUP = "kueue.x-k8s.io"
_VERSIONS = ("v1beta2", "v1beta1")
_JOB_UID = f"{_GROUP}/job-uid"  # a label of the Workload: the uid of the job's object
_MOST = "100"  # others may label theirs so
_STEPS = ("QuotaReserved", "Admitted")  # conditions, in their order


class Kueue:
    """Asks for Workloads. Who may not list them sees no more than that the job is suspended."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._versions = list(_VERSIONS)

    def reason(self, uid: str) -> str:
        """Return why the job of the object with this uid is not admitted, "" if nothing says so. Blocks."""
        for version in list(self._versions):
            workloads = Resource(_GROUP, version, "workloads", "Workload")
            try:
                found = self._cluster.select(workloads, self._namespace, labelSelector=f"{_JOB_UID}={uid}", limit=_MOST)
            except ApiError as error:
                log.debug("Workloads (%s) cannot be read: %s", version, error)
                if error.status == 404 and len(self._versions) > 1:
                    self._versions.remove(version)
                continue
            self._versions = [version]
            return next(filter(None, map(_find_reason, found.get("items") or [])), "")
        return ""


def _find_reason(workload: Json) -> str:
    queue = (workload.get("spec") or {}).get("queueName")
    where = f"the queue {queue}" if queue else "its queue"
    conditions = (workload.get("status") or {}).get("conditions") or []
    open_steps = {entry.get("type"): entry for entry in conditions if entry.get("status") == "False"}
    for step in _STEPS:
        message = (open_steps.get(step) or {}).get("message")
        if message:
            return f"it waits in {where}: {message}"
    return f"it waits in {where}"
