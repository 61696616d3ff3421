"""One server for the tests that leave it alone, and workers that end with their test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.ready_programs import ProgramTemplate
from nnilite.service import ServiceContext
from nnilite.testing import ServiceBench
from nnilite.testing.bench import HOSTILE
from nnilite_redis import RedisConfig, RedisService
from platforms.redis_pool.cable import Cable
from platforms.redis_pool.server import Server, missing
from platforms.redis_pool.workers import TEMPLATE, WorkerProcess


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its data is in memory only. Tests share it by prefixes of their own."""
    if missing():
        pytest.skip(missing())
    server = Server(tmp_path_factory.mktemp("redis"))
    server.start()
    server.settle()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """A pool of the test's own."""
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def worker_template() -> Iterator[ProgramTemplate]:
    template = ProgramTemplate(TEMPLATE)
    yield template
    template.end()


@pytest.fixture
def start_worker(
    tmp_path: Path, prefix: str, worker_template: ProgramTemplate
) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts workers in folders with hostile names; they end with the test."""
    started: list[WorkerProcess] = []

    def start(url: str, *more: str, **env: str) -> WorkerProcess:
        folder = tmp_path / HOSTILE / f"worker {len(started)}"
        worker = WorkerProcess(url, folder, "--prefix", prefix, *more, template=worker_template, **env)
        started.append(worker)
        return worker.start()

    yield start
    for worker in started:
        worker.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """For tests that kill it."""
    if missing():
        pytest.skip(missing())
    server = Server(tmp_path / "redis")
    server.start()
    server.settle()
    yield server
    server.stop()


@pytest.fixture
def cable(shared_server: Server) -> Iterator[Cable]:
    """A way to the shared server that can be cut."""
    cable = Cable(shared_server.port)
    yield cable
    cable.close()


@pytest.fixture
def open_bench(tmp_path: Path, prefix: str, start_worker: object) -> Iterator[Callable[..., ServiceBench]]:
    """Opens a service on a server, with these fields of its section. It ends before the workers do."""
    benches: list[ServiceBench] = []

    def make(server: Server, **fields: Any) -> ServiceBench:
        config = RedisConfig(server.url, prefix=prefix, **fields)
        bench = ServiceBench(tmp_path / f"bench {len(benches)}", lambda context: _service(config, context))
        bench.__enter__()
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.__exit__()


def _service(config: RedisConfig, context: ServiceContext) -> RedisService:
    """Trials of these tests end quickly, so that the period can be short."""
    return RedisService("redis", config, replace(context, defaults={"gracePeriod": 1}))
