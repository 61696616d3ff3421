"""Makes keeper, code and manager available to pods: in their Secret, on a volume, in a store, and by an address."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from nnilite.codedir import CodePackage
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import file_digest, pack, with_bytecode
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.first_seen import FirstSeen
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._api import PODS, ApiError, Cluster
from nnilite_kubernetes._azure_files import AzureFileShare
from nnilite_kubernetes._code_pod import SLEEP, CodePod
from nnilite_kubernetes._config import ClusterConfig
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._manifest import CodeSource, PodDelivery, PodSetup, Role
from nnilite_kubernetes._s3 import Bucket

log = logging.getLogger(__name__)

_SMALL_CODE_BYTES = 64_000


@functools.lru_cache(maxsize=1)  # services of one manager share a keeper
def _pack_keeper(keeper: bytes) -> tuple[bytes, str]:
    """Return the keeper as pods get it, and its digest once they have unpacked it."""
    plain = with_bytecode(keeper)
    return pack(plain), hashlib.sha256(plain).hexdigest()


class Deliverer:
    """Delivers keeper and code once, as they are the same for all jobs of a service. May block for long."""

    def __init__(self, service: str, kind: OperatorKind, config: ClusterConfig, context: ServiceContext) -> None:
        self._service = service
        self._kind = kind
        self._config = config
        self._context = context
        self._namespace = config.namespace
        self._delivery: PodDelivery | None = None
        self.filling = False  # a pod of ours is to take keeper and code
        self._stored: Bucket | AzureFileShare | None = None
        self._seen = FirstSeen()  # what the pod waits for

    def setup(self, job: Job) -> PodSetup:
        storage = self._kind.storage(manifests.make_object_name(job.name, self._kind.dashes)) or self._config.storage
        mounted = storage if storage is not None and storage.can_be_mounted else None
        source = manifests.choose_source(self._config, job.report)
        if source is CodeSource.MANAGER and self._config.code_from is None and self._code_is_small:
            source = CodeSource.SECRET
        return PodSetup(
            self._service, self._config, mounted, source, None if self._kind.has_shm else self._config.shm_size
        )

    def callback(self, cluster: Cluster) -> CallbackAddress:
        """Return where pods reach the manager."""
        return CallbackAddress(self._context, self._config.nni_manager_ip, cluster.host)

    def sends_code(self, report: Json) -> bool:
        """Return whether a pod of this service puts them on a volume."""
        storage = self._config.storage
        on_volume = manifests.choose_source(self._config, report) is CodeSource.VOLUME
        return on_volume and not (storage is not None and storage.azure_key)

    def check_storage(self, report: Json) -> None:
        """Check that this machine may write where pods get them. Raises: ConfigError, ServiceError."""
        store = self._store(manifests.choose_source(self._config, report))
        if store is not None:
            store.check()

    def delete_code_pod(self, cluster: Cluster) -> None:
        """Delete a code pod that an earlier manager has left. Raises: ApiError."""
        cluster.delete(PODS, self._namespace, manifests.name_code_pod(self._context.experiment, self._service))

    def close(self, cluster: Cluster) -> None:
        """Delete the pod that is to receive the code: it may still wait for a node."""
        try:
            self.delete_code_pod(cluster)
        except ApiError as error:
            log.warning("the pod that was to receive the code cannot be deleted: %s", error)

    @cached_property
    def _package(self) -> CodePackage:
        """The code as it was when it was first asked for: the same for all trials."""
        return self._context.package()

    @cached_property
    def _code_is_small(self) -> bool:
        """Whether the code is better sent with the job: a trial that fetches it from the manager starts later."""
        return self._package.archive.stat().st_size <= _SMALL_CODE_BYTES

    @cached_property
    def _digests(self) -> tuple[str, str]:
        """Return the digests of the files of keeper and code."""
        return file_digest(self._context.keeper), file_digest(self._package.archive)

    def deliver(self, cluster: Cluster, job: Job) -> PodDelivery:
        """Deliver keeper and code. Raises: NoCapacity while they are on their way."""
        source = self.setup(job).source
        if self._delivery is None:
            by_log = job.report == "stdout"
            address = "" if by_log else self.callback(cluster).find_or_wait()
            keeper, digest = None, self._digests[0]
            if source in (CodeSource.SECRET, CodeSource.MANAGER):
                keeper, digest = _pack_keeper(self._context.keeper.read_bytes())
            code = self._package.archive.read_bytes() if source is CodeSource.SECRET else None
            delivery = PodDelivery(address, self._package.hash, digest, self._kind.logs_stay, keeper, code)
            self._send(cluster, job, delivery)
            self._delivery = delivery
        store = self._store(source)
        if isinstance(store, Bucket):
            names = zip(("keeper", "code"), manifests.name_files(self._delivery), strict=True)
            return replace(self._delivery, urls={what: store.url(self._name_in_storage(name)) for what, name in names})
        return self._delivery

    def _send(self, cluster: Cluster, job: Job, delivery: PodDelivery) -> None:
        """Put keeper and code where pods will look for them, unless that is the manager or the Secret."""
        source = self.setup(job).source
        if source in (CodeSource.MANAGER, CodeSource.SECRET):
            return
        paths = (self._context.keeper, self._package.archive)
        files = dict(zip(manifests.name_files(delivery), zip(paths, self._digests, strict=True), strict=True))
        store = self._store(source)
        if store is None:
            self._fill_volume(cluster, job, files)
            return
        for name, (path, digest) in files.items():
            store.put(self._name_in_storage(name), path, digest)

    def _fill_volume(self, cluster: Cluster, job: Job, files: Mapping[str, tuple[Path, str]]) -> None:
        patience_s = {"image": float(self._config.image_pull_limit), "schedule": float(self._config.schedule_limit)}
        pod = CodePod(cluster, self._namespace, self.make_code_pod(job), patience_s, self._seen)
        self.filling = True
        pod.put(manifests.CODE_PLACE, files)
        self.filling = False

    def make_code_pod(self, job: Job) -> Json:
        role: Role = self._kind.roles(job)[0]
        return manifests.make_code_pod(self.setup(job), role, job.experiment, SLEEP)

    def _store(self, source: CodeSource) -> Bucket | AzureFileShare | None:
        """Return the store to which this machine writes them itself; None for other volumes."""
        storage = self._config.storage
        if self._stored is None and storage is not None:
            if source is CodeSource.OBJECTS:
                self._stored = Bucket(storage)
            elif source is CodeSource.VOLUME and storage.azure_key:
                self._stored = AzureFileShare(storage)
        return self._stored

    def _name_in_storage(self, name: str) -> str:
        return f"{manifests.code_folder(self._context.experiment)}/{name}"
