"""Make the calls to one workspace that are needed, by Azure's own client, and parse what is used of the answers.

Some parts of the client are not public: `_code`, which uploads a snapshot by itself and once, and
`jobs._runs_operations`, the only part that reports why a job failed and where its log is. Both are in all versions from
1.8.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nnilite.disk_room import DiskRoom
from nnilite.foreign_files import copy_folder
from nnilite.platform_http import make_abortable
from nnilite.records import Json
from nnilite_aml._calls import AzureCalls
from nnilite_aml._config import AmlConfig
from nnilite_aml._credentials import cure, login

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.core.pipeline.transport import RequestsTransport

T = TypeVar("T")

_UPLOAD_LIMIT_S = 3600.0
_DOWNLOAD_LIMIT_S = 600.0
_PIECE_BYTES = 4_000_000


@dataclass(frozen=True)
class AmlJob:
    """A job in lists."""

    name: str
    status: str
    url: str = ""


@dataclass(frozen=True)
class RunFacts:
    """What the run history knows of a job beyond that."""

    started: float | None = None
    ended: float | None = None
    error_code: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    logs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The files of the log, each with a URL that opens it, which is a secret."""


@dataclass(frozen=True)
class AmlTarget:
    """A compute target."""

    name: str
    kind: str
    """amlcompute, computeinstance, kubernetes and others, in small letters."""
    state: str = ""
    most_nodes: int | None = None
    low_priority: bool = False
    size: str = ""
    """The VM size of its nodes; "" if it has none, as clusters of Kubernetes."""
    error: str = ""


class AmlWorkspace:
    """All tries of a call together take `patience_s` at most. All calls raise Problem."""

    def __init__(self, config: AmlConfig, patience_s: float) -> None:
        self._config = config
        self._patience_s = patience_s
        self._calls = AzureCalls(float(config.request_timeout), cure(config))
        self._made: MLClient | None = None
        self._transport: RequestsTransport | None = None
        self._making = threading.Lock()

    # ------------------------------------------------------------ the client

    def _client(self) -> MLClient:
        """Return the client. Blocks, since it imports Azure's library."""
        with self._making:
            if self._made is None:
                from azure.ai.ml import MLClient

                config = self._config
                self._made = MLClient(
                    login(config),
                    config.subscription_id,
                    config.resource_group,
                    config.workspace_name,
                    cloud=config.cloud,
                    enable_telemetry=False,
                    show_progress=False,
                    retry_total=0,
                    transport=self._connections(),
                )
                _quiet()
            return self._made

    def _connections(self) -> RequestsTransport:
        """Return the connections that all calls share, which saves a TLS handshake with each."""
        if self._transport is None:
            from azure.core.pipeline.transport import RequestsTransport

            timeout_s = float(self._config.request_timeout)
            self._transport = RequestsTransport(connection_timeout=timeout_s, read_timeout=timeout_s)
            self._transport.open()
            for adapter in self._transport.session.adapters.values():
                make_abortable(adapter.poolmanager)
        return self._transport

    async def close(self) -> None:
        """Let go of the connections."""
        transport, self._transport, self._made = self._transport, None, None
        if transport is not None:
            transport.close()

    def _forget(self) -> None:
        """Log in again, without a stored token."""
        self._made = None

    async def _call(self, what: str, work: Callable[[MLClient], T], timeout_s: float | None = None) -> T:
        await self._calls.run("the login", self._client, timeout_s=60, patience_s=60)
        patience_s = max(self._patience_s, timeout_s or 0)
        return await self._calls.run(
            what, lambda: work(self._client()), timeout_s=timeout_s, patience_s=patience_s, renew=self._forget
        )

    # ------------------------------------------------------------ what there is

    async def location(self) -> str:
        """Return the location of the workspace; shows that it exists and may be seen."""
        name = self._config.workspace_name
        found = await self._call(f"workspace {name}", lambda client: client.workspaces.get(name))
        return str(found.location or "")

    async def target(self, name: str) -> AmlTarget:
        return _target(await self._call(f"compute target {name}", lambda client: client.compute.get(name)))

    async def list_gpus_by_size(self) -> Mapping[str, int]:
        """Return the GPUs of a node by VM size in small letters, for the sizes in the workspace's region."""
        place = await self.location()
        found = await self._call("the VM sizes", lambda client: list(client.compute.list_sizes(location=place)))
        return {_text(one, "name").lower(): int(getattr(one, "gpus", None) or 0) for one in found}

    async def environment(self, name: str, version: str) -> str:
        """Return the id of an environment of the workspace."""
        found = await self._call(
            f"environment {name}:{version}", lambda client: client.environments.get(name, version=version)
        )
        return str(found.id)

    # ------------------------------------------------------------ what goes up

    async def register(self, name: str, image: str, conda: Path | None) -> str:
        """Make an environment, or find the same one; return its id."""

        def work(client: MLClient) -> str:
            from azure.ai.ml.entities import Environment

            given = Environment(name=name, version="1", image=image, conda_file=conda)
            return str(client.environments.create_or_update(given).id)

        return await self._call(f"environment {name}:1", work)

    async def upload(self, folder: Path) -> str:
        """Return the id of the snapshot with this content, uploading it if Azure does not have it. May take long."""

        def work(client: MLClient) -> str:
            from azure.ai.ml.entities._assets import Code

            return str(client._code.create_or_update(Code(path=str(folder))).id)

        return await self._call("the upload of the code", work, timeout_s=_UPLOAD_LIMIT_S)

    async def create(self, arguments: Mapping[str, Any]) -> AmlJob:
        """Submit a job."""
        name = str(arguments["name"])
        return await self._call(
            f"job {name}", lambda client: _job(client.jobs.create_or_update(_make_entity(arguments)))
        )

    # ------------------------------------------------------------ jobs

    async def jobs(self, tag: str) -> Mapping[str, AmlJob]:
        """Return all jobs with a tag of this name."""
        found = await self._call(f"the jobs tagged {tag}", lambda client: list(_listed(client, tag)))
        return {job.name: job for job in found}

    async def job(self, name: str) -> AmlJob:
        return await self._call(f"job {name}", lambda client: _job(client.jobs.get(name)))

    async def facts(self, name: str) -> RunFacts:
        """Return what the run history knows of a job."""
        return await self._call(
            f"the run of job {name}", lambda client: _facts(client.jobs._runs_operations.get_run_details(name))
        )

    async def cancel(self, name: str) -> None:
        """Ask for a job's end; its status shows when that has come."""
        await self._call(f"the end of job {name}", lambda client: _ask_to_cancel(client, name))

    async def read(self, url: str, offset: int) -> bytes:
        """Return a piece of a log from `offset` on. Raises: Missing (416) if there is nothing (yet)."""

        def work() -> bytes:
            from azure.storage.blob import BlobClient

            blob = BlobClient.from_blob_url(url, retry_total=0, transport=self._connections())
            return bytes(blob.download_blob(offset=offset, length=_PIECE_BYTES).readall())

        return await self._calls.run("the log of a job", work, patience_s=self._patience_s)

    async def download(self, name: str, target: Path) -> None:
        """Copy the files in the folder `outputs` of a job."""

        def work(client: MLClient) -> None:
            target.mkdir(parents=True, exist_ok=True)
            DiskRoom(target).need(0)
            # The temporary files are on the same disk, in the trial's folder, so that a limit on the folder counts
            # them.
            with tempfile.TemporaryDirectory(prefix=".azure-", dir=target.parent) as folder:
                client.jobs.download(name, download_path=folder)
                left = Path(folder, "artifacts", "outputs")
                if left.is_dir():
                    copy_folder(left, target)

        await self._call(f"the files of job {name}", work, timeout_s=_DOWNLOAD_LIMIT_S)


def _make_entity(arguments: Mapping[str, Any]) -> Any:
    """Return a job as Azure's library has it."""
    from azure.ai.ml import command

    return command(**arguments)


def _quiet() -> None:
    """Silence the library, which logs each call and warns of each class that may change; errors are reported here."""
    logging.getLogger("azure").setLevel(logging.WARNING)
    logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)
    activities = logging.getLogger("azure.ai.ml._telemetry")
    activities.propagate = False
    if not activities.handlers:
        activities.addHandler(logging.NullHandler())


def make_rest_body(arguments: Mapping[str, Any]) -> Json:
    """Return the request for a job, as JSON. Imports Azure's library, which takes seconds."""
    _quiet()
    rest = _make_entity(arguments)._to_job()._to_rest_object()
    found = rest.as_dict() if hasattr(rest, "as_dict") else rest.serialize()
    return {"properties": found["properties"]}


def _listed(client: MLClient, tag: str) -> Iterator[AmlJob]:
    # The library returns None for jobs that it cannot read: kinds of jobs that are newer than it.
    return (_job(one) for one in client.jobs.list(tag=tag) if one is not None)


def _job(job: Any) -> AmlJob:
    services = job.services or {}
    studio = services.get("Studio") if isinstance(services, dict) else None
    return AmlJob(str(job.name), _text(job, "status"), _text(studio, "endpoint"))


def _ask_to_cancel(client: MLClient, name: str) -> None:
    # Without polling, nothing waits in a thread of its own for the end.
    client.jobs.begin_cancel(name, polling=False)


def _target(target: Any) -> AmlTarget:
    most = getattr(target, "max_instances", None)
    return AmlTarget(
        name=str(target.name),
        kind=_text(target, "type").lower(),
        state=_text(target, "state"),
        most_nodes=most if isinstance(most, int) else None,
        low_priority=_text(target, "tier").lower() in ("low_priority", "lowpriority"),
        size=_text(target, "size"),
        error=_text(target, "provisioning_errors"),
    )


def _facts(run: Any) -> RunFacts:
    error = getattr(getattr(run, "error", None), "error", None)
    warnings = [_text(one, "message") for one in run.warnings or []]
    return RunFacts(
        started=_seconds(run.start_time_utc),
        ended=_seconds(run.end_time_utc),
        error_code=_text(error, "code"),
        error=_text(error, "message"),
        warnings=tuple(warning for warning in warnings if warning),
        logs={str(name): str(url) for name, url in (run.log_files or {}).items()},
    )


def _text(item: Any, name: str) -> str:
    """Return a field as text, also where the library has an enumeration for it; "" if there is none."""
    value = getattr(item, name, None)
    return str(getattr(value, "value", value) or "")


def _seconds(moment: object) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else None
