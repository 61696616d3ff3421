"""Each attempt of a trial is a job of a Ray cluster, whose submission id is the name of the attempt.

A handle is {"job": name, "report": how it reports, "session": the name of Ray's session, which changes when the cluster
is restarted}. One listing returns the states of all jobs; a job is asked for by itself when it is not listed, and its
log is read when it has started and when it has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from nnilite.errors import ConfigError, Conflict, NniliteError, Place
from nnilite.platform_http import AccessRefused, Missing, Problem, RequestTooLarge, Untrusted, as_config_error
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.batch_service import BatchService
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.node_places import ELASTIC_LAUNCHERS, LAUNCHERS, on_its_nodes
from nnilite_ray import _convert as convert
from nnilite_ray._api import RayApi
from nnilite_ray._config import IGNORED, RayConfig
from nnilite_ray._package import RayPackage, check_size, make_package
from nnilite_ray._resources import Usage
from nnilite_ray._watch import Found, RayPatience, RayWatch, RayWatchNeeds

log = logging.getLogger(__name__)

_CLOSE_S = 4.0


class RayService(BatchService[RayApi, Found]):
    """Jobs of a Ray cluster, through its Jobs REST interface."""

    Config = RayConfig
    config: RayConfig
    ignores = IGNORED
    launchers = LAUNCHERS
    elastic_launchers = ELASTIC_LAUNCHERS
    platform: ClassVar[str] = "Ray"
    patience: ClassVar[RayPatience] = RayPatience()

    def __init__(self, name: str, config: RayConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context, CallbackAddress(context, config.nni_manager_ip, config.address))
        self._package: RayPackage | None = None
        self._session = ""
        self._looks: set[asyncio.Task[None]] = set()  # at what was removed
        self._usage: tuple[float, Usage] = (float("-inf"), {})

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        await super().open()
        try:
            self._package = await asyncio.to_thread(make_package, self.config, self.context)
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        await asyncio.to_thread(check_size, self.config, self.context)
        await super().check()

    def connect(self) -> RayApi:
        return RayApi(self.config, self.patience.call_s, self.patience.log_call_s)

    async def log_in(self, api: RayApi) -> None:
        """Check the login. Raises: ConfigError for a wrong address or login, and for a Ray that is too old; Problem."""
        found = await self._version(api)
        self._session = str(found.get("session_name") or "")
        version = str(found["ray_version"])
        known = convert.parse_version(version)
        if known is not None and known < convert.OLDEST:
            oldest = ".".join(map(str, convert.OLDEST))
            raise ConfigError(
                f"the cluster runs Ray {version}, but trials need {oldest} or later: upgrade the cluster",
                Place(field="address"),
            )

    async def _version(self, api: RayApi) -> Mapping[str, Any]:
        """Return Ray's version. Raises: ConfigError, Problem."""
        field = "tokenFile" if self.config.token_file else "token"
        try:
            with as_config_error("address"):
                return await api.version()
        except ConfigError as error:
            cause = error.__cause__
            if isinstance(cause, AccessRefused):
                cure = "on the head node `ray get-auth-token` prints it"
                wrong = "Ray does not accept this token" if self.config.token else "this Ray cluster asks for a token"
                raise ConfigError(f"{wrong}: {cure} ({cause})", Place(field=field)) from error
            if isinstance(cause, Untrusted):
                raise ConfigError(str(cause), Place(field="caCert")) from error
            if isinstance(cause, Missing):
                raise ConfigError(
                    f"no dashboard of Ray with the Jobs interface of ray[default] answers at {self.config.address}: "
                    f"{cause}",
                    Place(field="address"),
                ) from error
            raise

    async def close(self) -> None:
        looks, self._looks = self._looks, set()
        try:
            if looks and self._client is not None:
                await asyncio.wait(looks, timeout=_CLOSE_S)
        finally:
            for look in looks:
                look.cancel()
            await super().close()

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        api, package, job = self.api, self.check_open(self._package), _on_its_nodes(job)
        callback = "" if job.report == "stdout" else await self.job_callback_url()
        instructions = await asyncio.to_thread(package.instructions, job, self.config, callback)
        body = convert.request(job, self.config, package.name, instructions)
        await self._supply(package.name)
        await api.submit(body)
        return self.handle(job, session=self._session)

    async def _supply(self, name: str) -> bool:
        """Ensure that Ray has a package; False for one that is not ours (any more). Raises: ConfigError, Problem."""
        api, package = self.api, self._package
        # Ray drops a package ten minutes after its last use, and asking for it is a use.
        if await api.has_package(name):
            return True
        if package is None or package.name != name:
            return False
        await self._upload(api, package)
        return True

    async def _upload(self, api: RayApi, package: RayPackage) -> None:
        size_mb = package.file.stat().st_size / 1024**2
        log.info("uploading the code to Ray as %s, %.1f MB", package.name, size_mb)
        try:
            await api.upload(package.name, package.file)
        except RequestTooLarge as problem:
            raise ConfigError(
                f"a proxy on the way to Ray refuses a package of {size_mb:.0f} MB: exclude files with .nniignore, or "
                f"set codeFrom: manager ({problem})",
                Place(field="codeFrom"),
            ) from problem

    def describe(self, job: Job) -> Json:
        """Return the exact request without the trial's token; the package has no name before it is made."""
        body = convert.request(
            _on_its_nodes(job), self.config, "_ray_pkg_<hash of code and keeper>.zip", {convert.START: "secret"}
        )
        address = self.config.address.rstrip("/")
        return {"name": job.name, "request": f"POST {address}/api/jobs/", "body": convert.hidden(body)}

    # ------------------------------------------------------------ watching

    async def list_jobs(self, api: RayApi, wanted: frozenset[str]) -> Mapping[str, Found]:
        ours = f"nni-{self.context.experiment}-"
        return {name: job for name, job in (await api.jobs()).items() if name.startswith(ours)}

    async def listed(self, handles: Sequence[Handle], jobs: Mapping[str, Found]) -> None:
        names = [str(handle["job"]) for handle in handles]
        if any(_is_waiting(jobs.get(name, {}), self.watched(one)) for name, one in zip(names, handles, strict=True)):
            await self._look_at_usage()

    def watch(self, api: RayApi, handle: Handle) -> RayWatch:
        needs = RayWatchNeeds(partial(convert.page_url, self.config.address), lambda: self._usage[1], self._supply)
        return RayWatch(api, handle, needs, self.patience)

    async def _look_at_usage(self) -> None:
        """Ask how much of the cluster is in use, which is not part of Ray's documented interface."""
        asked, known = self._usage
        if time.monotonic() - asked >= self.patience.usage_pause_s:
            try:
                known = await self.api.usage()
            except Problem as problem:
                log.debug("cannot find out which resources of Ray are in use: %s", problem)
                known = {}
            self._usage = (time.monotonic(), known)

    # ------------------------------------------------------------ the end

    async def cancel(self, handle: Handle) -> None:
        """End a job. Ray itself ends it softly first."""
        await self.watched(handle).cancel(0.0)

    async def take_node(self, handle: Handle) -> None:
        raise Conflict("a drill takes no nodes of trials on Ray, which only their driver knows; end one by ray stop")

    async def remove(self, handle: Handle) -> None:
        """Remove an ended job from Ray's records; Ray keeps its log on the node."""
        watch = self.watched(handle)
        await super().remove(handle)
        look = asyncio.get_running_loop().create_task(self._look_again(watch))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look_again(self, watch: RayWatch) -> None:
        """Remove a job that has come back.

        Ray looks each second how its jobs do. If one has ended and was deleted before it has looked, it takes the job
        for one that was lost, and writes an empty record of it.
        """
        await asyncio.sleep(self.patience.comes_back_s)
        try:
            await watch.is_removed()
        except NniliteError as error:
            log.debug("cannot find out whether %s has come back: %s", watch.name, error)


def _on_its_nodes(job: Job) -> Job:
    return on_its_nodes(job, convert.NODE, [convert.FIRST_NODE], count_variable=convert.NODES)


def _is_waiting(job: Found, watch: RayWatch) -> bool:
    """Return whether a job waits for resources: by itself, or as the driver of a trial on several nodes."""
    drives = job.get("status") == convert.RUNNING and watch.log.started is None
    return job.get("status") == convert.PENDING or (drives and convert.find_nodes(job)[0] > 0)
