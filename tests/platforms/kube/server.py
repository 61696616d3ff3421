"""The HTTP side of the stand-in for an API server: objects, watches, logs, rights, refusals."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from nnilite.testing.listener import Handler, Listener
from platforms.kube.client import NODES, Key
from platforms.kube.registry import Refusal, Registry, selected
from platforms.kube.rights import Rights
from platforms.kube.streams import passed_on, relay, send_pieces

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<ns>[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
_VERSION = {"major": "1", "minor": "27"}  # strict where it is asked to be, as servers are from then on
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
_BUILT_IN = ("", "batch", "rbac.authorization.k8s.io")


class ApiServer:
    """Listens on a loopback port from `start` to `stop`, and again on the same port."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.rights = Rights(registry.store)
        self.requests: list[tuple[str, str]] = []
        self.listener = Listener(_Handler, self)
        self.anybody = ssl._create_unverified_context()  # kubelets sign their certificates themselves

    def answer(self, token: str, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """The answer to anything but a watch. Raises: Refusal."""
        self.requests.append((method, path))
        if path == "/version":
            return _VERSION
        if path.endswith("/selfsubjectaccessreviews"):
            return self._review(token, body)
        parts = path.strip("/").split("/")
        if method == "GET" and parts[0] == "apis" and len(parts) == 3:
            return self._discover(*parts[1:])
        key, namespace, name, sub = self.place(token, method, path)
        if method == "POST" and not name:
            return self.registry.create(key, namespace, body, query.get("fieldValidation") == "Strict")
        if not name:
            return self.registry.list(key, namespace, query)
        content = self.registry.store.get(key, namespace, name)
        if content is None:
            raise Refusal(404, "NotFound", f'{key[2]} "{name}" not found')
        return self._one(method, key, content, sub, query, body or {})

    def changes(
        self, token: str, path: str, query: dict[str, str], stop: Callable[[], bool]
    ) -> Iterator[tuple[str, Any]]:
        """What a watch of this path tells, until `stop`. Raises: Refusal; LookupError, later, where it is too old."""
        key, namespace, _, _ = self.place(token, "watch", path)
        news = self.registry.store.watch(key, namespace, int(query["resourceVersion"]), stop)
        return ((kind, content) for kind, content in news if kind == "BOOKMARK" or selected(content, query))

    def place(self, token: str, method: str, path: str) -> tuple[Key, str, str, str | None]:
        """What a path is of. Raises: Refusal if there is no such thing, or not for the owner of this token."""
        found = _PATH.fullmatch(path)
        if found is None:
            raise Refusal(404, "", "404 page not found")
        key = (found["group"] or "", found["version"], found["plural"])
        if key[0] not in _BUILT_IN and key not in self.registry.crds:
            raise Refusal(404, "", "404 page not found")
        thing = f"{key[2]}/{found['sub']}" if found["sub"] else key[2]
        verb = _VERBS.get(method) or method.lower()
        verb = "list" if verb == "get" and not found["name"] else verb
        namespace = found["ns"] or ""
        if not self.rights.allows(token, namespace, verb, key[0], thing):
            text = f'{thing} is forbidden: User "test" cannot {verb} resource "{thing}" in API group "{key[0]}"'
            raise Refusal(403, "Forbidden", text)
        return key, namespace, unquote(found["name"] or ""), found["sub"]

    def _one(self, method: str, key: Key, content: Any, sub: str | None, query: dict[str, str], body: Any) -> Any:
        if sub == "log":
            return self._log(content, query)
        if sub == "binding":
            return self.registry.bind(content, body)
        if sub == "eviction":
            return self.registry.evict(content)
        if sub == "token":
            metadata = content["metadata"]
            return {"status": {"token": self.rights.new_token(metadata["namespace"], metadata["name"])}}
        if method == "PATCH":
            return self.registry.patch(key, content, body, sub)
        if method == "DELETE":
            return self.registry.delete(key, content, body)
        return content

    def _log(self, pod: Any, query: dict[str, str]) -> Iterator[bytes]:
        """Nodes have the logs."""
        metadata, host = pod["metadata"], self.kubelet_of(pod)
        if host is None:
            return iter(())
        path = f"containerLogs/{metadata['namespace']}/{metadata['name']}/{query['container']}"
        passed = {name: value for name, value in query.items() if name != "container"}
        pieces = passed_on(f"https://{host}/{path}?{urlencode(passed)}", self.anybody)
        try:
            return chain([next(pieces, b"")], pieces)
        except HTTPError as error:
            raise Refusal(error.code, "BadRequest", error.read().decode()) from error

    def kubelet_of(self, pod: Any) -> str | None:
        """Where the kubelet of a pod's node listens."""
        node = self.registry.store.get(NODES, "", pod["spec"].get("nodeName") or "")
        if node is None:
            return None
        status = node["status"]
        return f"{status['addresses'][0]['address']}:{status['daemonEndpoints']['kubeletEndpoint']['Port']}"

    def _review(self, token: str, body: Any) -> Any:
        wanted = body["spec"]["resourceAttributes"]
        sub = wanted.get("subresource")
        thing = f"{wanted['resource']}/{sub}" if sub else wanted["resource"]
        asked = (wanted["namespace"], wanted["verb"], wanted.get("group") or "", thing)
        return {**body, "status": {"allowed": self.rights.allows(token, *asked)}}

    def _discover(self, group: str, version: str) -> Any:
        found = [key[2] for key in self.registry.crds if key[:2] == (group, version)]
        if not found:
            raise Refusal(404, "", "404 page not found")
        return {"kind": "APIResourceList", "resources": [{"name": plural} for plural in found]}


class _Handler(Handler):
    owner: ApiServer

    def _serve(self) -> None:
        body = self.body()
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        try:
            if not self.owner.rights.knows(self.token()):
                raise Refusal(401, "Unauthorized", "Unauthorized")
            if query.get("watch") == "true":
                self._watch(parts.path, query)
                return
            if self.headers.get("Upgrade") == "websocket":
                self._execute(parts.path, parse_qsl(parts.query))
                return
            given = json.loads(body) if body else None
            answer = self.owner.answer(self.token(), self.command, parts.path, query, given)
            if isinstance(answer, Iterator):
                send_pieces(self, answer)
            else:
                self.send(200, "application/json", json.dumps(answer).encode())
        except Refusal as refusal:
            self._refuse(refusal)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _execute(self, path: str, query: list[tuple[str, str]]) -> None:
        """Commands run on nodes. They are asked for by GET here, and need the right to create."""
        key, namespace, name, part = self.owner.place(self.token(), "POST", path)
        pod = self.owner.registry.store.get(key, namespace, name)
        host = self.owner.kubelet_of(pod) if pod is not None and part == "exec" else None
        if host is None:
            raise Refusal(404, "NotFound", f'pods "{name}" not found')
        commands = [(key, value) for key, value in query if key == "command"]
        streams = [("input", "1"), ("output", "1"), ("error", "1")]
        path = f"/exec/{namespace}/{name}/{dict(query)['container']}?{urlencode([*commands, *streams])}"
        relay(self, host, path, self.owner.anybody)

    def _refuse(self, refusal: Refusal) -> None:
        text = str(refusal)
        if not refusal.reason:
            self.send(refusal.status, "text/plain", text.encode())
            return
        status = {"kind": "Status", "status": "Failure", "message": text, "reason": refusal.reason}
        self.send(refusal.status, "application/json", json.dumps({**status, "code": refusal.status}).encode())

    def _watch(self, path: str, query: dict[str, str]) -> None:
        stop = lambda: not self.owner.listener.listens  # noqa: E731
        changes = self.owner.changes(self.token(), path, query, stop)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for kind, content in changes:
                self._chunk({"type": kind, "object": content})
        except LookupError:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            self._chunk({"type": "ERROR", "object": gone})
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, content: Any) -> None:
        line = json.dumps(content).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()
