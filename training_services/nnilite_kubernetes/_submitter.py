"""Makes the objects of jobs in the cluster, and delivers keeper and code for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from nnilite.errors import ConfigError, JobRefused, NoCapacity, ServiceError
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._api import SECRETS, ApiError, Cluster, Resource
from nnilite_kubernetes._config import ClusterConfig
from nnilite_kubernetes._delivery import Deliverer
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._manifest import CodeSource, PodDelivery
from nnilite_kubernetes._quota import Demand

log = logging.getLogger(__name__)

_FULL_S = 5.0  # least pause between tries that are refused, for example by a quota
_ANY = PodDelivery("", "0" * 64)


class Submitter:
    """Submits jobs. It blocks, for long while the code is sent: one `submit` at a time; others must wait."""

    def __init__(self, service: str, kind: OperatorKind, config: ClusterConfig, context: ServiceContext) -> None:
        self._service = service
        self._kind = kind
        self._config = config
        self._context = context
        self._namespace = config.namespace
        self.deliverer = Deliverer(service, kind, config, context)
        self._refused = 0  # refusals in a row because of a quota, or of something that the whole namespace lacks
        self._full = (0.0, "")  # until when nothing is submitted, and why
        self._busy = threading.Lock()
        self._unsure: set[str] = set()  # jobs that the cluster may have, as nothing clear was heard of their submission

    def name(self, job: str) -> str:
        """Return the name of the objects of a job."""
        return manifests.make_object_name(job, self._kind.dashes)

    # ------------------------------------------------------------ one job

    def submit(self, cluster: Cluster, job: Job, exists: bool = False) -> Json:
        """Make the object of a job. `exists`: the cluster has it already, as far as is known.

        Raises: NoCapacity if the cluster does not have the job; ConfigError, ServiceError.
        """
        certain = not exists and job.name not in self._unsure
        until, reason = self._full
        if time.monotonic() < until and certain:
            raise NoCapacity(reason)
        if not self._busy.acquire(blocking=False):  # its caller has given up, but its thread still runs
            raise (NoCapacity if certain else ServiceError)("what was submitted before is still being sent")
        self._unsure.add(job.name)
        try:
            made = self._submit(cluster, job)
            self._unsure.discard(job.name)
            return made
        except NoCapacity as refusal:
            if exists:
                raise ServiceError(str(refusal)) from refusal
            self._unsure.discard(job.name)
            raise
        finally:
            self._busy.release()

    def _submit(self, cluster: Cluster, job: Job) -> Json:
        """Make the object last, which then owns the others: a kubelet that misses a pod's Secret waits for long."""
        companions = self._make_companions(job, self.deliverer.deliver(cluster, job))
        made: list[tuple[Resource, Json]] = []
        try:
            for resource, body in companions:
                made.append((resource, self._created(cluster, resource, body)))
            content = self._created(cluster, self._kind.resource, self._manifest(job))
            made.append((self._kind.resource, content))
            for (resource, body), (_, found) in zip(companions, made, strict=False):
                self._give(cluster, resource, body, found, content)
        except ApiError as error:
            if not error.passing:  # else the server may have done it all the same
                self._take_back(cluster, made)
            raise self._refusal(error) from error
        except (ConfigError, ServiceError):
            self._take_back(cluster, made)
            raise
        self._refused = 0
        return content

    def describe(self, job: Job) -> list[Json]:
        """Return the manifests of a job, without its secrets."""
        setup = self.deliverer.setup(job)
        keeper = b"" if setup.source in (CodeSource.SECRET, CodeSource.MANAGER) else None
        code = b"" if setup.source is CodeSource.SECRET else None
        (_, secret), *more = self._make_companions(job, replace(_ANY, keeper=keeper, code=code))
        found = [manifests.hidden(secret), *(body for _, body in more), self._manifest(job)]
        return [self.deliverer.make_code_pod(job), *found] if self.deliverer.sends_code(job.report) else found

    def _manifest(self, job: Job) -> Json:
        name, setup = self.name(job.name), self.deliverer.setup(job)
        return self._kind.manifest(manifests.make_object_metadata(job, name, setup), self._pods(job), job)

    def _pods(self, job: Job) -> dict[str, Json]:
        """Return the templates of a job's pods, by the names of their roles."""
        name, setup = self.name(job.name), self.deliverer.setup(job)
        return {role.name: manifests.pod_template(job, name, setup, role) for role in self._kind.roles(job)}

    def _make_companions(self, job: Job, delivery: PodDelivery) -> list[tuple[Resource, Json]]:
        """Return the Secret, and other objects that the kind needs."""
        name, setup = self.name(job.name), self.deliverer.setup(job)
        secret = manifests.secret(job, name, setup, self._kind.roles(job), delivery)
        return [(SECRETS, secret), *self._kind.companions(manifests.metadata(job, name, setup), self._pods(job))]

    def demand(self, job: Job) -> Demand:
        """Return what a job asks of the namespace."""
        name, setup, kind = self.name(job.name), self.deliverer.setup(job), self._kind.resource
        roles = self._kind.roles(job)
        pods = [(manifests.pod_template(job, name, setup, role)["spec"], role.replicas) for role in roles]
        owned = (SECRETS, *self._kind.owned)
        counted = {f"count/{each.plural}" + (f".{each.group}" if each.group else ""): 1 for each in (kind, *owned)}
        return Demand(pods, {**{each.plural: 1 for each in owned}, **counted})

    # ------------------------------------------------------------ objects

    def _created(self, cluster: Cluster, resource: Resource, body: Json) -> Json:
        """Return an object of this service, made now or by an earlier try.

        Raises: ApiError, ConfigError if the name belongs to another program, ServiceError if another service of this
        experiment has made it.
        """
        try:
            made = cluster.create(resource, self._namespace, body)
        except ApiError as error:
            found = cluster.get(resource, self._namespace, body["metadata"]["name"]) if _explain_quota(error) else None
            if found is None:
                raise
            made = found  # quotas are looked at before names, and it may be our own job that uses this one up
        mark = (made["metadata"].get("annotations") or {}).get(manifests.JOB_NAME)
        if mark != body["metadata"]["annotations"][manifests.JOB_NAME]:
            raise ConfigError(
                f"the {resource.kind} {made['metadata']['name']} exists already and does not belong to this experiment"
            )
        service = (made["metadata"].get("labels") or {}).get(manifests.SERVICE)
        if service != manifests.label(self._service):  # it was about to be given to that one when the manager ended
            raise ServiceError(f"the service {service} has this job already")
        return made

    def _give(self, cluster: Cluster, resource: Resource, body: Json, answer: Json, owner: Json) -> None:
        """Give a companion of a job to its owner. Raises: see `_created`."""
        reference = self._make_reference(owner)
        owners = [entry.get("uid") for entry in answer["metadata"].get("ownerReferences") or []]
        if not owners:
            self.own(cluster, resource, answer, owner)
        elif reference["uid"] not in owners:  # owned by a deleted object, so the cluster is about to delete it
            cluster.delete(resource, self._namespace, answer["metadata"]["name"], answer["metadata"]["uid"])
            whole = {**body, "metadata": {**body["metadata"], "ownerReferences": [reference]}}
            self._created(cluster, resource, whole)

    def _take_back(self, cluster: Cluster, made: Sequence[tuple[Resource, Json]]) -> None:
        """Delete all that was made of a job that was refused: no one else would if the trial were canceled now."""
        for resource, content in reversed(made):
            metadata = content["metadata"]
            if metadata.get("ownerReferences") and resource != self._kind.resource:
                continue  # it goes with its owner
            try:
                cluster.delete(resource, self._namespace, metadata["name"], metadata["uid"])
            except ApiError as error:
                log.warning("the %s %s of a refused job cannot be deleted: %s", resource.kind, metadata["name"], error)

    def own(self, cluster: Cluster, resource: Resource, content: Json, owner: Json) -> None:
        """Make a job's object own its companions, so that the cluster deletes them together. Raises: ApiError."""
        change = {"metadata": {"ownerReferences": [self._make_reference(owner)]}}
        cluster.patch(resource, self._namespace, content["metadata"]["name"], change)

    def _make_reference(self, owner: Json) -> dict[str, Json]:
        known = {"apiVersion": self._kind.resource.api_version, "kind": self._kind.resource.kind}
        return {**known, **{name: owner["metadata"][name] for name in ("name", "uid")}}

    def _refusal(self, error: ApiError) -> Exception:
        """Return the error of a refusal: a lasting one ends the trial; a passing one lets it wait."""
        reason = _explain_quota(error) or self._explain_place(error)
        if reason:
            self._refused += 1
            self._full = (time.monotonic() + min(_FULL_S, 0.5 * (self._refused - 1)), reason)
            return NoCapacity(reason)
        return JobRefused(str(error)) if error.status in (400, 403, 422) else error

    def _explain_place(self, error: ApiError) -> str:
        """Return why the namespace takes no job at all, which says nothing about this one; "" for other refusals."""
        kind, namespace, text = self._kind.resource.kind, self._namespace, str(error)
        if error.status == 403 and "because it is being terminated" in text:
            return f"the namespace {namespace} is being deleted: create it again when it is gone"
        if error.status == 403 and ' cannot create resource "' in text:
            return f"this account may no longer create what a trial needs; give it that right again: {text}"
        if error.status == 404 and f'namespaces "{namespace}" not found' in text:
            return f"the cluster has no namespace {namespace} any more: create it again"
        if error.status in (404, 405):  # 405 while the definition is being deleted
            return f"the cluster has no {kind} any more: was the operator removed? Install it again"
        return ""


def _explain_quota(error: ApiError) -> str:
    """Return what a used-up quota says, "" for other refusals."""
    _, found, rest = str(error).partition("exceeded quota")
    return found + rest if error.status == 403 else ""
