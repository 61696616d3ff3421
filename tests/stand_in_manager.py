"""A stand-in for a manager's REST interface: canned answers, and a record of what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from nnilite.testing.listener import PromptServer

TRIAL = {
    "id": "trial1",
    "sequence": 0,
    "state": "SUCCEEDED",
    "reason": "",
    "parameters": {"x": 0.5, "act": "re\nlu"},
    "parameterId": 0,
    "source": "algorithm",
    "attempt": 0,
    "created": 1.0,
    "started": 1.0,
    "ended": 3.5,
    "value": {"default": 0.25, "loss": "NaN"},
    "latest": None,
}
PROFILE = {
    "id": "abcd",
    "name": "digits",
    "state": "RUNNING",
    "reason": "",
    "config": {"trialCommand": "python3 trial.py"},
    "searchSpace": {},
    "platforms": ["local"],
    "directory": "/somewhere/abcd",
    "created": 1.0,
    "started": 1.0,
    "ended": None,
    "duration": 12.0,
    "limits": {"trialConcurrency": 2, "maxTrialNumber": 30, "maxExperimentDuration": None, "maxTrialDuration": None},
    "counts": {"SUCCEEDED": 4, "WAITING": 1},
    "best": TRIAL,
    "optimize": "minimize",
    "objectives": {"default": "minimize"},
    "hosts": [],
    "waiting": [{"reason": "no GPU is free", "count": 1}],
    "nextSequence": 5,
    "revision": 9,
}

Make = Callable[..., Path]
"""Makes an experiment known; its folder."""


@dataclass
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class StandIn:
    """`answers` maps "GET /experiment?x=1" or "GET /experiment" to (status, body) or (status, body, headers)."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    hang_up_next: bool = False
    thinks_s: float = 0.0  # before it answers

    def says(self, request: str, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[request] = (status, data, headers or {})


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            stand_in.connections += 1
            super().setup()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            stand_in.asked.append(Asked(self.command, self.path, dict(self.headers), body))
            if stand_in.hang_up_next:
                stand_in.hang_up_next = False
                self.close_connection = True
                return
            threading.Event().wait(stand_in.thinks_s)
            path = self.path.partition("/api/v1")[2]
            known = stand_in.answers
            asked = f"{self.command} {path}"
            status, data, headers = known.get(asked) or known.get(asked.partition("?")[0]) or _NOTHING
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


class _Server(PromptServer):
    def handle_error(self, *_: object) -> None:
        """A client that hangs up in the middle is part of some tests."""


_NOTHING = (404, b'{"error": "there is nothing at this address"}', {})


@contextmanager
def stand_in_manager() -> Iterator[StandIn]:
    stand_in = StandIn()
    server = _Server(("127.0.0.1", 0), _handler(stand_in))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
