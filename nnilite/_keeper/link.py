"""The ways to the manager: its REST callback over one kept connection, or marked lines on standard output."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import IO, TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union
from urllib.parse import quote, urlsplit

from .outbox import Answer
from .spec import Spec

if TYPE_CHECKING:
    import http.client

MARK = "NNILITE_EVENT "
_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 1_000_000
_CHUNK_BYTES = 1 << 20


class LinkDown(Exception):
    """The manager cannot be reached now, or what answers is not the manager."""


class RestLink:
    """HTTP(S) to the manager. Its address is read again for every new connection: it may have moved."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._connection: Optional[http.client.HTTPConnection] = None
        self._address = ""

    def post(self, events: List[Dict[str, Any]]) -> Answer:
        """Deliver a batch. Raises: LinkDown."""
        body = json.dumps({"events": events}, separators=(",", ":")).encode("ascii")
        path = "/api/v1/callback/" + quote(self._spec.job, safe="")
        status, content = self._exchange("POST", path, body)
        return _answer(status, content)

    def download(self, name: str, target: IO[bytes]) -> None:
        """Fetch a code package. Raises: LinkDown, OSError if it cannot be written."""
        try:
            connection = self._connect()
            path = self._base_path() + "/api/v1/code/" + quote(name, safe="")
            connection.request("GET", path, headers=self._headers())
            response = connection.getresponse()
            if response.status != 200:
                raise LinkDown("the manager answers {} to {}".format(response.status, path))
        except _network_errors() as error:
            self.close()
            raise LinkDown(_sentence(error)) from error
        try:
            self._copy(response, target)
        finally:
            self.close()

    def _current_address(self) -> str:
        """The manager's base URL as known now; "" if there is none."""
        if self._spec.callback_file:
            try:
                with open(self._spec.callback_file, encoding="utf-8") as file:
                    return file.read().strip() or self._spec.callback or ""
            except (OSError, UnicodeDecodeError):
                return self._spec.callback or ""
        return self._spec.callback or ""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, body: bytes) -> Tuple[int, bytes]:
        """One request, with a second try at once where a kept connection turns out to be dead."""
        kept = self._connection is not None
        try:
            return self._request(method, path, body)
        except _network_errors() as error:
            self.close()
            if not kept or isinstance(error, socket.timeout):
                raise LinkDown(_sentence(error)) from error
        try:
            return self._request(method, path, body)
        except _network_errors() as error:
            self.close()
            raise LinkDown(_sentence(error)) from error

    def _request(self, method: str, path: str, body: bytes) -> Tuple[int, bytes]:
        connection = self._connect()
        connection.request(method, self._base_path() + path, body, self._headers())
        response = connection.getresponse()
        content = response.read(_MAX_ANSWER_BYTES)
        if response.status >= 400 or response.will_close:
            self.close()
        return response.status, content

    def _connect(self) -> http.client.HTTPConnection:
        import http.client

        address = self._current_address()
        if self._connection is not None and address == self._address:
            return self._connection
        self.close()
        self._address = address
        url = urlsplit(address)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("there is no usable address of the manager: {!r}".format(address))
        if url.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                url.hostname, url.port, timeout=_TIMEOUT_S, context=self._trust()
            )
        else:
            self._connection = http.client.HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT_S)
        return self._connection

    def _trust(self) -> Any:
        import ssl

        context = ssl.create_default_context(cadata=self._spec.callback_ca)
        if self._spec.callback_ca:
            context.check_hostname = False  # the manager's own certificate is pinned: reached by whatever address
        return context

    def _base_path(self) -> str:
        return urlsplit(self._address).path.rstrip("/")

    def _headers(self) -> Dict[str, str]:
        return {
            "Authorization": "Bearer " + self._spec.token,
            "Content-Type": "application/json",
            "X-Nnilite-Job": self._spec.job,  # whose token this is: downloads do not say it in their path
        }

    def _copy(self, response: Any, target: IO[bytes]) -> None:
        while True:
            try:
                chunk = response.read(_CHUNK_BYTES)
            except _network_errors() as error:
                raise LinkDown(_sentence(error)) from error
            if not chunk:
                return
            target.write(chunk)


class StdoutLink:
    """`NNILITE_EVENT {json}`, one line for each event, for services that read the platform's log.

    The trial's output is passed through in whole lines. Nothing is ever answered, so everything counts as taken.
    """

    def __init__(self) -> None:
        self._unfinished = {"stdout": b"", "stderr": b""}

    def post(self, events: List[Dict[str, Any]]) -> Answer:
        """Print."""
        import base64

        text = b""
        for event in events:
            if event["type"] == "output":
                text += self._lines(event["stream"], base64.b64decode(event["data"]))
            else:
                if event["type"] == "exit":
                    text += self._lines("stdout", b"", True) + self._lines("stderr", b"", True)
                text += (MARK + json.dumps(event) + "\n").encode("ascii")
        try:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        except OSError:  # nobody reads any more; the files remain
            return Answer(200)
        return Answer(200)

    def _lines(self, stream: str, data: bytes, end: bool = False) -> bytes:
        """The whole lines that this completes. None of them can be taken for an event."""
        data = self._unfinished[stream] + data
        whole, newline, rest = data.rpartition(b"\n")
        if end and rest:
            whole, newline, rest = data, b"\n", b""
        self._unfinished[stream] = rest
        mark = MARK.encode("ascii")
        return b"".join(line.replace(mark, mark[:-1] + b": ") + b"\n" for line in (whole + newline).split(b"\n")[:-1])

    def close(self) -> None:
        """Nothing is open."""


class NoLink:
    """For services that read the attempt's files themselves: there they stay."""

    def post(self, events: List[Dict[str, Any]]) -> Answer:
        return Answer(200)

    def close(self) -> None:
        """Nothing is open."""


Link = Union[RestLink, StdoutLink, NoLink]


def link_of(spec: Spec) -> Link:
    """The way to the manager that the specification asks for."""
    if spec.report == "stdout":
        return StdoutLink()
    return RestLink(spec) if spec.callback or spec.callback_file else NoLink()


def _answer(status: int, content: bytes) -> Answer:
    """Raises: LinkDown for a 200 or 409 that no manager of ours would send."""
    try:
        data = json.loads(content.decode("utf-8"))
    except ValueError:
        data = None
    if not isinstance(data, dict):
        data = {}
    if status in (200, 409) and not _is_count(data.get("metrics")):
        raise LinkDown("what answers at the manager's address is not the manager")
    output = data.get("output")
    output = {k: v for k, v in output.items() if _is_count(v)} if isinstance(output, dict) else None
    return Answer(
        status,
        data.get("cancel") is True,
        data.get("metrics") if _is_count(data.get("metrics")) else None,
        output,
        str(data.get("reason") or data.get("error") or ""),
        str(data.get("field") or ""),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _network_errors() -> "Tuple[type[BaseException], ...]":
    import http.client

    return (OSError, http.client.HTTPException, ValueError)


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__


def modified(path: Optional[str]) -> float:
    """A file's time of modification; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime if path else 0.0
    except OSError:
        return 0.0
