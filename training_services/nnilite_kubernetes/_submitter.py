"""Makes the objects of jobs in the cluster, and sees to it that keeper and code are where pods get them."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._address import check_listening, pods_address
from nnilite_kubernetes._api import PODS, SECRETS, ApiError, Cluster, Resource
from nnilite_kubernetes._azure_files import Share
from nnilite_kubernetes._code_pod import SLEEP, CodePod
from nnilite_kubernetes._config import ClusterConfig
from nnilite_kubernetes._kind import Kind
from nnilite_kubernetes._manifest import Delivery, Role, Setup, Source
from nnilite_kubernetes._quota import Demand
from nnilite_kubernetes._s3 import Bucket

log = logging.getLogger(__name__)

_FULL_S = 5.0  # a quota that is exceeded again and again is not tried more often
_ANY = Delivery("", "0" * 64)


class Submitter:
    """Blocks, for long while the code is sent: one `submit` at a time, others are told to wait."""

    def __init__(self, service: str, kind: Kind, config: ClusterConfig, context: ServiceContext) -> None:
        self._service = service
        self._kind = kind
        self._config = config
        self._context = context
        self._namespace = config.namespace
        self._delivery: Delivery | None = None
        self.filling = False  # a pod of ours is to take keeper and code
        self._stored: Bucket | Share | None = None
        self._refused = 0  # times in a row for a quota
        self._full = (0.0, "")  # until when nothing is submitted, and why
        self._busy = threading.Lock()

    def name(self, job: str) -> str:
        """What the objects of a job are called."""
        return manifests.object_name(job, self._kind.dashes)

    def address(self, cluster: Cluster) -> str:
        """The manager's address as pods see it. Raises: ConfigError."""
        return pods_address(self._context.callback_url(), self._given_address(), cluster.host)

    def _given_address(self) -> str | None:
        return self._config.nni_manager_ip or self._context.defaults.get("nniManagerIp")

    # ------------------------------------------------------------ one job

    def submit(self, cluster: Cluster, job: Job) -> Json:
        """The object of a job. Raises: NoCapacity, ConfigError, ServiceError."""
        until, reason = self._full
        if time.monotonic() < until:
            raise NoCapacity(reason)
        if not self._busy.acquire(blocking=False):  # nobody waits for it any more, but its thread goes on
            raise NoCapacity("what was submitted before is still being sent")
        try:
            return self._submit(cluster, job)
        finally:
            self._busy.release()

    def _submit(self, cluster: Cluster, job: Job) -> Json:
        companions = self._companions(job, self._delivered(cluster, job))
        content = self._manifest(job)
        kept: list[tuple[Resource, Json]] = []
        try:
            for resource, body in companions:
                kept.append((resource, self._created(cluster, resource, body)))
            made = self._created(cluster, self._kind.resource, content)
        except ApiError as error:
            if not error.passing:  # else the server may have done it all the same
                self._take_back(cluster, kept)
            raise self._refusal(error) from error
        except (ConfigError, ServiceError):
            self._take_back(cluster, kept)
            raise
        self._refused = 0
        for resource, companion in kept:
            self.own(cluster, resource, companion, made)
        return made

    def describe(self, job: Job) -> list[Json]:
        """The manifests of a job, without its secrets."""
        setup = self._setup(job)
        inside = (b"", b"") if setup.source is Source.SECRET else (None, None)
        (_, secret), *more = self._companions(job, replace(_ANY, keeper=inside[0], code=inside[1]))
        found = [manifests.hidden(secret), *(body for _, body in more), self._manifest(job)]
        return [self._code_pod(job), *found] if self.sends_code(job.spec.get("report")) else found

    def _manifest(self, job: Job) -> Json:
        name, setup = self.name(job.name), self._setup(job)
        pods = {role.name: manifests.pod_template(job, name, setup, role) for role in self._kind.roles(job)}
        return self._kind.manifest(manifests.metadata(job, name, setup), pods, job)

    def _companions(self, job: Job, delivery: Delivery) -> list[tuple[Resource, Json]]:
        """The Secret, and what else the kind needs."""
        name, setup = self.name(job.name), self._setup(job)
        secret = manifests.secret(job, name, setup, self._kind.roles(job), delivery)
        return [(SECRETS, secret), *self._kind.companions(manifests.metadata(job, name, setup))]

    def _setup(self, job: Job) -> Setup:
        storage = self._kind.storage(self.name(job.name)) or self._config.storage
        mounted = storage if storage is not None and storage.can_be_mounted else None
        return Setup(self._service, self._config, mounted, manifests.source_of(self._config, job.spec.get("report")))

    def demand(self, job: Job) -> Demand:
        """What a job asks of the namespace."""
        name, setup, kind = self.name(job.name), self._setup(job), self._kind.resource
        roles = self._kind.roles(job)
        pods = [(manifests.pod_template(job, name, setup, role)["spec"], role.replicas) for role in roles]
        own = f"count/{kind.plural}.{kind.group}"
        owned = {resource.plural: 1 for resource in (SECRETS, *self._kind.owned)}
        return Demand(pods, {own: 1, **owned, **{f"count/{plural}": 1 for plural in owned}})

    # ------------------------------------------------------------ objects

    def _created(self, cluster: Cluster, resource: Resource, body: Json) -> Json:
        """An object of ours, made now or by an earlier try.

        Raises: ApiError, ConfigError if the name is another's, ServiceError if another service of ours has made it.
        """
        try:
            made = cluster.create(resource, self._namespace, body)
        except ApiError as error:
            found = cluster.get(resource, self._namespace, body["metadata"]["name"]) if _of_quota(error) else None
            if found is None:
                raise
            made = found  # quotas are looked at before names, and it may be our own job that uses this one up
        mark = (made["metadata"].get("annotations") or {}).get(manifests.JOB_NAME)
        if mark != body["metadata"]["annotations"][manifests.JOB_NAME]:
            raise ConfigError(f"there is a {resource.kind} {made['metadata']['name']} already, and it is not ours")
        service = (made["metadata"].get("labels") or {}).get(manifests.SERVICE)
        if service != manifests.label(self._service):  # it was about to be given to that one when the manager ended
            raise ServiceError(f"the service {service} has this job already")
        return made

    def _take_back(self, cluster: Cluster, companions: Sequence[tuple[Resource, Json]]) -> None:
        """Nothing stays of a job that was refused: nobody would delete it if the trial were canceled now."""
        for resource, content in companions:
            metadata = content["metadata"]
            if metadata.get("ownerReferences"):
                continue
            try:
                cluster.delete(resource, self._namespace, metadata["name"], metadata["uid"])
            except ApiError as error:
                log.warning("the %s of a refused job cannot be deleted: %s", resource.kind, error)

    def own(self, cluster: Cluster, resource: Resource, content: Json, owner: Json) -> None:
        """The object of a job owns its companions, so that the cluster deletes all together."""
        if content["metadata"].get("ownerReferences"):
            return
        metadata = owner["metadata"]
        reference = {
            "apiVersion": self._kind.resource.api_version,
            "kind": self._kind.resource.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        change = {"metadata": {"ownerReferences": [reference]}}
        cluster.patch(resource, self._namespace, content["metadata"]["name"], change)

    def _refusal(self, error: ApiError) -> Exception:
        """One for good ends the trial; one that may pass lets it wait."""
        reason = _of_quota(error)
        if reason:
            self._refused += 1
            self._full = (time.monotonic() + min(_FULL_S, 0.5 * (self._refused - 1)), reason)
            return NoCapacity(reason)
        return ConfigError(str(error)) if error.status in (400, 403, 404, 422) else error

    # ------------------------------------------------------------ keeper and code

    def sends_code(self, report: Json) -> bool:
        """Whether a pod of ours takes them to a volume."""
        storage = self._config.storage
        on_volume = manifests.source_of(self._config, report) is Source.VOLUME
        return on_volume and not (storage is not None and storage.azure_key)

    def check_storage(self, report: Json) -> None:
        """Whether this machine may write where pods get them. Raises: ConfigError, ServiceError."""
        store = self._store(manifests.source_of(self._config, report))
        if store is not None:
            store.check()

    def delete_code_pod(self, cluster: Cluster) -> None:
        """One that an earlier manager has left behind. Raises: ApiError."""
        cluster.delete(PODS, self._namespace, manifests.code_pod_name(self._context.experiment, self._service))

    def close(self, cluster: Cluster) -> None:
        """Leave nothing half done: the pod that is to take the code may still wait for a node."""
        try:
            self.delete_code_pod(cluster)
        except ApiError as error:
            log.warning("the pod that was to take the code cannot be deleted: %s", error)

    @cached_property
    def _package(self) -> CodePackage:
        """The code as it was when it was first asked for: the same for all trials."""
        return self._context.package()

    @cached_property
    def _digests(self) -> tuple[str, str]:
        """Of the files of keeper and code."""
        return _digest(self._context.keeper), _digest(self._package.archive)

    def _delivered(self, cluster: Cluster, job: Job) -> Delivery:
        """Raises: NoCapacity while they are on their way."""
        source = self._setup(job).source
        if self._delivery is None:
            by_log = job.spec.get("report") == "stdout"
            address = "" if by_log else self.address(cluster)
            if address and address != self._context.callback_url() and not self._given_address():
                check_listening(address)
            paths = (self._context.keeper, self._package.archive)
            inside = [path.read_bytes() for path in paths] if source is Source.SECRET else [None, None]
            delivery = Delivery(address, self._package.hash, self._digests[0], self._kind.logs_stay, *inside)
            self._send(cluster, job, delivery)
            self._delivery = delivery
        store = self._store(source)
        if isinstance(store, Bucket):
            names = zip(("keeper", "code"), manifests.file_names(self._delivery), strict=True)
            return replace(self._delivery, urls={what: store.url(self._in_storage(name)) for what, name in names})
        return self._delivery

    def _send(self, cluster: Cluster, job: Job, delivery: Delivery) -> None:
        """Put keeper and code where pods will look for them, unless that is the manager or the Secret."""
        source = self._setup(job).source
        if source in (Source.MANAGER, Source.SECRET):
            return
        paths = (self._context.keeper, self._package.archive)
        files = dict(zip(manifests.file_names(delivery), zip(paths, self._digests, strict=True), strict=True))
        store = self._store(source)
        if store is None:
            self._fill_volume(cluster, job, files)
            return
        for name, (path, digest) in files.items():
            store.put(self._in_storage(name), path, digest)

    def _fill_volume(self, cluster: Cluster, job: Job, files: Mapping[str, tuple[Path, str]]) -> None:
        patience_s = {"image": float(self._config.image_pull_limit), "schedule": float(self._config.schedule_limit)}
        pod = CodePod(cluster, self._namespace, self._code_pod(job), patience_s)
        self.filling = True
        pod.put(manifests.CODE_PLACE, files)
        self.filling = False

    def _code_pod(self, job: Job) -> Json:
        role: Role = self._kind.roles(job)[0]
        return manifests.code_pod(self._setup(job), role, job.experiment, SLEEP)

    def _store(self, source: Source) -> Bucket | Share | None:
        """Where this machine writes them itself; None for other volumes."""
        storage = self._config.storage
        if self._stored is None and storage is not None:
            if source is Source.OBJECTS:
                self._stored = Bucket(storage)
            elif source is Source.VOLUME and storage.azure_key:
                self._stored = Share(storage)
        return self._stored

    def _in_storage(self, name: str) -> str:
        return f"{manifests.code_folder(self._context.experiment)}/{name}"


def _of_quota(error: ApiError) -> str:
    """What a quota says that is used up, "" for other refusals."""
    _, found, rest = str(error).partition("exceeded quota")
    return found + rest if error.status == 403 else ""


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()
