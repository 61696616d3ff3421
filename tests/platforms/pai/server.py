"""A stand-in for an OpenPAI cluster: its REST server and log manager, with jobs that really run, here.

It refuses what the real one refuses, and can be told to misbehave. What the published contract does not allow, in
requests or in its own answers, stands in `violations`, which a test ends with by `check`.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from openapi_core.testing import MockRequest

from nnilite.testing.listener import Handler, Listener
from platforms.pai.contract_check import Contract, read_yaml
from platforms.pai.job import PaiJob

PREFIX = "/rest-server"
_LARGEST_BODY = 102_400
_TICK_S = 0.1
_CONTRACT = Contract()
_GPUS = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."


@dataclass
class Answered:
    """An answer."""

    status: int
    content: Any
    kind: str = "application/json; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()


def refused(status: int, code: str, message: str) -> Answered:
    """As the REST server words an error."""
    return Answered(status, {"code": code, "message": message})


@dataclass
class Fault:
    """What is answered instead, as long as `times` is above 0, to requests that fit."""

    method: str
    path: str
    answer: Answered | None
    """None: the connection breaks off in the middle of an answer."""
    times: int = 1


class FakePai:
    """One cluster with one user. `root` is the folder of its containers and logs."""

    user, password, token = "mei", "pass of 'mei'", "application-token-of-mei"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs: dict[str, PaiJob] = {}
        self.tokens = {self.token}
        self.clusters = {
            "default": {"gpu": 8, "cpu": 64, "memory": 400_000},
            "vision": {"gpu": 2, "cpu": 8, "memory": 64_000},
        }
        self.storages = ["data"]
        self.faults: list[Fault] = []
        self.violations: list[str] = []
        self.seen: list[str] = []
        self.hived = False
        self.submissions_left = 10_000
        self.loses_submissions = 0  # take so many jobs, and break the connection instead of answering
        self.launcher = "k8s"
        self.has_logs = True
        self.holds = False
        self.joined_by = "\n"
        self.logins = 0
        self._lock = threading.RLock()
        self._number = 0
        self.listener = Listener(PaiHandler, self)

    @contextlib.contextmanager
    def running(self) -> Iterator[FakePai]:
        self.listener.start()
        over = threading.Event()
        clock = threading.Thread(target=self._take_tick, args=(over,), daemon=True)
        clock.start()
        try:
            yield self
        finally:
            over.set()
            clock.join(10)
            self.listener.stop()
            for job in self.jobs.values():
                job.stop()
        assert not self.violations, self.violations

    @property
    def url(self) -> str:
        return self.listener.url

    def job(self, name: str) -> PaiJob:
        """The job of this name, brought up to now."""
        with self._lock:
            self._advance()
            return self.jobs[name]

    def start_again(self, name: str) -> None:
        """A retry of PAI's own of the job of this name."""
        with self._lock:
            self.jobs[name].start_again()

    def end(self, name: str, code: int) -> None:
        """End the job of this name with an exit code of PAI's own: preempted (-1003), evicted, its node lost."""
        with self._lock:
            self.jobs[name].end(code)

    def stop(self, name: str) -> None:
        """Stop the job of this name, as another user does."""
        with self._lock:
            self.jobs[name].stop()

    def forget(self, name: str) -> None:
        """End the job of this name, and do not know it any more."""
        with self._lock:
            self.jobs.pop(name).stop()

    def count(self, start: str) -> int:
        """How many requests began so: `GET /api/v2/jobs?`."""
        return sum(line.startswith(start) for line in self.seen)

    # ------------------------------------------------------------ time

    def _take_tick(self, over: threading.Event) -> None:
        """Jobs start and end also while nobody asks."""
        while not over.wait(_TICK_S):
            with self._lock:
                self._advance()

    def _advance(self) -> None:
        for job in self.jobs.values():
            job.advance()
        for job in self.jobs.values():
            if job.sub_state in ("AttemptCreationPending", "AttemptPreparing") and job.code is None:
                self._schedule(job)

    def _schedule(self, job: PaiJob) -> None:
        job.sub_state = "AttemptPreparing"
        running = [
            one for one in self.jobs.values() if one.state == "RUNNING" and one.virtual_cluster == job.virtual_cluster
        ]
        used = sum(one.wants("gpu") for one in running)
        if self.holds or used + job.wants("gpu") > self.clusters[job.virtual_cluster]["gpu"]:
            job.events = [_GPUS]
            return
        job.start()

    # ------------------------------------------------------------ requests

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Answered | None:
        """None: break off."""
        parts = urlsplit(target)
        with self._lock:
            path = parts.path.removeprefix(PREFIX)
            self.seen.append(f"{method} {path}" + (f"?{parts.query}" if parts.query else ""))
            fault = next((each for each in self.faults if _fits(each, method, path)), None)
            if fault is not None:
                fault.times -= 1
                if parts.path.startswith(PREFIX):
                    self._check(method, path, parts.query, headers, body, None)
                return fault.answer
            self._advance()
            if not parts.path.startswith(PREFIX):
                return self._file(parts.path, parse_qs(parts.query))
            found = self._api(method, path, dict(parse_qsl(parts.query)), headers, body)
            self._check(method, path, parts.query, headers, body, found)
            if found.status == 202 and method == "POST" and self.loses_submissions:
                self.loses_submissions -= 1
                return None
            return found

    def _check(self, method: str, path: str, query: str, headers: Any, body: bytes, found: Answered | None) -> None:
        """`found` is None where a fault answers: then only the request is looked at."""
        kind = headers.get("Content-Type") or "application/json"
        sent = {"Authorization": headers["Authorization"]} if headers.get("Authorization") else {}
        asked = MockRequest(
            "http://localhost",
            method.lower(),
            path,
            args=dict(parse_qsl(query)),
            headers=sent,
            data=body or None,
            content_type=kind.partition(";")[0],
        )
        try:
            _CONTRACT.check_request(asked, 0 if found is None else found.status)
            if found is not None:
                _CONTRACT.check_answer(asked, found.status, found.kind, found.body)
        except AssertionError as error:
            self.violations.append(str(error))

    def _api(self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes) -> Answered:
        if len(body) > _LARGEST_BODY:
            return Answered(413, {"message": "request entity too large"})
        if (method, path) == ("GET", "/api/v2/info"):
            content = {"name": "PAI RESTful API", "version": "v1.8.0", "launcherType": self.launcher}
            return Answered(200, {**content, "authnMethod": "basic"})
        if (method, path) == ("POST", "/api/v2/authn/basic/login"):
            return self._log_in(dict(parse_qsl(body.decode())))
        if (headers.get("Authorization") or "").removeprefix("Bearer ") not in self.tokens:
            return refused(401, "UnauthorizedUserError", "Your token is invalid.")
        for verb, pattern, action in self._routes():
            match = re.fullmatch(pattern, path)
            if verb == method and match:
                found: Answered = action(query, body, *match.groups())
                return found
        self.violations.append(f"there is no route {method} {path}")
        return refused(404, "NoApiError", f"API {path} is not found.")

    def _routes(self) -> list[tuple[str, str, Callable[..., Answered]]]:
        job = rf"/api/v2/jobs/{self.user}~([\w-]+)"
        task = r"/attempts/(\d+)/taskRoles/(\w+)/taskIndex/(\d+)/attempts/(\d+)/logs"
        return [
            ("GET", "/api/v2/virtual-clusters", self._virtual_clusters),
            ("GET", "/api/v2/storages", self._storages),
            ("GET", "/api/v2/jobs", self._list),
            ("POST", "/api/v2/jobs", self._submit),
            ("GET", job, self._detail),
            ("PUT", f"{job}/executionType", self._execute),
            ("GET", f"{job}/events", self._events),
            ("GET", job + task, self._logs),
        ]

    def _log_in(self, form: dict[str, str]) -> Answered:
        self.logins += 1
        if form.get("username") != self.user:
            return refused(404, "NoUserError", f"User {form.get('username')} is not found.")
        if form.get("password") != self.password:
            return refused(400, "IncorrectPasswordError", "Password is incorrect.")
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return Answered(200, {"token": token, "user": self.user, "admin": False})

    def _virtual_clusters(self, query: Any, body: bytes) -> Answered:
        empty = {"cpu": 0, "memory": 0, "gpu": 0}
        capacity = {"capacity": 100, "usedCapacity": 0, "maxCapacity": 100, "resourcesUsed": empty}
        return Answered(
            200,
            {
                name: {**capacity, "resourcesGuaranteed": total, "resourcesTotal": total}
                for name, total in self.clusters.items()
            },
        )

    def _storages(self, query: Any, body: bytes) -> Answered:
        found = [{"name": name, "share": True, "volumeName": name, "default": True} for name in self.storages]
        return Answered(200, {"storages": found})

    def _list(self, query: dict[str, str], body: bytes) -> Answered:
        jobs = [job for job in self.jobs.values() if query.get("keyword", "") in job.name]
        jobs.sort(key=lambda job: -job.created)
        if query.get("username", self.user) != self.user:
            jobs = []
        return Answered(200, [job.summary() for job in jobs[: int(query.get("limit", 5000))]])

    def _submit(self, query: Any, body: bytes) -> Answered:
        if self.submissions_left <= 0:
            text = b"Too many requests, please try again later."
            return Answered(429, text, "text/html; charset=utf-8", {"Retry-After": "1800"})
        content = read_yaml(body)
        faults = _CONTRACT.faults_of_job(content, self.hived)
        images = {entry["name"] for entry in content.get("prerequisites") or []}
        for name, role in content["taskRoles"].items():
            if role["dockerImage"] not in images:
                faults.append(f"Prerequisite {role['dockerImage']} of {name} does not exist.")
        if faults:
            self.violations.append(f"the server refuses this job: {faults}")
            return refused(400, "InvalidProtocolError", json.dumps(faults))
        if content["name"] in self.jobs:
            return refused(409, "ConflictJobError", f"Job {self.user}~{content['name']} already exists.")
        self._number += 1
        job = PaiJob(content, self.user, self.root / f"job {self._number}", self.joined_by)
        refusal = self._refusal(job)
        if refusal is not None:
            return refusal
        self.submissions_left -= 1
        self.jobs[job.name] = job
        return Answered(202, {"message": f"Update job {job.name} for user {self.user} successfully."})

    def _refusal(self, job: PaiJob) -> Answered | None:
        """Of a job that is well-formed."""
        if job.virtual_cluster not in self.clusters:
            return refused(400, "NoVirtualClusterError", f"Virtual cluster {job.virtual_cluster} is not found.")
        most = self.clusters[job.virtual_cluster]["gpu"]
        if self.hived and job.wants("gpu") > most:
            message = f"Hived error: Job requests {job.wants('gpu')} SKUs, exceeds maximum {most} SKUs in VC"
            return refused(400, "InvalidProtocolError", message)
        for entry in (job.content.get("extras") or {}).get("storages") or []:
            if entry.get("name") not in self.storages:
                return refused(403, "ForbiddenUserError", f"User {self.user} is not allowed to use {entry}.")
        return None

    def _found(self, name: str) -> PaiJob | Answered:
        return self.jobs.get(name) or refused(404, "NoJobError", f"Job {self.user}~{name} is not found.")

    def _detail(self, query: Any, body: bytes, name: str) -> Answered:
        job = self._found(name)
        return job if isinstance(job, Answered) else Answered(200, job.detail())

    def _execute(self, query: Any, body: bytes, name: str) -> Answered:
        job = self._found(name)
        if isinstance(job, Answered):
            return job
        if json.loads(body)["value"] == "STOP":
            job.stop()
        return Answered(202, {"message": f"execute job {name} successfully"})

    def _events(self, query: Any, body: bytes, name: str) -> Answered:
        job = self._found(name)
        if isinstance(job, Answered):
            return job
        names = {"uid": "u", "frameworkName": "f", "podUid": "p", "taskroleName": "r", "taskName": "t", "taskIndex": 0}
        times = {"firstTimestamp": "2020-09-29T09:46:42.000Z", "lastTimestamp": "2020-09-29T09:55:53.000Z", "count": 1}
        source = {"sourceComponent": "default-scheduler", "sourceHost": None}
        found = [
            {**names, "type": "Warning", "reason": "FailedScheduling", "message": text, **times, **source}
            for text in job.events
        ]
        return Answered(200, {"totalCount": len(found), "data": found})

    def _logs(self, query: Any, body: bytes, name: str, attempt: str, role: str, index: str, task: str) -> Answered:
        job = self._found(name)
        if isinstance(job, Answered):
            return job
        if not self.has_logs or not any(one.role == role and one.index == int(index) for one in job.tasks):
            return refused(404, "NoTaskLogError", "Log of task is not found.")
        pod = {"username": self.user, "framework-name": job.name, "pod-uid": f"{role}-{index}", "taskrole": role}
        words = urlencode({**pod, "token": "secret-of-logs"})
        place = "/log-manager/node-1:8380/api/v1/logs/user.pai"
        uris = [{"name": one, "uri": f"{place}.{one}?{words}"} for one in ("stderr", "all", "stdout")]
        return Answered(200, {"locations": uris})

    def _file(self, path: str, query: dict[str, list[str]]) -> Answered:
        """What the log manager of a node has. Its address must be asked for exactly as it was told."""
        given = {name: values[0] for name, values in query.items()}
        match = re.fullmatch(r"/log-manager/node-1:8380/api/v1/logs/user\.pai\.(\w+)", path)
        if match is None or given.keys() != {"username", "framework-name", "pod-uid", "taskrole", "token"}:
            self.violations.append(f"nobody was told of the log {path}?{urlencode(given)}")
            return Answered(404, b"not found", "text/plain")
        if given["token"] != "secret-of-logs":
            return Answered(401, b"wrong token", "text/plain")
        for one in self.jobs[given["framework-name"]].tasks:
            if f"{one.role}-{one.index}" == given["pod-uid"] and one.log(match[1]).exists():
                return Answered(200, one.log(match[1]).read_bytes(), "text/plain")
        return Answered(404, b"not found", "text/plain")


def _fits(fault: Fault, method: str, path: str) -> bool:
    return fault.times > 0 and method == fault.method and re.fullmatch(fault.path, path) is not None


class PaiHandler(Handler):
    owner: FakePai

    def do_GET(self) -> None:
        found = self.owner.answer(self.command, self.path, self.headers, self.body())
        if found is None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'[{"half": ')
            self.close_connection = True
            self.connection.shutdown(2)
            return
        headers = {name.replace("-", "_"): value for name, value in found.headers.items()}
        self.send(found.status, found.kind, found.body, **headers)

    do_POST = do_PUT = do_DELETE = do_GET
