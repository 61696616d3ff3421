"""A server of another user of this machine, which takes a port of 127.0.0.1 and writes down all that it is sent."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from other_user import STRANGER, known_user, shared_python

SERVER = r"""
import http.server, json, sys
port, pages = json.loads(sys.stdin.readline())

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def turn(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode("utf-8", "replace")
        print(json.dumps([self.requestline, list(self.headers.items()), body]), flush=True)
        kind, text = pages.get(self.path.partition("?")[0], pages[""])
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PUT = do_DELETE = turn

    def log_message(self, *words):
        pass

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client):
        pass

server = Server(("127.0.0.1", port), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
GREEDY = """<!doctype html><title>Experiment</title><script>
if (navigator.serviceWorker) navigator.serviceWorker.register("/worker.js");
</script><h1>Everything is fine</h1>"""
WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
self.addEventListener("fetch", (event) => {
  if (event.request.mode === "navigate")
    event.respondWith(new Response("<h1>Everything is fine</h1>", { headers: { "Content-Type": "text/html" } }));
});
"""
PAGES = {"": ("application/json", "{}"), "/": ("text/html", GREEDY), "/worker.js": ("text/javascript", WORKER)}

Heard = tuple[str, dict[str, str], str]
"""The first line of a request, its headers by lower-case name, and its body."""


class Stranger:
    """The server, and what it has heard."""

    def __init__(self, server: subprocess.Popen[str], port: int) -> None:
        self.port = port
        self.heard: list[Heard] = []
        self._server = server
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            first, headers, body = json.loads(line)
            self.heard.append((first, {name.lower(): value for name, value in headers}, body))

    def text(self) -> str:
        """All that was heard."""
        return json.dumps(self.heard)

    def values(self) -> set[str]:
        """Every value of a header, each of which might be a key."""
        return {value for _, headers, _ in list(self.heard) for value in headers.values()}

    def leave(self) -> None:
        """Give the port back."""
        self._server.kill()
        self._server.wait(20)
        self._reading.join(20)


@contextmanager
def stranger(port: int = 0, pages: Mapping[str, Any] | None = None) -> Iterator[Stranger]:
    """Serve as another user. `pages`: media type and text by path; "" is for all other paths."""
    account = known_user(STRANGER)
    who: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
    command = [shared_python(), "-I", "-S", "-c", SERVER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, **who) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([port, {**PAGES, **(pages or {})}]) + "\n")
        server.stdin.flush()
        found = Stranger(server, int(server.stdout.readline()))
        try:
            yield found
        finally:
            found.leave()
