"""What can go wrong between the plugin and an API server: a proxy before any server, which fails when it is told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import urllib3

from nnilite.testing.listener import Handler, Listener
from nnilite_kubernetes._api import ApiError, Watch, connect
from platforms.kube.kubeconfig import write_kubeconfig

_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_PASSED = ("Accept", "Content-Type")


class Faults:
    """Passes everything on, as whom `kubeconfig` says. Use as a context manager."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.failing: list[tuple[str, int]] = []
        self.expiring = 0
        self._cluster = connect(str(kubeconfig), None)
        self._listener = Listener(_Proxy, self)
        self._watches: list[Watch] = []
        self._folder = folder

    def __enter__(self) -> Faults:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._cluster.close()

    @property
    def kubeconfig(self) -> Path:
        return write_kubeconfig(self._folder / "kubeconfig.faults", {"server": self._listener.url}, {"token": "any"})

    def fail(self, method: str, status: int) -> None:
        """The next request with this method fails so."""
        self.failing.append((method, status))

    def expire_watches(self) -> None:
        """The watches that are open now break off, and are too old when they are asked for again."""
        self.expiring = len(self._watches)
        self.drop_watches()

    def drop_watches(self) -> None:
        """The watches that are open now break off."""
        watches, self._watches = self._watches, []
        self._listener.break_connections()
        for watch in watches:
            watch.stop()

    def stop(self) -> None:
        """There is no server any more."""
        self._listener.stop()
        self.drop_watches()

    def start(self) -> None:
        self._listener.start()

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str], watch: bool) -> Any:
        """The server's answer."""
        return self._cluster._way.pool.request(
            method,
            self._cluster.host + path,
            body=body or None,
            headers={**headers, **self._cluster._credentials.headers()},
            preload_content=not watch,
            retries=False,
            timeout=urllib3.Timeout(connect=10, read=300),
        )

    def follow(self, answer: Any) -> Watch:
        """The events of an answer."""
        self._watches.append(Watch(answer))
        return self._watches[-1]


class _Proxy(Handler):
    owner: Faults

    def _serve(self) -> None:
        body, watch = self.body(), "watch=true" in self.path
        for fault in self.owner.failing:
            if fault[0] == self.command:
                self.owner.failing.remove(fault)
                self._fail(fault[1])
                return
        headers = {name: self.headers[name] for name in _PASSED if self.headers[name]}
        answer = self.owner.ask(self.command, self.path, body, headers, watch)
        if watch and answer.status < 400:
            self._watch(answer)
        else:
            self.send(answer.status, answer.headers.get("Content-Type", "text/plain"), answer.data)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _fail(self, status: int) -> None:
        known = {"kind": "Status", "status": "Failure", "message": "as the test wants it", "reason": _REASONS[status]}
        later = {"Retry_After": "1"} if status in (429, 503) else {}
        self.send(status, "application/json", json.dumps({**known, "code": status}).encode(), **later)

    def _watch(self, answer: Any) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if self.owner.expiring:
                self.owner.expiring -= 1
                raise ApiError("too old resource version", 410, "Expired")
            for kind, content in self.owner.follow(answer):
                self._tell(kind, content)
        except ApiError as error:  # also when the server goes away
            self._tell("ERROR", {"kind": "Status", "code": error.status, "reason": error.reason, "message": str(error)})
        self.wfile.write(b"0\r\n\r\n")

    def _tell(self, kind: str, content: Any) -> None:
        data = json.dumps({"type": kind, "object": content}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
