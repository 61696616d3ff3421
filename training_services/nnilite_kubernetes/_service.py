"""The training service of all Kubernetes platforms.

A job is an object of the platform's kind and a Secret, which the object owns, both of a name that follows from the
job's. A few threads of this service make all calls to the server; two more watch what happens there.

    _opening      checks and repairs everything before the start
    _submitter    makes the objects of a job
    _delivery     makes keeper and code available to pods
    _known        the state of the jobs by the watches, and the memory of each job
    _judge        the status of a job, and what must be deleted because of it
    _logs         the output of pods
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nnilite.errors import ConfigError, NotFound, Place, ServiceError
from nnilite.records import Host, Json, KeeperEvent
from nnilite.service import Handle, IgnoredOption, Job, JobStatus, ServiceContext, TrainingService
from nnilite.services.batch_service import list_hosts
from nnilite.services.delivery import sample_job
from nnilite.services.job_turns import JobTurns
from nnilite.services.keeper_folder import check_stream
from nnilite.services.section_fields import gpus_of, nodes_of
from nnilite_kubernetes import _manifest as manifests
from nnilite_kubernetes._api import SECRETS, ApiError, Cluster, connect
from nnilite_kubernetes._config import IGNORED, ClusterConfig
from nnilite_kubernetes._judge import Judge
from nnilite_kubernetes._kind import OperatorKind
from nnilite_kubernetes._known import KnownJobs, find_job
from nnilite_kubernetes._logs import Logs
from nnilite_kubernetes._role_records import RoleRecords
from nnilite_kubernetes._startup import Startup
from nnilite_kubernetes._status import find_node, find_phase
from nnilite_kubernetes._submitter import Submitter
from nnilite_kubernetes._waits import ClusterPatience

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS = 16
_JOBS_AT_ONCE = 12  # jobs whose logs are read at once, so that other calls find a thread


@dataclass(frozen=True)
class _Open:
    """The parts of the service while it is open."""

    pool: ThreadPoolExecutor
    cluster: Cluster
    known: KnownJobs
    judge: Judge
    logs: Logs
    roles: RoleRecords


class ClusterService(TrainingService):
    """A handle is {"job": its name, "uid": of its object, "report": how it reports}; all else follows from the name."""

    ignores: ClassVar[Sequence[IgnoredOption]] = IGNORED
    reports_aside = True
    patience: ClassVar[ClusterPatience] = ClusterPatience()
    make_kind: ClassVar[Any]  # makes an OperatorKind of the config

    def __init__(self, name: str, config: ClusterConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._kind: OperatorKind = self.make_kind(config)
        if context.defaults.get("distributed"):
            self._kind.distribute(nodes_of(context))
        self._namespace = config.namespace
        self._submitter = Submitter(name, self._kind, config, context)
        self._turns = JobTurns(at_once=_JOBS_AT_ONCE)
        self._opened: _Open | None = None

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._submitter = Submitter(self.name, self._kind, self.config, self.context)  # the code is taken anew
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubernetes")
        try:
            with _blame_login():
                await asyncio.get_running_loop().run_in_executor(pool, self._open, pool)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            await self.close()
            raise

    def _open(self, pool: ThreadPoolExecutor) -> None:
        cluster = self._connect()
        known = KnownJobs(cluster, self._kind, self._namespace, manifests.selector(self.context.experiment, self.name))
        place, by_log = (self._namespace, self.context.directory), self.context.reports_by_log
        roles = RoleRecords(cluster, *place, by_log, "pods" if self._kind.nodes else "roles")
        judge = Judge(known, self.config, roles, self.context.wake, self.patience)
        self._opened = _Open(pool, cluster, known, judge, Logs(known, roles, self.patience), roles)
        opening = self._opening(cluster)
        opening.check_operator()
        known.start(judge.object_changed, judge.pod_changed)
        if not known.objects():  # else there are trials to be watched, whatever has changed since they began
            opening.check_trials()
        opening.tidy_up(known)

    async def check(self) -> None:
        await asyncio.to_thread(self._check)

    def _check(self) -> None:
        try:
            cluster = self._connect()
        except ConfigError as error:  # a dry run may be meant for another machine
            raise ServiceError(str(error)) from error
        try:
            with _blame_login():
                opening = self._opening(cluster)
                opening.check_operator()
                opening.check_quotas()
                opening.check_callback()
        finally:
            cluster.close()

    def _connect(self) -> Cluster:
        kubeconfig = self.config.kubeconfig
        return connect(str(kubeconfig) if kubeconfig else None, self.config.kube_context)

    def _opening(self, cluster: Cluster) -> Startup:
        sample = sample_job(self.context, gpus_of(self.config, self.context))
        return Startup(cluster, self._kind, self._submitter, sample, self.name, self._namespace)

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            return
        await self._turns.close()
        opened.known.close()
        opened.roles.close()
        try:
            if self._submitter.deliverer.filling:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(opened.pool, self._submitter.deliverer.close, opened.cluster)
        finally:  # no thread may wait for the server any more: the process would wait for the thread
            opened.pool.shutdown(wait=False, cancel_futures=True)
            opened.cluster.close()

    def _now(self) -> _Open:
        return self.check_open(self._opened)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._now().pool, call, *arguments)

    # ------------------------------------------------------------ jobs

    async def submit(self, job: Job) -> Handle:
        opened = self._now()
        exists = opened.known.watched(self._submitter.name(job.name)) is not None
        made = await self._in_thread(self._submitter.submit, opened.cluster, job, exists)
        opened.known.put(made)
        return {"job": job.name, "uid": made["metadata"]["uid"], "report": job.report}

    def describe(self, job: Job) -> Json:
        return {"name": job.name, "manifests": self._submitter.describe(job)}

    def _place(self, handle: Handle) -> tuple[str, str]:
        """Return name and uid of a job's object."""
        return self._submitter.name(str(handle["job"])), str(handle["uid"])

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        opened = self._now()
        opened.known.check_fresh(self.patience.silence_s)
        # The log of a pod whose node is down does not answer.
        followed = [handle for handle in handles if handle.get("report") == "stdout"]
        calls = [(str(one["job"]), partial(self._in_thread, self._status, opened, one)) for one in followed]
        found = dict(zip((job for job, _ in calls), await self._turns.statuses(calls), strict=True))
        others = [handle for handle in handles if str(handle["job"]) not in found]
        judged = await self._in_thread(lambda: [self._status(opened, handle) for handle in others])
        found.update(zip((str(one["job"]) for one in others), judged, strict=True))
        return [found[str(handle["job"])] for handle in handles]

    def _status(self, opened: _Open, handle: Handle) -> JobStatus:
        place = self._place(handle)
        if handle.get("report") == "stdout" and opened.known.memory(*place).end is None:
            opened.logs.follow(*place)
        return opened.judge.status(*place)

    async def cancel(self, handle: Handle) -> None:
        await self._in_thread(self._now().judge.cancel, *self._place(handle))

    async def scale(self, handle: Handle, workers: int) -> None:
        await self._in_thread(self._scale, self._now(), handle, workers)

    def _scale(self, opened: _Open, handle: Handle, workers: int) -> None:
        name, uid = self._place(handle)
        content = opened.known.object(name)
        if content is None or content["metadata"]["uid"] != uid:
            raise NotFound(f"{handle['job']} is no longer in the cluster")
        opened.cluster.patch(self._kind.resource, self._namespace, name, self._kind.scaling(content, workers))

    async def remove(self, handle: Handle) -> None:
        await self._in_thread(self._remove, self._now(), handle)

    def _remove(self, opened: _Open, handle: Handle) -> None:
        """Delete the object with all that it owns, but no other object of that name."""
        name, uid = self._place(handle)
        content = opened.known.object(name)
        if content is not None and content["metadata"]["uid"] != uid:
            return
        opened.logs.keep(name)
        opened.known.forget(name, uid, gone=content is None)
        place = (self._kind.resource, self._namespace, name, uid, self._kind.deletion)
        if content is not None and opened.cluster.delete(*place):
            return
        for resource in (SECRETS, *self._kind.owned):  # left by an earlier try that got no further
            opened.cluster.delete(resource, self._namespace, name)

    # ------------------------------------------------------------ what they print, and where they run

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        with_output = handle.get("report") == "stdout"
        async with self._turns.turn(str(handle["job"])):
            return await self._in_thread(self._now().logs.reports, *self._place(handle), with_output)

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """Return the pod's log, which has both streams in one, as standard output."""
        check_stream(stream)
        if stream == "stderr":
            return b""
        return await self._in_thread(self._now().logs.output, *self._place(handle), offset, limit)

    async def fetch(self, handle: Handle, target: Path) -> None:
        """Save the present output of the pods that still run; that of the others is in the attempt's folder already."""
        await self._in_thread(self._now().logs.refresh, self._place(handle)[0])

    def hosts(self) -> list[Host]:
        pods = self._opened.known.pods() if self._opened is not None else []
        return list_hosts(find_node(pod) for pod in pods if find_job(pod) and find_phase(pod) == "Running")


@contextlib.contextmanager
def _blame_login() -> Iterator[None]:
    """Name the field of the login if that is refused. Raises: ConfigError."""
    try:
        yield
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        raise ConfigError(str(error), Place(field="kubeconfig")) from error
