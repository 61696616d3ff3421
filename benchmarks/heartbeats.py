"""Many trials that run at once: what their heartbeats cost the manager, and how late they are answered.

The keepers are stand-ins in this process, each with a connection of its own over real HTTP, and with the proofs and
the measured use that real ones send. What this process itself is late with is counted apart, and is not the manager's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.curves import Curve
from benchmarks.experiments import experiment
from benchmarks.idle_service import PLATFORM
from benchmarks.table import Result
from nnilite._engine.jobs import token
from nnilite._keeper.proof import HEADER, ProofSession, digest

SIZES = (250, 1000, 2000)
EVERY_S = 10.0  # as keepers do
WARM_S, WINDOW_S = 12.0, 30.0
START_S = 180.0
_BODY = json.dumps({"events": [{"type": "use", "processors": 0.987, "memory": 123456789, "gpus": []}]}).encode()


@dataclass(frozen=True)
class Load:
    """What was seen with one number of trials."""

    trials: int
    cores: float  # processor time of the manager in a second
    memory_mb: float
    late_s: float  # the longest time from a heartbeat to its answer
    stub_s: float  # by how much the stand-ins were late themselves, at most
    answers: int
    bare_s: float  # the longest answer of a server that only answers, to as many


def measure() -> list[Result]:
    loads = measured()
    load = loads[-1]
    most = f"{load.answers / WINDOW_S:.0f} heartbeats a second, {load.memory_mb:.0f} MB of memory"
    bare = f"a server that only answers: {load.bare_s * 1000:.0f} ms (the stand-ins: {load.stub_s * 1000:.0f} ms late)"
    cores, late = f"{load.cores:.2f} cores", f"{load.late_s * 1000:.0f} ms"
    return [
        Result(f"{load.trials:,} trials at once: the manager", cores, most, "", "1 core", load.cores < 1),
        Result("... its latest answer to a heartbeat", late, bare, "", "2 s", load.late_s < 2),
    ]


def curve() -> Curve:
    points = [(load.trials, load.cores) for load in measured()]
    return Curve("heartbeats of trials that run at once", "trials", "processor cores of the manager", points)


@cache
def measured() -> tuple[Load, ...]:
    _allow_files()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return tuple(load_of(trials) for trials in SIZES)


def load_of(trials: int) -> Load:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        with experiment(Path(folder), "true", trials, trials, {"platform": PLATFORM}) as (entry, client):
            until = time.monotonic() + START_S
            while len(running := list(client.trials(states=["RUNNING"]))) < trials:
                if time.monotonic() > until:
                    raise RuntimeError(f"after {START_S:.0f} s, {len(running)} of {trials} trials run")
                time.sleep(0.5)
            with contextlib.closing(sqlite3.connect(entry.directory / "nnilite.sqlite")) as db:
                secret = db.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0]
            jobs = {job: token(secret, job) for job in (f"nni-{entry.id}-{trial['id']}-0" for trial in running)}
            manager = psutil.Process(entry.pid)
            seen = asyncio.run(Crowd(entry.url or "", jobs).beat(manager))
            memory_mb = manager.memory_info().rss / 2**20
    bare_s = max(asyncio.run(_bare(trials)))
    return Load(trials, seen.cores, memory_mb, max(seen.answers_s), max(seen.own_s), len(seen.answers_s), bare_s)


@dataclass
class Seen:
    """Of the window in which it counts."""

    answers_s: list[float]
    own_s: list[float]
    cores: float = 0.0


class Crowd:
    """The keepers of these jobs, with their secrets."""

    def __init__(self, url: str, jobs: dict[str, str]) -> None:
        self._url, self._jobs = urlsplit(url), jobs
        self._seen = Seen([], [])
        self._counts = False

    async def beat(self, manager: psutil.Process) -> Seen:
        """Beat until the window is over."""
        began = time.monotonic()
        luck = random.Random(0)
        keepers = [
            asyncio.create_task(self._keep(job, secret, began + luck.uniform(0, EVERY_S)))
            for job, secret in self._jobs.items()
        ]
        await _unless_failed(keepers, WARM_S)
        before, start, self._counts = _spent_s(manager), time.monotonic(), True
        await _unless_failed(keepers, WINDOW_S)
        self._seen.cores = (_spent_s(manager) - before) / (time.monotonic() - start)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        return self._seen

    async def _keep(self, job: str, secret: str, due: float) -> None:
        path, session = f"/api/v1/callback/{job}", ProofSession(secret)
        await asyncio.sleep(due - time.monotonic())
        ends = await asyncio.open_connection(self._url.hostname, self._url.port)
        try:
            _, _, answer = await _ask(ends, f"GET {path}/proof?nonce={session.nonce}", {})
            if not session.meet(json.loads(answer)):
                raise RuntimeError(f"{job}: the manager does not prove itself: {answer!r}")
            while True:
                due += EVERY_S
                await asyncio.sleep(due - time.monotonic())
                sent = time.monotonic()
                signed = {"Authorization": session.authorization("POST", path, _BODY)}
                try:
                    status, headers, answer = await _ask(ends, f"POST {path}", signed, _BODY)
                except (asyncio.IncompleteReadError, ConnectionError):
                    # A manager closes connections that have not proven themselves for a while; keepers open another.
                    ends[1].close()
                    ends = await asyncio.open_connection(self._url.hostname, self._url.port)
                    status, headers, answer = await _ask(ends, f"POST {path}", signed, _BODY)
                answered = time.monotonic()
                if status != 200 or not session.proves(headers.get(HEADER.lower()), 200, digest(answer)):
                    raise RuntimeError(f"{job}: {status} {answer!r}")
                if self._counts:
                    self._seen.answers_s.append(answered - sent)
                    self._seen.own_s.append(sent - due)
        finally:
            ends[1].close()


async def _unless_failed(keepers: list[asyncio.Task[None]], for_s: float) -> None:
    """Let time pass. Raises: whatever a keeper fails with."""
    done, others = await asyncio.wait(keepers, timeout=for_s, return_when=asyncio.FIRST_EXCEPTION)
    if done:
        for keeper in others:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        done.pop().result()


async def _ask(
    ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], head: str, more: dict[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """One request, such as "GET /": the answer's status, its headers by their names in small letters, its body."""
    reader, writer = ends
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body)), **more}
    lines = [f"{head} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
    return int(first.split()[1]), found, await reader.readexactly(int(found.get("content-length", 0)))


async def _bare(trials: int) -> list[float]:
    """Return how long a server in this process takes that does nothing but answer, at the same pace."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    port = server.sockets[0].getsockname()[1]

    async def once(wait_s: float) -> float:
        await asyncio.sleep(wait_s)
        ends = await asyncio.open_connection("127.0.0.1", port)
        sent = time.monotonic()
        await _ask(ends, "POST /", {}, _BODY)
        taken_s = time.monotonic() - sent
        ends[1].close()
        return taken_s

    luck = random.Random(0)
    found = await asyncio.gather(*(once(luck.uniform(0, EVERY_S)) for _ in range(trials)))
    server.close()
    return list(found)


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _allow_files() -> None:
    """Each stand-in needs an open file, and so does each connection of the manager, which inherits the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
