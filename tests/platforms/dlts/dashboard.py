"""The dashboard of the stand-in. It can be told to misbehave: see the attributes of `Dashboard`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from nnilite.testing.listener import Handler, Listener
from platforms.dlts.cluster import EMAIL, TEAM, DltsCluster, log_page, quota_json
from platforms.dlts.contract import Contract

PASSWORD = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
CLUSTERS = (".default", "Azure-EastUS-P40")
_LARGEST_BODY = 1024 * 1024
_CONTRACT = Contract()
_OPERATIONS = {"killing": "kill", "pausing": "pause", "queued": "resume", "approved": "approve"}

Answer = tuple[int, Any]
Step = Callable[["_Handler"], None]


def answer(status: int, content: bytes = b"", **headers: str) -> Step:
    """A step that answers so, whatever was asked."""
    return lambda handler: handler.send(status, "text/plain", content, **headers)


class Dashboard:
    """Listens at `url` from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self.cluster = DltsCluster(folder)
        self.seen: list[tuple[str, str, dict[str, str]]] = []  # method, path and query of each request
        self.broken: list[str] = []  # requests and answers outside of the contract
        self.steps: list[Step] = []  # each takes one request in the place of the dashboard
        self.steps_for = ""  # part of the paths that they are for
        self.loses_submissions = 0  # take so many jobs, and break the connection in place of an answer
        self.password = PASSWORD
        self.log_kind = "azure"  # or legacy, elastic, none
        self.forgets = False  # its database fails: jobs are not found
        self.opens_after = 1  # how often an endpoint is pending
        self.endpoints: dict[str, list[dict[str, Any]]] = {}
        self.listener = Listener(_Handler, self)

    @property
    def url(self) -> str:
        return self.listener.url

    def __enter__(self) -> Dashboard:
        self.cluster.start()
        self.listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.stop()
        self.cluster.stop()

    def asked(self, part: str) -> int:
        """How many requests had this in their method and path."""
        return sum(part in f"{method} {path}" for method, path, _ in self.seen)

    def job(self, name: str) -> Any:
        """The job of that name."""
        [found] = [job for job in self.cluster.jobs.values() if job.params["jobName"] == name]
        return found

    def step(self, path: str) -> Step | None:
        """What happens to a request in the dashboard's place."""
        return self.steps.pop(0) if self.steps and self.steps_for in path else None

    # ------------------------------------------------------------ the interface

    def get_team(self, query: dict[str, str], body: Any, team: str, cluster: str) -> Answer:
        if cluster not in CLUSTERS or team != TEAM:
            return 404, "Team is not found" if team != TEAM else "Cluster is not found"
        return 200, quota_json(self.cluster)

    def get_jobs(self, query: dict[str, str], body: Any, cluster: str, team: str) -> Answer:
        if self.forgets:
            return 200, []
        jobs = [job.shown() for job in self.cluster.jobs.values() if job.params["vcName"] == team]
        ended = [job for job in jobs if job["jobStatus"] in ("finished", "failed", "killed", "error")]
        left_out = [job["jobId"] for job in ended[: max(0, len(ended) - int(query.get("limit") or 10))]]
        return 200, [job for job in jobs if job["jobId"] not in left_out]

    def post_jobs(self, query: dict[str, str], body: Any, cluster: str) -> Answer:
        return 200, json.dumps(self.cluster.submit(body))  # labeled as plain text, as Koa does with a string

    def get_job(self, query: dict[str, str], body: Any, cluster: str, job_id: str) -> Answer:
        job = None if self.forgets else self.cluster.jobs.get(job_id)
        return 200, job.shown() if job is not None else {}

    def get_status(self, query: dict[str, str], body: Any, cluster: str, job_id: str) -> Answer:
        job = self.cluster.jobs.get(job_id)
        if job is None:
            return 404, "unknown job"
        return 200, {"status": job.state, **({"message": job.error} if job.error else {})}

    def put_status(self, query: dict[str, str], body: Any, cluster: str, job_id: str) -> Answer:
        return 200, json.dumps({"result": self.cluster.operate(job_id, _OPERATIONS[body["status"]])})

    def get_log(self, query: dict[str, str], body: Any, cluster: str, job_id: str) -> Answer:
        job = self.cluster.jobs.get(job_id)
        text = job.log() if job is not None else None
        if text is None or self.log_kind == "none":
            return 404, "Not Found"
        return 200, log_page(text, self.log_kind, query.get("cursor"), job_id)

    def get_endpoints(self, query: dict[str, str], body: Any, cluster: str, job_id: str) -> Answer:
        found = self.endpoints.setdefault(job_id, [])
        if self.opens_after <= 0:
            for entry in found:
                entry.update(status="running", nodeName="node7", domain="dlts.example.com", port=entry["podPort"])
        self.opens_after -= bool(found)
        return 200, found

    def post_endpoints(self, query: dict[str, str], body: Any, cluster: str, job_id: str) -> Answer:
        for entry in body["endpoints"]:
            self.endpoints.setdefault(job_id, []).append({"id": f"e-{job_id}", "status": "pending", **entry})
        return 200, {}

    def login_is_right(self, query: dict[str, str]) -> bool:
        """Whether who asks may ask."""
        return query.get("email") == EMAIL and query.get("password") == self.password


_JOB = r"/api/clusters/([^/]+)/jobs/([^/]+)"
_ROUTES = [
    (re.compile(f"{method} {path}"), name)
    for method, path, name in (
        ("GET", r"/api/teams/([^/]+)/clusters/([^/]+)", "get_team"),
        ("GET", r"/api/v2/clusters/([^/]+)/teams/([^/]+)/jobs", "get_jobs"),
        ("GET", r"/api/v2/clusters/([^/]+)/jobs/([^/]+)", "get_job"),
        ("POST", r"/api/clusters/([^/]+)/jobs", "post_jobs"),
        ("GET", f"{_JOB}/status", "get_status"),
        ("PUT", f"{_JOB}/status", "put_status"),
        ("GET", f"{_JOB}/log", "get_log"),
        ("GET", f"{_JOB}/endpoints", "get_endpoints"),
        ("POST", f"{_JOB}/endpoints", "post_endpoints"),
    )
]


class _Handler(Handler):
    owner: Dashboard

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query, data = dict(parse_qsl(parts.query, keep_blank_values=True)), self.body()
        self.owner.seen.append((self.command, parts.path, query))
        step = self.owner.step(parts.path)
        if step is not None:
            step(self)
            return
        if len(data) > _LARGEST_BODY:
            self.send(413, "text/plain", b"request entity too large")
            return
        broken = _CONTRACT.broken_by_request(self.command, parts.path, query, data)
        if broken:
            self.owner.broken.append(broken)
            self.send(400, "text/plain", broken.encode())
            return
        status, content = self._answer(parts.path, query, data)
        if self.command == "POST" and self.owner.loses_submissions:
            self.owner.loses_submissions -= 1
            self.close_connection = True
            self.connection.shutdown(2)
            return
        kind = "text/plain" if isinstance(content, str) else "application/json"
        sent = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        broken = _CONTRACT.broken_by_answer(self.command, parts.path, status, kind, sent)
        self.owner.broken += [broken] if broken else []
        self.send(status, f"{kind}; charset=utf-8", sent)

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self, path: str, query: dict[str, str], data: bytes) -> Answer:
        if not self.owner.login_is_right(query):
            return 403, "Invalid token"
        for pattern, name in _ROUTES:
            match = pattern.fullmatch(f"{self.command} {path}")
            if match:
                words = [unquote(word) for word in match.groups()]
                with self.owner.cluster.lock:
                    body = json.loads(data) if data else None
                    return getattr(self.owner, name)(query, body, *words)
        self.owner.broken.append(f"the stand-in has no {self.command} {path}")
        return 404, "Not Found"
