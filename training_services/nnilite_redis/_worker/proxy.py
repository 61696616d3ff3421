"""Where keepers on this machine find their manager: requests that come here go to it as letters, and so do its answers.

While Redis or the manager is away the answer is 503, and the keeper tries again: what it has to tell stands in the
trial's folder until the manager has acknowledged it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from nnilite.errors import NniliteError
from nnilite_redis._mail import Letter
from nnilite_redis._relay import ANSWER_HEADERS, MAX_BODY_BYTES, REQUEST_HEADERS, is_of_keeper

log = logging.getLogger(__name__)

Pass = Callable[[str, Letter], Awaitable[Letter | None]]
"""Hands the request of a job's keeper to its manager; None if there is no such job here."""


class Proxy:
    """A port of this machine's loopback."""

    def __init__(self, hand_on: Pass) -> None:
        rules = [(r"/api/v1/callback/([A-Za-z0-9._-]+)(?:/proof)?", _ProxyHandler, {"hand_on": hand_on})]
        self._server = HTTPServer(Application(rules, log_function=_quiet), max_buffer_size=MAX_BODY_BYTES)
        self.url = ""

    def start(self) -> None:
        """Listen. Raises: OSError."""
        sockets = bind_sockets(0, "127.0.0.1")
        self._server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.stop()
        await asyncio.wait_for(self._server.close_all_connections(), 5)


class _ProxyHandler(RequestHandler):
    def initialize(self, hand_on: Pass) -> None:
        self._hand_on = hand_on

    async def get(self, job: str) -> None:
        await self._carry(job)

    async def post(self, job: str) -> None:
        await self._carry(job)

    async def _carry(self, job: str) -> None:
        method, path = str(self.request.method), str(self.request.uri)
        if not is_of_keeper(method, path):
            self._answer(Letter({"status": 403}))
            return
        headers = {name: self.request.headers[name] for name in REQUEST_HEADERS if name in self.request.headers}
        letter = Letter({"do": "http", "method": method, "path": path, "headers": headers}, self.request.body)
        try:
            answer = await self._hand_on(job, letter)
        except NniliteError as error:
            log.debug("a request of %s waits: %s", job, error)
            answer = Letter({"status": 503})
        self._answer(answer or Letter({"status": 404}))

    def _answer(self, letter: Letter) -> None:
        status, headers = letter.head.get("status"), letter.head.get("headers")
        known = isinstance(status, int) and 200 <= status < 600
        self.set_status(status if known and isinstance(status, int) else 503)
        for name in ANSWER_HEADERS:
            value = headers.get(name) if isinstance(headers, dict) else None
            if isinstance(value, str) and value.isprintable():
                self.set_header(name, value)
        self.finish(letter.data)


def _quiet(handler: Any) -> None:
    """Requests are not worth a line each."""
