"""Each attempt of a trial is a job of a Ray cluster, whose submission id is the name of the attempt.

A handle is {"job": name, "report": how it reports, "session": the name of Ray's session, which changes when the cluster
is started anew}. One listing tells the states of all jobs; a job is asked for by itself when it is not listed, and its
log is read when it has started and when it has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from nnilite.errors import ConfigError, NniliteError, NotFound, Place, ServiceError
from nnilite.platform_http import AccessRefused, CallRefused, Missing, Problem, Untrusted, as_config_error
from nnilite.records import Json, KeeperEvent
from nnilite.service import Handle, Host, Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite.services.callback_address import check_callback_address, reachable_callback_address
from nnilite.services.job_turns import JobTurns
from nnilite_ray import _convert as convert
from nnilite_ray._api import RayApi
from nnilite_ray._config import IGNORED, RayConfig
from nnilite_ray._package import RayPackage, check_size, make_package
from nnilite_ray._resources import Usage
from nnilite_ray._watch import RayPatience, RayWatch

log = logging.getLogger(__name__)

_LOOKS, _LOOK_S = 5, 0.2
_CLOSE_S = 4.0


class RayService(TrainingService):
    """Jobs of a Ray cluster, through its Jobs REST interface."""

    Config = RayConfig
    ignores = IGNORED
    reports_aside = True

    patience: ClassVar[RayPatience] = RayPatience()

    def __init__(self, name: str, config: RayConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._api: RayApi | None = None
        self._package: RayPackage | None = None
        self._session = ""
        self._looks: set[asyncio.Task[None]] = set()  # at what was removed
        self._watches: dict[str, RayWatch] = {}
        self._turns = JobTurns()
        self._usage: tuple[float, Usage] = (float("-inf"), {})

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._watches.clear()
        try:
            api = await self._connect()
            ours = any(name.startswith(f"nni-{self.context.experiment}-") for name in await api.jobs())
            # With jobs there are trials to be watched, whatever has changed since they began.
            if not ours and self.context.defaults.get("callback") != "log":
                await asyncio.to_thread(check_callback_address, *self._way_back())
            self._package = await asyncio.to_thread(make_package, self.config, self.context)
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        try:
            await asyncio.to_thread(check_size, self.config, self.context)
            await self._connect()
        finally:
            await self.close()

    def _way_back(self) -> tuple[ServiceContext, str | None, str]:
        """What says where jobs reach the manager."""
        return self.context, self.config.nni_manager_ip, self.config.address

    async def _connect(self) -> RayApi:
        """Raises: ConfigError for a wrong address or login, and for a Ray that is too old; Problem."""
        api = self._api = RayApi(self.config, self.patience.call_s, self.patience.log_call_s)
        found = await self._version(api)
        self._session = str(found.get("session_name") or "")
        version = str(found["ray_version"])
        known = convert.version_of(version)
        if known is not None and known < convert.OLDEST:
            oldest = ".".join(map(str, convert.OLDEST))
            raise ConfigError(
                f"the cluster runs Ray {version}, and trials need {oldest} or later: upgrade the cluster",
                Place(field="address"),
            )
        return api

    async def _version(self, api: RayApi) -> Mapping[str, Any]:
        """Raises: ConfigError, Problem."""
        field = "tokenFile" if self.config.token_file else "token"
        try:
            with as_config_error("address"):
                return await api.version()
        except ConfigError as error:
            cause = error.__cause__
            if isinstance(cause, AccessRefused):
                cure = "on the head node `ray get-auth-token` prints it"
                wrong = "Ray does not take this token" if self.config.token else "this Ray cluster asks for a token"
                raise ConfigError(f"{wrong}: {cure} ({cause})", Place(field=field)) from error
            if isinstance(cause, Untrusted):
                raise ConfigError(str(cause), Place(field="caCert")) from error
            if isinstance(cause, Missing):
                raise ConfigError(
                    f"there is no dashboard of Ray, with the Jobs interface of ray[default], at {self.config.address}: "
                    f"{cause}",
                    Place(field="address"),
                ) from error
            raise

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is None:
            return
        looks, self._looks = self._looks, set()
        await self._turns.close()
        try:
            if looks:
                await asyncio.wait(looks, timeout=_CLOSE_S)
        finally:
            for look in looks:
                look.cancel()
            await api.close()

    def _connected(self) -> RayApi:
        if self._api is None:
            raise ServiceError(f"{self.name} is not open")
        return self._api

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        api, package = self._connected(), self._package
        if package is None:
            raise ServiceError(f"{self.name} is not open")
        report = str(job.spec.get("report") or "rest")
        callback = ""
        if report != "stdout":
            callback = await asyncio.to_thread(reachable_callback_address, *self._way_back())
        instructions = await asyncio.to_thread(package.instructions, job, self.config, callback)
        body = convert.request(job, self.config, package.name, instructions)
        await self._supply(package.name)
        await api.submit(body)
        return {"job": job.name, "report": report, "session": self._session}

    async def _supply(self, name: str) -> bool:
        """See to it that Ray has a package; False for one that is not ours (any more). Raises: ConfigError, Problem."""
        api, package = self._connected(), self._package
        # Ray drops a package ten minutes after its last use, and asking for it is a use.
        if await api.has_package(name):
            return True
        if package is None or package.name != name:
            return False
        await self._upload(api, package)
        return True

    async def _upload(self, api: RayApi, package: RayPackage) -> None:
        size_mb = package.file.stat().st_size / 1024**2
        log.info("the code goes up to Ray as %s, %.1f MB", package.name, size_mb)
        try:
            await api.upload(package.name, package.file)
        except CallRefused as problem:
            if problem.status != 413:
                raise
            raise ConfigError(
                f"what is on the way to Ray takes no package of {size_mb:.0f} MB: leave files out by .nniignore, or "
                f"set codeFrom: manager ({problem})",
                Place(field="codeFrom"),
            ) from problem

    def describe(self, job: Job) -> Json:
        """The exact request, without what holds the trial's token; the package has no name before it is made."""
        body = convert.request(job, self.config, "_ray_pkg_<hash of code and keeper>.zip", {convert.START: "secret"})
        address = self.config.address.rstrip("/")
        return {"name": job.name, "request": f"POST {address}/api/jobs/", "body": convert.hidden(body)}

    # ------------------------------------------------------------ watching

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        if not handles:
            return []
        try:
            jobs = await self._connected().jobs()
        except (NotFound, ConfigError) as error:
            # A list that is refused says nothing of the jobs.
            raise ServiceError(str(error)) from error
        watches = [self._watch(handle) for handle in handles]
        waits = any((jobs.get(watch.name) or {}).get("status") == convert.PENDING for watch in watches)
        usage = await self._in_use() if waits else {}
        return await self._turns.statuses([(one.name, partial(self._status, one, jobs, usage)) for one in watches])

    def _watch(self, handle: Handle) -> RayWatch:
        name = str(handle["job"])
        if name not in self._watches:
            self._watches[name] = RayWatch(handle, self._supply, self.patience)
        return self._watches[name]

    async def _status(self, watch: RayWatch, jobs: Mapping[str, Mapping[str, Any]], usage: Usage) -> JobStatus:
        """Of one job: UNKNOWN where the others' status must not wait for it."""
        try:
            found = await watch.status(self._connected(), jobs.get(watch.name), usage)
        except (Problem, ConfigError) as problem:
            found = JobStatus(JobState.UNKNOWN, str(problem))
        return replace(found, url=convert.page_url(self.config.address, watch.name))

    async def _in_use(self) -> Usage:
        """What of the cluster is in use; {} where that cannot be told. It is not part of Ray's documented interface."""
        asked, known = self._usage
        if time.monotonic() - asked >= self.patience.usage_pause_s:
            try:
                known = await self._connected().usage()
            except Problem as problem:
                log.debug("what is in use on Ray cannot be told: %s", problem)
                known = {}
            self._usage = (time.monotonic(), known)
        return known

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        watch = self._watch(handle)
        async with self._turns.turn(watch.name):
            return await watch.events(self._connected())

    # ------------------------------------------------------------ the end

    async def cancel(self, handle: Handle) -> None:
        watch = self._watch(handle)
        if watch.end is None:
            await self._connected().stop(watch.name)
            watch.canceled = watch.canceled or time.monotonic()

    async def remove(self, handle: Handle) -> None:
        """Take an ended job from Ray's records; Ray keeps its log on the node."""
        api, name = self._connected(), str(handle["job"])
        if not await self._removed(api, name):
            await api.stop(name)
            raise ServiceError(f"{name} is still being ended on Ray")
        self._watches.pop(name, None)
        look = asyncio.get_running_loop().create_task(self._look_again(api, name))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look_again(self, api: RayApi, name: str) -> None:
        """Remove a job that has come back.

        Ray looks each second how its jobs do. If one has ended and was deleted before it has looked, it takes the job
        for one that was lost, and writes an empty record of it.
        """
        await asyncio.sleep(self.patience.comes_back_s)
        try:
            await self._removed(api, name)
        except NniliteError as error:
            log.debug("whether %s has come back cannot be told: %s", name, error)

    async def _removed(self, api: RayApi, name: str) -> bool:
        """Remove a job that has ended, and what has ended it; False if it has not ended. Raises: Problem."""
        found = await self._soon_ended(api, name)
        if found is not None and found.get("status") not in convert.ENDED:
            return False
        if found is not None:
            await api.delete(name)
        ender = await api.job(convert.ender_name(name))
        if ender is not None and ender.get("status") not in convert.ENDED:
            return False
        if ender is not None:
            await api.delete(convert.ender_name(name))
        return True

    @staticmethod
    async def _soon_ended(api: RayApi, name: str) -> Mapping[str, Any] | None:
        """A job as Ray tells it, which hears of its end a moment after the manager."""
        for _ in range(_LOOKS):
            found = await api.job(name)
            if found is None or found.get("status") in (*convert.ENDED, convert.PENDING):
                break
            await asyncio.sleep(_LOOK_S)
        return found

    def hosts(self) -> list[Host]:
        """The nodes on which trials were last seen to run."""
        running = Counter(watch.host for watch in self._watches.values() if watch.host and watch.end is None)
        return [Host(name, "up", running=number) for name, number in sorted(running.items())]
