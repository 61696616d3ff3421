"""A stranger who listens where keepers look for their manager, and writes down every word of theirs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from nnilite._keeper.proof import HEADER
from nnilite.testing.listener import PromptServer

BELIEVE_ME = {"cancel": True, "metrics": 0, "output": {}, "reason": "given up"}

Reply = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body and further headers of an answer."""


class Impostor(PromptServer):
    """Another program on the manager's port. It writes down every byte that keepers send."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler, bytes], Reply], port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer
        self.heard: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keepers hang up on it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Impostor

    def _turn(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.heard.append(f"{self.requestline}\n{self.headers}\n{body.decode()}")
        status, content, headers = self.server.answer(self, body)
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _turn

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def impostor(answer: Callable[[BaseHTTPRequestHandler, bytes], Reply], port: int = 0) -> Iterator[Impostor]:
    server = Impostor(answer, port)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def insistent(status: int) -> Callable[[BaseHTTPRequestHandler, bytes], Reply]:
    """Answers all with this status, says `cancel`, and makes proofs up."""
    return lambda request, body: (status, {**BELIEVE_ME, "nonce": "1.1", "proof": "0" * 64}, {HEADER: "0" * 64})
