"""The interface of the stand-in. It can be told to misbehave: see the attributes of `DlcServer`."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from alibabacloud_pai_dlc20201203 import models

from nnilite.testing.listener import Handler, Listener
from platforms.dlc import shapes, signature
from platforms.dlc.jobs import ENDED, StandInDlc
from waiting import pause

KEY = ("LTAI5tStandIn", "the-secret-of-the-access-key")
WORKSPACE = "12345"
NAS = "d-nas1234"
_SPECS = [
    {"InstanceType": "ecs.g6.large", "GPU": 0, "CPU": 2, "Memory": 8},
    {"InstanceType": "ecs.gn6e-c12g1.3xlarge", "GPU": 1, "GPUType": "V100", "CPU": 12, "Memory": 92},
]
# All parameters of CreateJob together. Source: its page in Alibaba's reference of the API of 2020-12-03.
_LARGEST_BYTES = 65_536
_NAME = re.compile(r"[\w.-]{1,256}", re.ASCII)

Answer = tuple[int, Any]
Step = Callable[["_Handler"], None]


def refuse(status: int, code: str = "InternalError", message: str = "not today", **headers: str) -> Step:
    """A step that answers so, whatever was asked."""
    body = json.dumps({"Code": code, "Message": message, "RequestId": "R-1"}).encode()
    return lambda handler: handler.send(status, "application/json", body, **headers)


def hang(until: threading.Event) -> Step:
    """A step that answers nothing before this."""

    def step(handler: _Handler) -> None:
        until.wait(60)
        handler.hang_up()

    return step


class DlcServer:
    """Listens at `url` from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self.dlc = StandInDlc(folder)
        self.seen: list[str] = []  # method and target of each request
        self.broken: list[str] = []  # requests outside of the contract
        self.steps: list[Step] = []  # each takes one request in the place of DLC
        self.steps_for = ""  # part of the method and target that they are for
        self.loses_submissions = 0  # take so many jobs, and break the connection in place of an answer
        self.lists_late_s = 0.0  # so long a new job is in no list
        self.slow_s = 0.0
        self.key = KEY
        self.most_lines: int | None = None  # of a log at once, whatever was asked for
        self.keeps_lines = "first"  # of more; or last
        self.log_late_s = 0.0  # so long a line is in no log
        self.listener = Listener(_Handler, self)

    @property
    def url(self) -> str:
        return self.listener.url

    def __enter__(self) -> DlcServer:
        self.dlc.start()
        self.listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.stop()
        self.dlc.stop()

    def asked(self, part: str) -> int:
        """How many requests had this in their method and target."""
        return sum(part in line for line in self.seen)

    def step(self, line: str) -> Step | None:
        """What happens to a request in the place of DLC."""
        return self.steps.pop(0) if self.steps and self.steps_for in line else None

    # ------------------------------------------------------------ the interface

    def create_job(self, query: dict[str, str], body: Any) -> Answer:
        for name in ("DisplayName", "JobType", "JobSpecs", "UserCommand"):
            if not body.get(name):
                return _refusal(400, "MissingParameter", f"{name} is required")
        if not _NAME.fullmatch(body["DisplayName"]):
            return _refusal(400, "InvalidParameter", "DisplayName")
        if body.get("WorkspaceId", WORKSPACE) != WORKSPACE:
            return _refusal(404, "WorkspaceNotFound", f"the workspace {body['WorkspaceId']} does not exist")
        for source in body.get("DataSources", []):
            if source["DataSourceId"] != NAS:
                return _refusal(404, "DatasetNotFound", f"the data set {source['DataSourceId']} does not exist")
        job = self.dlc.create(body)
        job.listed_from = time.time() + self.lists_late_s
        return 200, {"JobId": job.id, "RequestId": "R-1"}

    def list_jobs(self, query: dict[str, str], body: Any) -> Answer:
        if query.get("WorkspaceId", WORKSPACE) != WORKSPACE:
            return _refusal(404, "WorkspaceNotFound", f"the workspace {query['WorkspaceId']} does not exist")
        since = _seconds(query.get("StartTime")) or time.time() - 7 * 86400
        words = query.get("DisplayName", "").lower()
        found = [
            job
            for job in self.dlc.jobs.values()
            if words in job.name.lower() and int(job.created) >= since and time.time() >= job.listed_from
        ]
        found.sort(key=lambda job: (job.created, job.id), reverse=query.get("Order", "desc") == "desc")
        number, size = int(query.get("PageNumber", "1")), int(query.get("PageSize", "10"))
        page = found[(number - 1) * size : number * size]
        return 200, {"Jobs": [job.shown(False) for job in page], "TotalCount": len(found), "RequestId": "R-1"}

    def get_job(self, query: dict[str, str], body: Any, job_id: str) -> Answer:
        job = self.dlc.jobs.get(job_id)
        if job is None:
            return _refusal(404, "JobNotFound", f"the job {job_id} does not exist")
        return 200, {**job.shown(query.get("NeedDetail", "true").lower() == "true"), "RequestId": "R-1"}

    def stop_job(self, query: dict[str, str], body: Any, job_id: str) -> Answer:
        job = self.dlc.jobs.get(job_id)
        if job is None:
            return _refusal(404, "JobNotFound", f"the job {job_id} does not exist")
        if job.state in ENDED:
            return _refusal(400, "InvalidJobStatus", f"the job is {job.state}")
        self.dlc.ask_to_stop(job)
        return 200, {"JobId": job_id, "RequestId": "R-1"}

    def get_pod_logs(self, query: dict[str, str], body: Any, job_id: str, pod_id: str) -> Answer:
        job = self.dlc.jobs.get(job_id)
        pod = next((pod for pod in job.pods if pod.id == pod_id), None) if job is not None else None
        if pod is None or query.get("PodUid", pod.uid) != pod.uid:
            return _refusal(404, "PodNotFound", f"the pod {pod_id} does not exist")
        begin = _seconds(query.get("StartTime")) or 0.0
        end = _seconds(query.get("EndTime")) or time.time()
        until = min(end, time.time() - self.log_late_s)
        lines = [line for at, line in list(pod.lines) if begin <= at <= until]
        most = min(int(query.get("MaxLines", "2000")), self.most_lines or 2000)
        kept = lines[:most] if self.keeps_lines == "first" else lines[-most:]
        return 200, {"JobId": job_id, "PodId": pod_id, "PodUid": pod.uid, "Logs": kept, "RequestId": "R-1"}

    def list_specs(self, query: dict[str, str], body: Any) -> Answer:
        wanted = query.get("InstanceTypes", "").split(",")
        found = [spec for spec in _SPECS if spec["InstanceType"] in wanted]
        return 200, {"EcsSpecs": found, "TotalCount": len(found), "RequestId": "R-1"}


def _refusal(status: int, code: str, message: str) -> Answer:
    return status, {"Code": code, "Message": message, "RequestId": "R-1"}


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


_ROUTES = [
    (re.compile(f"{method} {path}"), action, name, model)
    for method, path, action, name, model in (
        ("POST", r"/api/v1/jobs", "CreateJob", "create_job", models.CreateJobRequest),
        ("GET", r"/api/v1/jobs", "ListJobs", "list_jobs", models.ListJobsRequest),
        ("GET", r"/api/v1/jobs/([^/]+)", "GetJob", "get_job", models.GetJobRequest),
        ("POST", r"/api/v1/jobs/([^/]+)/stop", "StopJob", "stop_job", None),
        ("GET", r"/api/v1/jobs/([^/]+)/pods/([^/]+)/logs", "GetPodLogs", "get_pod_logs", models.GetPodLogsRequest),
        ("GET", r"/api/v1/ecsspecs", "ListEcsSpecs", "list_specs", models.ListEcsSpecsRequest),
    )
]


class _Handler(Handler):
    owner: DlcServer

    def do_GET(self) -> None:
        data, line = self.body(), f"{self.command} {self.path}"
        self.owner.seen.append(line)
        if self.owner.slow_s:
            pause(self.owner.slow_s, "an answer of a slow DLC")
        step = self.owner.step(line)
        if step is not None:
            step(self)
            return
        wrong = signature.broken(self.command, self.path, dict(self.headers.items()), data, self.owner.key)
        if wrong:
            self._tell(_refusal(400 if wrong[0] != "InvalidAccessKeyId.NotFound" else 404, *wrong))
            return
        answer = self._answer(data)
        if self.command == "POST" and self.path == "/api/v1/jobs" and self.owner.loses_submissions:
            self.owner.loses_submissions -= 1
            self.hang_up()
            return
        self._tell(answer)

    do_POST = do_PUT = do_DELETE = do_GET

    def hang_up(self) -> None:
        """Break the connection in place of an answer."""
        self.close_connection = True
        self.connection.shutdown(2)

    def _tell(self, answer: Answer) -> None:
        self.send(answer[0], "application/json;charset=utf-8", json.dumps(answer[1]).encode())

    def _answer(self, data: bytes) -> Answer:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        for pattern, action, name, model in _ROUTES:
            match = pattern.fullmatch(f"{self.command} {parts.path}")
            if match is None:
                continue
            if len(data) > _LARGEST_BYTES:
                return _refusal(400, "InvalidParameter", f"the parameters are longer than {_LARGEST_BYTES} bytes")
            body = json.loads(data) if data else {}
            wrong = self._wrong(action, model, query, body)
            if wrong:
                self.owner.broken.append(f"{self.command} {self.path}: {wrong}")
                return _refusal(400, "InvalidParameter", wrong)
            with self.owner.dlc.lock:
                return getattr(self.owner, name)(query, body, *(unquote(word) for word in match.groups()))
        self.owner.broken.append(f"the stand-in has no {self.command} {self.path}")
        return _refusal(404, "InvalidAction.NotFound", "no such operation")

    def _wrong(self, action: str, model: Any, query: dict[str, str], body: Any) -> str:
        if (self.headers["x-acs-action"], self.headers["x-acs-version"]) != (action, "2020-12-03"):
            return f"{action} is named {self.headers['x-acs-action']} of {self.headers['x-acs-version']}"
        if self.command == "POST":
            return "a query" if query else (shapes.broken(model, body) if model else "")
        return "a body" if body else shapes.broken_query(model, query)
