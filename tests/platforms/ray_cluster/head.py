"""A stand-in for the head node of Ray, which can be told to misbehave: see the attributes of `RayHead`.

It answers as Ray 2.60 does; `shapes` compares its answers with those of a real one. Jobs really run (see `jobs`).
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nnilite.testing.listener import Handler, Listener
from platforms.ray_cluster.jobs import FakeJob, FakeNode
from waiting import pause

LIMIT_BYTES = 100 * 1024**2
_TURN_S = 0.02
_TRACE = 'Traceback (most recent call last):\n  File "/opt/ray/job_head.py", line 500, in a_function\n    a = call()\n'
_FIELDS = {
    "entrypoint": str,
    "submission_id": str,
    "job_id": str,
    "runtime_env": dict,
    "metadata": dict,
    "entrypoint_num_cpus": (int, float),
    "entrypoint_num_gpus": (int, float),
    "entrypoint_memory": int,
    "entrypoint_resources": dict,
}

Step = Callable[["_Handler"], None]
RayAnswer = tuple[int, Any]


def answer(status: int, content: bytes = b"", **headers: str) -> Step:
    """A step that answers so, whatever was asked."""
    return lambda handler: handler.send(status, "text/plain; charset=utf-8", content, **headers)


def cut(handler: _Handler) -> None:
    """A step that breaks off in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'[{"submission_id": "nni-')
    handler.close_connection = True


def slow(seconds: float) -> Step:
    """A step that answers late."""

    def step(handler: _Handler) -> None:
        pause(seconds, "a head node that is slow")
        handler.send(200, "application/json", b"[]")

    return step


class RayHead:
    """Listens at `url` from `start` to `stop`. Use as a context manager."""

    def __init__(self, folder: Path, cpus: float = 8) -> None:
        self.folder = folder
        self.version = "2.60.0"
        self.token = ""  # none: it asks for none
        self.headers: dict[str, str] = {}  # what a proxy in front of it wants
        self.session = "session_1"
        self.nodes = [self._node("10.0.0.1", {"CPU": cpus, "memory": 8.0 * 1024**3})]
        self.jobs: dict[str, FakeJob] = {}
        self.packages: dict[str, bytes] = {}
        self.seen: list[str] = []  # method and path of each request
        self.broken: list[str] = []  # requests that Ray would not understand
        self.steps: list[Step] = []  # each takes one request in the place of the head node
        self.steps_for = ""  # part of the method and paths that they are for
        self.loses_submissions = 0  # take so many jobs, and break the connection in place of an answer
        self.start_timeout_s: float | None = None  # jobs that wait for longer have failed
        self.usage_works = True
        self.brings_back_s = 0.0  # a job that is deleted so soon after its end comes back
        self.listener = Listener(_Handler, self)
        self.lock = threading.RLock()
        self._ghosts: list[tuple[float, str]] = []  # jobs that come back, and when
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ray", daemon=True)

    @property
    def url(self) -> str:
        return self.listener.url

    def __enter__(self) -> RayHead:
        self.listener.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.stop()
        self._stopping.set()
        self._thread.join(10)
        for job in self.jobs.values():
            job.kill()

    # ------------------------------------------------------------ what happens to clusters

    def add_node(self, name: str, **resources: float) -> FakeNode:
        """Another node joins."""
        self.nodes.append(self._node(name, {"memory": 1024.0**3, **resources}))
        return self.nodes[-1]

    def _node(self, name: str, resources: dict[str, float]) -> FakeNode:
        folder = self.folder / name
        folder.mkdir(parents=True)
        return FakeNode(name, folder, resources)

    def kill_node(self, node: FakeNode) -> None:
        """The node is gone, and its jobs with it."""
        said = "The actor is dead because its node has died. Node Id: " + "5e" * 28
        with self.lock:
            node.alive = False
            for job in [job for job in self.jobs.values() if job.node is node and not job.over]:
                job.kill()
                self._died(job, said)

    def kill_supervisor(self, job: FakeJob) -> None:
        """As Ray does on a node that is short of memory."""
        with self.lock:
            job.kill()
            self._died(job, "Task was killed due to the node running low on memory.")

    def restart(self) -> None:
        """Another cluster under the same address, which knows nothing of the one before."""
        with self.lock:
            for job in self.jobs.values():
                job.kill()
            self.jobs, self.packages, self.session = {}, {}, "session_2"

    @staticmethod
    def _died(job: FakeJob, why: str) -> None:
        head = "Job supervisor actor died: The actor died unexpectedly before finishing this task."
        job.end("FAILED", f"{head}\n\tclass_name: JobSupervisor\n{why}", "JOB_SUPERVISOR_ACTOR_DIED")

    def asked(self, part: str) -> int:
        """How many requests had this in their method and path."""
        return sum(part in line for line in self.seen)

    # ------------------------------------------------------------ its work

    def _loop(self) -> None:
        while not self._stopping.is_set():
            with self.lock:
                for job in list(self.jobs.values()):
                    self._advance(job)
                self._bring_back()
            pause(_TURN_S, "the next look at all jobs")

    def _advance(self, job: FakeJob) -> None:
        if job.status != "PENDING":
            job.advance()
            return
        killed = self.folder / "jobs" / f"_ray_internal_job_actor_{job.name}"
        if killed.exists():
            self._died(job, "The actor is dead because it was killed by `ray.kill`.")
            return
        if self.start_timeout_s is not None and time.time() - job.submitted > self.start_timeout_s:
            why = f"Job supervisor actor failed to start within {self.start_timeout_s} seconds."
            job.end("FAILED", why, "JOB_SUPERVISOR_ACTOR_START_TIMEOUT")
            self.packages.clear()  # nobody names them any more
            return
        node = next((node for node in self.nodes if node.alive and self._fits(job, node)), None)
        if node is not None:
            self._begin(job, node)

    def _bring_back(self) -> None:
        """As Ray does with jobs that were deleted before it has seen the end of their supervisors."""
        for _, name in [ghost for ghost in self._ghosts if ghost[0] < time.time()]:
            job = FakeJob({"submission_id": name, "entrypoint": "Entrypoint not found."}, self.folder / "jobs" / name)
            job.end("FAILED", "Unexpected error occurred: the actor has exited", "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE")
            self.jobs.setdefault(name, job)
        self._ghosts = [ghost for ghost in self._ghosts if ghost[0] >= time.time()]

    def _begin(self, job: FakeJob, node: FakeNode) -> None:
        uri = (job.request.get("runtime_env") or {}).get("working_dir")
        package = self.packages.get(uri.removeprefix("gcs://")) if uri else None
        if uri and package is None:
            why = f"runtime_env setup failed: Failed to set up runtime environment.\nOSError: Failed to download {uri}"
            job.end("FAILED", why, "RUNTIME_ENV_SETUP_FAILURE")
            return
        job.start(node, package, self.url)

    def _fits(self, job: FakeJob, node: FakeNode) -> bool:
        return all(
            amount <= node.resources.get(name, 0) - self._used(node, name) for name, amount in job.wanted.items()
        )

    def _used(self, node: FakeNode, name: str) -> float:
        return sum(job.wanted.get(name, 0) for job in self.jobs.values() if job.node is node and not job.over)

    # ------------------------------------------------------------ the interface

    def get_version(self, body: bytes) -> RayAnswer:
        return 200, {"version": "4", "ray_version": self.version, "ray_commit": "b7f4", "session_name": self.session}

    def get_jobs(self, body: bytes) -> RayAnswer:
        return 200, [job.shown() for job in self.jobs.values()]

    def post_jobs(self, body: bytes) -> RayAnswer:
        request = json.loads(body)
        wrong = [name for name, value in request.items() if not isinstance(value, _FIELDS.get(name, ()))]
        texts = [
            *(request.get("metadata") or {}).items(),
            *((request.get("runtime_env") or {}).get("env_vars") or {}).items(),
        ]
        wrong += [name for name, value in texts if not isinstance(value, str)]
        if wrong or "entrypoint" not in request:
            self.broken.append(f"wrong in a request: {wrong}")
            return 400, f"{_TRACE}TypeError: JobSubmitRequest: {wrong}\n"
        name = request["submission_id"]
        if name in self.jobs:
            said = f"ValueError: Job with submission_id {name} already exists. Please use a different submission_id."
            return 500, f"{_TRACE}RuntimeError: Request failed with status code 500: {_TRACE}{said}\n.\n"
        folder = self.folder / "jobs" / name
        folder.mkdir(parents=True, exist_ok=True)
        job = FakeJob(request, folder)
        with job.log.open("a") as log:
            log.write("2026-11-22 10:36:19,517\tINFO job_manager.py:581 -- Runtime env is setting up.\n")
        self.jobs[name] = job
        return 200, {"job_id": name, "submission_id": name}

    def get_job(self, body: bytes, name: str) -> RayAnswer:
        return (200, self.jobs[name].shown()) if name in self.jobs else self._unknown(name)

    def delete_job(self, body: bytes, name: str) -> RayAnswer:
        if name not in self.jobs:
            return self._unknown(name)
        if not self.jobs[name].over:
            why = f"RuntimeError: Attempted to delete job '{name}', but it is in a non-terminal state PENDING."
            return 500, f"{_TRACE}RuntimeError: Request failed with status code 500: {_TRACE}{why}\n.\n"
        job = self.jobs.pop(name)
        if job.ended is not None and time.time() - job.ended < self.brings_back_s:
            self._ghosts.append((time.time() + 0.2, name))
        return 200, {"deleted": True}

    def post_stop(self, body: bytes, name: str) -> RayAnswer:
        if name not in self.jobs:
            return self._unknown(name)
        job = self.jobs[name]
        job.stop_asked = job.stop_asked or not job.over
        return 200, {"stopped": not job.over}

    def get_logs(self, body: bytes, name: str) -> RayAnswer:
        if name not in self.jobs:
            return self._unknown(name)
        job = self.jobs[name]
        if job.node is None:
            return 200, {"logs": ""}
        if not job.node.alive:
            return (
                500,
                f"{_TRACE}aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host {job.node.name}\n",
            )
        return 200, {"logs": job.log.read_text("utf-8", "replace")}

    def get_package(self, body: bytes, name: str) -> RayAnswer:
        return (200, "") if name in self.packages else (404, f"Package gcs://{name} does not exist")

    def put_package(self, body: bytes, name: str) -> RayAnswer:
        self.packages[name] = body
        return 200, ""

    def get_status(self, body: bytes) -> RayAnswer:
        if not self.usage_works:
            return 404, "404: Not Found"
        usage = {
            f"id-of-{node.name}": {
                name: [float(self._used(node, name)), float(total)] for name, total in node.resources.items()
            }
            for node in self.nodes
            if node.alive
        }
        return 200, {"result": True, "data": {"clusterStatus": {"loadMetricsReport": {"usageByNode": usage}}}}

    @staticmethod
    def _unknown(name: str) -> RayAnswer:
        return 404, f"Job {name} does not exist"

    def refusal(self, handler: _Handler) -> RayAnswer | None:
        """What who asks is told without the right token."""
        if any(handler.headers.get(name) != value for name, value in self.headers.items()):
            return 403, "the proxy does not know you"
        if not self.token or handler.authorization() == f"Bearer {self.token}":
            return None
        if not handler.authorization():
            return 401, "Unauthorized: Missing authentication token"
        return 403, "Forbidden: Invalid authentication token"


_ROUTES = [
    (re.compile(f"{method} {path}"), name)
    for method, path, name in (
        ("GET", "/api/version", "get_version"),
        ("GET", "/api/cluster_status", "get_status"),
        ("GET", "/api/jobs/", "get_jobs"),
        ("POST", "/api/jobs/", "post_jobs"),
        ("GET", "/api/jobs/([^/]+)", "get_job"),
        ("DELETE", "/api/jobs/([^/]+)", "delete_job"),
        ("POST", "/api/jobs/([^/]+)/stop", "post_stop"),
        ("GET", "/api/jobs/([^/]+)/logs", "get_logs"),
        ("GET", "/api/packages/gcs/([^/]+)", "get_package"),
        ("PUT", "/api/packages/gcs/([^/]+)", "put_package"),
    )
]


class _Handler(Handler):
    owner: RayHead

    def do_GET(self) -> None:
        asked, data = f"{self.command} {urlsplit(self.path).path}", self.body()
        self.owner.seen.append(asked)
        if self.owner.steps and self.owner.steps_for in asked:
            self.owner.steps.pop(0)(self)
            return
        status, content = self._answer(asked, data)
        if asked == "POST /api/jobs/" and self.owner.loses_submissions:
            self.owner.loses_submissions -= 1
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(2)
            return
        kind = "text/plain" if isinstance(content, str) else "application/json"
        sent = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send(status, f"{kind}; charset=utf-8", sent)

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self, asked: str, data: bytes) -> RayAnswer:
        refusal = self.owner.refusal(self)
        if refusal is not None:
            return refusal
        if len(data) > LIMIT_BYTES:
            return 413, f"Maximum request body size {LIMIT_BYTES} exceeded, actual body size {len(data)}"
        for pattern, name in _ROUTES:
            match = pattern.fullmatch(asked)
            if match:
                with self.owner.lock:
                    found: RayAnswer = getattr(self.owner, name)(data, *map(unquote, match.groups()))
                    return found
        self.owner.broken.append(f"the stand-in has no {asked}")
        return 404, "404: Not Found"
