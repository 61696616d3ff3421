"""A REST server on a thread of its own, and a client that sends exactly what it is told."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from manager.fake_backend import FakeBackend
from nnilite._rest import RestApplication, ServerOptions, listen, make_application
from nnilite.testing.bench import LIMIT_S


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage  # finds names in any case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no strict JSON")


@dataclass(frozen=True)
class Client:
    """Speaks to one server. `ask` sends JSON and the token of the manager, unless told otherwise."""

    backend: FakeBackend
    port: int
    application: RestApplication
    loop: asyncio.AbstractEventLoop
    kept: http.client.HTTPConnection | None = None  # used for all requests, if there is one

    @contextmanager
    def keeping(self) -> Iterator[Client]:
        """A client that asks everything over one connection."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)) as kept:
            yield replace(self, kept=kept)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """`headers` with underscores for dashes; an empty one is not sent."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        wanted = {"Content-Type": "application/json"} if method in ("POST", "PUT", "PATCH") else {}
        wanted["Authorization"] = f"Bearer {self.backend.token}"
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in wanted.items() if value}
        connection = self.kept or http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            if connection is not self.kept:
                connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", "/api/v1" + path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", "/api/v1" + path, body, **headers)

    def callback(self, trial: str, events: Any, **headers: str) -> Reply:
        """Post a batch with the right token; `events` may be the whole body as bytes."""
        job = self.backend.find_job(trial)
        body = events if isinstance(events, bytes) else {"events": events}
        headers = {"Authorization": f"Bearer {self.backend.callback_token(job)}", **headers}
        return self.post(f"/callback/{job}", body, **headers)

    def run(self, function: Any) -> Any:
        """Call something on the server's loop, as the manager would."""

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(LIMIT_S)


@contextmanager
def serving(backend: FakeBackend, options: ServerOptions | None = None, **tls: Any) -> Iterator[Client]:
    """Serve a backend until the block ends."""
    with serving_application(lambda: make_application(backend, options), **tls) as (application, port, loop):
        yield Client(backend, port, application, loop)


Served = tuple[RestApplication, int, asyncio.AbstractEventLoop]


@contextmanager
def serving_application(make: Callable[[], RestApplication], **tls: Any) -> Iterator[Served]:
    """Serve an application that `make` puts together, on a loop of its own, until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[RestApplication, Any]:
        application = make()
        return application, listen(application, "127.0.0.1", 0, **tls)

    async def finish() -> None:
        server.stop()
        await server.close_all_connections()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await loop.shutdown_default_executor()

    application, server = asyncio.run_coroutine_threadsafe(start(), loop).result(LIMIT_S)
    try:
        yield application, server.port, loop
    finally:
        asyncio.run_coroutine_threadsafe(finish(), loop).result(LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()
