"""Checks before anything starts, and the repair of what an earlier manager left half made."""

from __future__ import annotations

import logging

from nnilite.records import Json
from nnilite.service import Job
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._api import SECRETS, Cluster, Resource
from nnilite_kubernetes._checks import check_quotas, check_rights
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._known import KnownJobs
from nnilite_kubernetes._submitter import Submitter

log = logging.getLogger(__name__)


class Startup:
    """Opens a service; `sample` is a typical job. All methods block, and raise ConfigError or ApiError."""

    def __init__(
        self, cluster: Cluster, kind: OperatorKind, submitter: Submitter, sample: Job, service: str, namespace: str
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._kind = kind
        self._submitter = submitter
        self._sample = sample
        self._selector = manifests.selector(sample.experiment, service)
        self._report = sample.report

    def check_operator(self) -> None:
        """Check that the account has all needed rights, and that the cluster has the operator."""
        check_rights(self._cluster, self._namespace, self._kind, self._submitter.deliverer.sends_code(self._report))
        self._kind.check(self._cluster)

    def check_trials(self) -> None:
        """Check that a trial could run, and report."""
        self.check_quotas()
        self._submitter.deliverer.check_storage(self._report)
        self.check_callback()

    def check_quotas(self) -> None:
        """Check that a trial fits into the namespace."""
        check_quotas(self._cluster, self._namespace, self._submitter.demand(self._sample))

    def check_callback(self) -> None:
        """Check that pods can reach the manager, if they have to. Raises: ConfigError if not, ServiceError."""
        self._submitter.deliverer.callback(self._cluster).check()

    def tidy_up(self, known: KnownJobs) -> None:
        """Repair what an earlier manager left half made, and announce this manager's address to its keepers."""
        address = manifests.encoded(self._submitter.deliverer.callback(self._cluster).find())
        for resource in (SECRETS, *self._kind.owned):
            found = self._cluster.select(resource, self._namespace, labelSelector=self._selector).get("items") or []
            for item in found:
                kept = self._settled(known, resource, item)
                if kept and (item.get("data") or {}).get("callback") not in (None, address):
                    change = {"data": {"callback": address}}
                    self._cluster.patch(resource, self._namespace, item["metadata"]["name"], change)
        if self._submitter.deliverer.sends_code(self._report):
            self._submitter.deliverer.delete_code_pod(self._cluster)

    def _settled(self, known: KnownJobs, resource: Resource, item: Json) -> bool:
        """Make a job the owner of its object, or delete an object without a job. Return whether it stays."""
        metadata = item["metadata"]
        if metadata.get("ownerReferences"):
            return True
        owner = known.object(metadata["name"])
        if owner is None:
            self._cluster.delete(resource, self._namespace, metadata["name"], metadata["uid"])
            return False
        self._submitter.own(self._cluster, resource, item, owner)
        return True
