"""Make the calls to DLC that are needed, by Alibaba's own client, and parse what is used of the answers."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from nnilite.platform_http import Outage, hide
from nnilite.records import Json
from nnilite_dlc._config import DlcConfig
from nnilite_dlc._sdk_calls import DlcCalls

if TYPE_CHECKING:
    from alibabacloud_pai_dlc20201203.client import Client

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_LIMIT_MS = 10_000
_LAST_TO_SPEAK_MS = 1000
_PAGE_JOBS = 100
_MOST_PAGES = 20
_LISTED_DAYS = 30
"""DLC lists the jobs of 7 days by default."""
MOST_LINES = 2000
"""Lines of a log in one answer: DLC's own default."""


@dataclass(frozen=True)
class DlcPod:
    """One pod of a job."""

    id: str
    uid: str
    role: str = ""
    state: str = ""
    evicted: bool = False
    started: float | None = None
    node: str = ""


@dataclass(frozen=True)
class DlcJob:
    """A job in DLC's answers. Lists do not show pods."""

    id: str
    name: str
    status: str
    reason: str = ""
    code: str = ""
    """ReasonCode and SubStatus: undocumented words of DLC."""
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    restarts: int = 0
    pods: tuple[DlcPod, ...] = field(default=())


@dataclass(frozen=True)
class LogWindow:
    """Lines of a log, and DLC's own time of the answer in seconds since the epoch."""

    lines: Sequence[str]
    time: float


class DlcApi:
    """All tries of a call together take `patience_s` at most. All calls raise Problem."""

    def __init__(self, config: DlcConfig, patience_s: float) -> None:
        self._key = config.key()
        for secret in filter(None, (self._key.secret, self._key.token)):
            hide(secret)
        self._config = config
        self._calls = DlcCalls(float(config.request_timeout))
        self._patience_s = patience_s
        self._making = threading.Lock()
        self._made: Client | None = None

    def _client(self) -> Client:
        """Return the client. Blocks, since it imports Alibaba's library."""
        with self._making:
            if self._made is None:
                from alibabacloud_pai_dlc20201203.client import Client
                from alibabacloud_tea_openapi.models import Config

                config = self._config
                self._made = Client(
                    Config(
                        access_key_id=str(self._key.id),
                        access_key_secret=str(self._key.secret),
                        security_token=str(self._key.token) or None,
                        region_id=config.region,
                        ca=str(config.ca_cert) if config.ca_cert else None,
                        **address(config),
                    )
                )
            return self._made

    def _make_runtime(self) -> Any:
        from darabonba.runtime import RuntimeOptions

        # A little longer than each try may take, so that it is always `LibraryCalls` that says what was not answered.
        limit_ms = int(float(self._config.request_timeout) * 1000) + _LAST_TO_SPEAK_MS
        # Nothing is sent later by a thread that no caller waits for.
        return RuntimeOptions(
            autoretry=False,
            max_attempts=1,
            connect_timeout=min(limit_ms, _CONNECT_LIMIT_MS),
            read_timeout=limit_ms,
            ignore_ssl=self._config.insecure_skip_tls_verify,
        )

    async def _call(self, what: str, work: Callable[[Client, Any], T], patience_s: float = math.inf) -> T:
        """Make a call, for all of whose tries there are never more than the seconds of the service."""
        patience_s = min(patience_s, self._patience_s)
        return await self._calls.run(what, lambda: work(self._client(), self._make_runtime()), patience_s=patience_s)

    async def close(self) -> None:
        """Close nothing: each call has a connection of its own."""

    # ------------------------------------------------------------ jobs

    async def create(self, fields: Mapping[str, Json]) -> str:
        """Make a job from the fields of a CreateJobRequest as JSON; return its id. There is one try only."""

        def work(client: Client, runtime: Any) -> str:
            from alibabacloud_pai_dlc20201203.models import CreateJobRequest

            answer = client.create_job_with_options(CreateJobRequest().from_map(dict(fields)), {}, runtime)
            return _check_required(answer.body.job_id, "the new job's id")

        return await self._call(f"the job {fields['DisplayName']}", work, patience_s=0)

    async def jobs(self, name: str, wanted: frozenset[str] = frozenset()) -> list[DlcJob]:
        """Return jobs whose names contain `name`, the newest first; stop asking once all of `wanted` are found.

        DLC ignores case in names. With `wanted`, jobs that make no sense are left out: each is then asked for by
        itself. Without it, the one that is looked for may be among them. Raises: Problem.
        """
        jobs: list[DlcJob] = []
        since = datetime.now(timezone.utc) - timedelta(days=_LISTED_DAYS)
        for number in range(1, _MOST_PAGES + 1):
            page, total = await self._page(name, number, since, _readable if wanted else _all)
            jobs += page
            complete = wanted and wanted <= {job.id for job in jobs}
            if not page or len(jobs) >= total or complete:
                break
        return jobs

    async def _page(
        self, name: str, number: int, since: datetime, parse: Callable[[list[Any]], list[DlcJob]]
    ) -> tuple[list[DlcJob], int]:
        def work(client: Client, runtime: Any) -> tuple[list[DlcJob], int]:
            from alibabacloud_pai_dlc20201203.models import ListJobsRequest

            request = ListJobsRequest(
                display_name=name,
                workspace_id=self._config.workspace_id,
                show_own=True,
                start_time=moment(since),
                sort_by="GmtCreateTime",
                order="desc",
                page_number=number,
                page_size=_PAGE_JOBS,
            )
            body = client.list_jobs_with_options(request, {}, runtime).body
            total = body.total_count
            if not isinstance(total, int):
                raise Outage("DLC's answer does not hold the number of jobs")
            return parse(body.jobs or []), total

        return await self._call(f"the jobs named {name}", work)

    async def job(self, job_id: str) -> DlcJob:
        """Return one job, with its pods. Raises: Missing too."""

        def work(client: Client, runtime: Any) -> DlcJob:
            from alibabacloud_pai_dlc20201203.models import GetJobRequest

            return _job(client.get_job_with_options(job_id, GetJobRequest(need_detail=True), {}, runtime).body)

        return await self._call(f"job {job_id}", work)

    async def stop(self, job_id: str) -> None:
        """Ask for a job's end; its status shows when that has come."""
        await self._call(
            f"the end of job {job_id}",
            lambda client, runtime: client.stop_job_with_options(job_id, {}, runtime),
        )

    async def log(self, job_id: str, pod: DlcPod, begin: float | None, end: float | None) -> LogWindow:
        """Return what a pod has printed between two times, in seconds since the epoch.

        None: from its start, or until now.
        """

        def work(client: Client, runtime: Any) -> LogWindow:
            from alibabacloud_pai_dlc20201203.models import GetPodLogsRequest

            request = GetPodLogsRequest(
                pod_uid=pod.uid or None,
                start_time=None if begin is None else _moment(begin),
                end_time=None if end is None else _moment(end),
                max_lines=MOST_LINES,
            )
            answer = client.get_pod_logs_with_options(job_id, pod.id, request, {}, runtime)
            lines = [line for given in answer.body.logs or [] for line in str(given).splitlines()]
            return LogWindow(lines, _read_date(answer.headers))

        return await self._call(f"the log of job {job_id}", work, patience_s=20)

    # ------------------------------------------------------------ what there is

    async def gpus_of(self, instance_type: str) -> int | None:
        """Return the GPUs of an instance type; None if DLC does not list it."""

        def work(client: Client, runtime: Any) -> int | None:
            from alibabacloud_pai_dlc20201203.models import ListEcsSpecsRequest

            request = ListEcsSpecsRequest(instance_types=instance_type, page_number=1, page_size=100)
            found = client.list_ecs_specs_with_options(request, {}, runtime).body.ecs_specs or []
            return next((int(one.gpu or 0) for one in found if one.instance_type == instance_type), None)

        return await self._call(f"the instance type {instance_type}", work)


def address(config: DlcConfig) -> dict[str, str]:
    """Return DLC's address as its client wants it; {} where the client knows it by the region."""
    if config.endpoint:
        scheme, _, host = config.endpoint.rpartition("://")
        return {"endpoint": host.strip("/"), "protocol": scheme or "https"}
    return {"endpoint": "pai-dlc-share.aliyuncs.com"} if config.region == "share" else {}


def body_of(fields: Mapping[str, Json]) -> Json:
    """Return the request for a job, as JSON. Imports Alibaba's library, which takes a second. Raises: ValueError."""
    from alibabacloud_pai_dlc20201203.models import CreateJobRequest

    request = CreateJobRequest().from_map(dict(fields))
    request.validate()
    return request.to_map()


def moment(time: datetime) -> str:
    """Return a time as DLC writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(seconds: float) -> str:
    return moment(datetime.fromtimestamp(seconds, timezone.utc))


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _read_date(headers: Mapping[str, str] | None) -> float:
    try:
        return parsedate_to_datetime((headers or {}).get("date", "")).timestamp()
    except (TypeError, ValueError):
        return datetime.now(timezone.utc).timestamp()


def _check_required(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise Outage(f"DLC's answer does not hold {what}")
    return value


def _job(job: Any) -> DlcJob:
    """Parse a job. Raises: Outage."""
    words = (job.reason_code, job.sub_status)
    return DlcJob(
        id=_check_required(job.job_id, "a job's id"),
        name=str(job.display_name or ""),
        status=_check_required(job.status, "a job's status"),
        reason=" ".join(str(job.reason_message or "").split()),
        code=" ".join(str(word) for word in words if word),
        created=_seconds(job.gmt_create_time),
        started=_seconds(job.gmt_running_time),
        ended=_seconds(job.gmt_finish_time),
        restarts=_number(job.restart_times),
        pods=tuple(_pod(one) for one in job.pods or [] if one.pod_id),
    )


def _all(jobs: list[Any]) -> list[DlcJob]:
    return [_job(one) for one in jobs]


def _readable(items: list[Any]) -> list[DlcJob]:
    jobs = []
    for one in items:
        try:
            jobs.append(_job(one))
        except (Outage, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            log.debug("DLC lists a job that makes no sense: %s", error)
    return jobs


def _number(text: object) -> int:
    """Parse RestartTimes: "1", or "1/3" where there is a limit."""
    first = str(text or "0").partition("/")[0].strip()
    return int(first) if first.isdecimal() else 0


def _pod(pod: Any) -> DlcPod:
    return DlcPod(
        id=str(pod.pod_id),
        uid=str(pod.pod_uid or ""),
        role=str(pod.type or ""),
        state=str(pod.status or ""),
        evicted=str(pod.sub_status or "").lower() == "evicted",
        started=_seconds(pod.gmt_start_time),
        node=str(pod.node_name or ""),
    )
