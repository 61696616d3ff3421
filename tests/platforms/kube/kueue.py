"""Kueue, as far as plain Jobs see it: suspended until their queue has room, with a Workload that says why.

Source: the troubleshooting pages of kueue.sigs.k8s.io, and what a real one did (shared/contracts/kueue/ORIGIN.md).
"""

from __future__ import annotations

from typing import Any

from platforms.kube.client import JOBS, MAPS, WORKLOADS, Key
from platforms.kube.controllers import Controller, Operators, reference

QUEUE = "kueue.x-k8s.io/queue-name"
FULL = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default-flavor, 50m more "
    "needed"
)


class Kueue(Controller):
    """Admits all Jobs of a queue while there is a ConfigMap of the queue's name."""

    key: Key = JOBS
    follows = (MAPS,)

    def reconcile(self, content: Any) -> None:
        queue = content["metadata"]["labels"].get(QUEUE)
        if queue is None or not content["spec"].get("suspend"):
            return
        name = content["metadata"]["name"]
        if self.api.get(MAPS, self.namespace, queue) is not None:
            self.api.patch(JOBS, self.namespace, name, {"spec": {"suspend": False}})
            return
        pod_sets = [{"name": "main", "count": 1, "template": content["spec"]["template"]}]
        metadata = {
            "name": f"job-{name}-1a2b3",
            "labels": {"kueue.x-k8s.io/job-uid": content["metadata"]["uid"]},
            "ownerReferences": [reference(content)],
        }
        made = self.api.ensure(
            WORKLOADS, self.namespace, {"metadata": metadata, "spec": {"queueName": queue, "podSets": pod_sets}}
        )
        if not (made.get("status") or {}).get("conditions"):
            entry = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": FULL}
            status = {"conditions": [{**entry, "lastTransitionTime": content["metadata"]["creationTimestamp"]}]}
            self.api.patch(WORKLOADS, self.namespace, metadata["name"], {"status": status}, "status")


def install_kueue() -> Operators:
    return Operators((Kueue,), {WORKLOADS: "kueue.x-k8s.io_workloads.v1beta1.yaml"})
