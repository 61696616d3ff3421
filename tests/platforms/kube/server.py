"""The API server's HTTP side: objects, watches, logs, rights, refusals. Faults are asked for by attributes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from platforms.kube.schemas import complaint
from platforms.kube.store import Key, Store

TOKEN = "the-token-of-this-test"
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/namespaces/(?P<ns>[^/]+)/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)


class Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class ApiServer:
    """Listens on a loopback port from `start` to `stop`, and again on the same port."""

    def __init__(self, store: Store, crds: dict[Key, str], read_log: Any) -> None:
        self.store = store
        self.crds = crds  # what the operators have installed, with the files of their definitions
        self.read_log = read_log
        self.forbidden: set[tuple[str, str]] = set()  # verb and plural
        self.admission: dict[Key, Any] = {}  # what webhooks say: an object's fault, or ""
        self.failures: list[tuple[str, int]] = []  # the next requests with this method fail so
        self.quota = ""  # a message: no object is admitted
        self.requests: list[tuple[str, str]] = []
        self._server: _Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stopped = True
            self._server.shutdown()
            self._server.server_close()
            self._server.break_connections()
            self._server = None

    def drop_watches(self) -> None:
        """Break all connections; the server goes on."""
        if self._server is not None:
            self._server.break_connections()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """The answer to anything but a watch. Raises: Refusal."""
        self.requests.append((method, path))
        for number, (wanted, status) in enumerate(self.failures):
            if wanted == method:
                del self.failures[number]
                raise Refusal(status, "InternalError", "as the test wants it", retry_after=status == 429)
        if path.endswith("/selfsubjectaccessreviews"):
            return self._review(body)
        found = _PATH.fullmatch(path)
        if found is None:
            return self._discover(path)
        key = (found["group"] or "", found["version"], found["plural"])
        self.check(key, _verb(method, found["name"]), found["sub"])
        if found["sub"] == "log":
            return self.read_log(found["ns"], unquote(found["name"]), query)
        return self._objects(method, key, found["ns"], unquote(found["name"] or ""), query, body)

    def check(self, key: Key, verb: str, sub: str | None) -> None:
        """Raises: Refusal."""
        plural = f"{key[2]}/{sub}" if sub else key[2]
        if (verb, plural) in self.forbidden:
            raise Refusal(403, "Forbidden", f'{key[2]} is forbidden: User "test" cannot {verb} resource "{plural}"')
        if key[0] not in ("", "batch") and key not in self.crds:
            raise Refusal(404, "", "404 page not found")

    def _objects(self, method: str, key: Key, namespace: str, name: str, query: dict[str, str], body: Any) -> Any:
        if method == "POST":
            return self._create(key, namespace, body, query)
        if not name:
            items = [item for item in self.store.all(key, namespace) if selected(item, query)]
            return {"kind": "List", "metadata": {"resourceVersion": str(self.store.version)}, "items": items}
        content = self.store.get(key, namespace, name)
        if content is None:
            raise Refusal(404, "NotFound", f'{key[2]} "{name}" not found')
        if method == "PATCH":
            return self._patch(key, content, body)
        if method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted and wanted != content["metadata"]["uid"]:
                raise Refusal(409, "Conflict", "the UID in the precondition does not match")
            self.store.delete(key, namespace, name, (body or {}).get("propagationPolicy") or "Background")
            return {"kind": "Status", "status": "Success"}
        return content

    def _create(self, key: Key, namespace: str, body: Any, query: dict[str, str]) -> Any:
        self._valid(key, body, query.get("fieldValidation") == "Strict")
        if self.quota and key[2] != "secrets":
            raise Refusal(403, "Forbidden", self.quota)
        try:
            return self.store.create(key, namespace, body)
        except KeyError:
            raise Refusal(409, "AlreadyExists", f'{key[2]} "{body["metadata"]["name"]}" already exists') from None

    def _valid(self, key: Key, body: Any, strict: bool) -> None:
        name = body["metadata"]["name"]
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
            raise Refusal(422, "Invalid", f"metadata.name: {name!r} is no DNS name")
        for text in (body["metadata"].get("labels") or {}).values():
            if not re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?", text):
                raise Refusal(422, "Invalid", f"metadata.labels: {text!r} is no label")
        wrong = complaint(key, body, self.crds.get(key), strict)
        if wrong:
            raise Refusal(422, "Invalid", wrong)
        denial = self.admission[key](body) if key in self.admission else ""
        if denial:
            raise Refusal(403, "Forbidden", f"admission webhook denied the request: {denial}")

    def _patch(self, key: Key, content: Any, body: Any) -> Any:
        metadata = content["metadata"]

        def change(draft: Any) -> None:
            draft.update(merged(draft, body))

        trial = merged(content, body)
        if key in self.crds and (wrong := complaint(key, trial, self.crds[key], False)):
            raise Refusal(422, "Invalid", wrong)
        return self.store.update(key, metadata["namespace"], metadata["name"], change)

    def _review(self, body: Any) -> Any:
        wanted = body["spec"]["resourceAttributes"]
        sub = wanted.get("subresource")
        plural = f"{wanted['resource']}/{sub}" if sub else wanted["resource"]
        return {**body, "status": {"allowed": (wanted["verb"], plural) not in self.forbidden}}

    def _discover(self, path: str) -> Any:
        parts = path.strip("/").split("/")
        found = [plural for group, version, plural in self.crds if parts == ["apis", group, version]]
        if not found:
            raise Refusal(404, "", "404 page not found")
        return {"kind": "APIResourceList", "resources": [{"name": plural} for plural in found]}


def merged(old: Any, new: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    whole = {**old, **{name: merged(old.get(name), value) for name, value in new.items()}}
    return {name: value for name, value in whole.items() if value is not None}


def selected(item: Any, query: dict[str, str]) -> bool:
    """Whether label and field selectors select an object."""
    labels = item["metadata"].get("labels") or {}
    wanted = dict(part.split("=", 1) for part in filter(None, query.get("labelSelector", "").split(",")))
    fields = dict(part.split("=", 1) for part in filter(None, query.get("fieldSelector", "").split(",")))
    involved = item.get("involvedObject") or {}
    known = {"type": item.get("type"), **{f"involvedObject.{name}": value for name, value in involved.items()}}
    return wanted.items() <= labels.items() and fields.items() <= known.items()


def _verb(method: str, name: str | None) -> str:
    if method == "GET":
        return "get" if name else "list"
    return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], api: ApiServer) -> None:
        super().__init__(address, _Handler)
        self.api = api
        self.stopped = False
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is nothing to print about."""

    def break_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 300
    server: _Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "Unauthorized", "Unauthorized")
            if query.get("watch") == "true":
                self._watch(parts.path, query)
                return
            answer = self.server.api.answer(self.command, parts.path, query, json.loads(body) if body else None)
            self._send(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        except Refusal as refusal:
            self._refuse(refusal)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _refuse(self, refusal: Refusal) -> None:
        text = str(refusal)
        status = {"kind": "Status", "status": "Failure", "message": text, "reason": refusal.reason}
        data = json.dumps({**status, "code": refusal.status}).encode() if refusal.reason else text.encode()
        self._send(refusal.status, data, refusal.retry_after)

    def _watch(self, path: str, query: dict[str, str]) -> None:
        found = _PATH.fullmatch(path)
        assert found is not None
        key = (found["group"] or "", found["version"], found["plural"])
        self.server.api.check(key, "watch", None)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        stop = lambda: self.server.stopped  # noqa: E731
        try:
            for event in self.server.api.store.watch(key, found["ns"], int(query["resourceVersion"]), stop):
                self._tell(event, query)
        except LookupError:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            self._chunk({"type": "ERROR", "object": gone})
        self.wfile.write(b"0\r\n\r\n")

    def _tell(self, event: tuple[str, Any] | None, query: dict[str, str]) -> None:
        if event is None:
            version = {"resourceVersion": str(self.server.api.store.version)}
            self._chunk({"type": "BOOKMARK", "object": {"metadata": version}})
        elif selected(event[1], query):
            self._chunk({"type": event[0], "object": event[1]})

    def _chunk(self, content: Any) -> None:
        line = json.dumps(content).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _send(self, status: int, data: bytes, retry_after: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if retry_after:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
