"""What all JSON handlers share: checks before the body is read, a bounded body, security headers, errors as JSON."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler, stream_request_body

from nnilite._rest import wire
from nnilite._rest.auth import Access, Gate
from nnilite._rest.backend import Backend
from nnilite._rest.options import Options
from nnilite._rest.refusal import Refusal, body_of, status_of
from nnilite._rest.route import SERVER_BODY_MAX, Route, read_query
from nnilite.errors import Conflict, NniliteError
from nnilite.records import Json

log = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
JOB_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_BODY_METHODS = ("POST", "PUT", "PATCH")


def _drop(chunk: bytes) -> None:
    """Takes the body of a refused request."""


@dataclass
class StreamCount:
    """How many live streams are open."""

    open: int = 0


@dataclass(frozen=True)
class Site:
    """What every handler of one application shares."""

    backend: Backend
    gate: Gate
    options: Options
    streams: StreamCount = field(default_factory=StreamCount)


@stream_request_body
class Answering(RequestHandler):
    """Checks, headers and errors, for handlers of any kind. Not found, unless a subclass has other checks.

    The checks run when the headers have come. Of a refused request no byte of the body is kept.
    """

    site: Site
    policy = API_POLICY

    def initialize(self, site: Site) -> None:
        self.site = site

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in SECURITY_HEADERS.items():
            self.set_header(name, value)
        self.set_header("Content-Security-Policy", self.policy)

    def compute_etag(self) -> str | None:
        return None

    def prepare(self) -> None:
        try:
            self.check()
        except (NniliteError, HTTPError) as error:
            if self.claimed_bytes() > SERVER_BODY_MAX or "Transfer-Encoding" in self.request.headers:
                raise
            self._refuse_after_body(error)

    def check(self) -> None:
        """All checks that need no body. Raises: NniliteError, HTTPError."""
        self.site.gate.check(self.request, Access.MANAGER)
        raise HTTPError(404)

    def data_received(self, chunk: bytes) -> None:
        """A body that nobody wants is dropped."""

    def claimed_bytes(self) -> int:
        """The body's length as the headers have it; one that is no number is refused by tornado itself."""
        claim = self.request.headers.get("Content-Length", "").partition(",")[0].strip()
        return int(claim[:18]) if claim.isascii() and claim.isdigit() else 0

    def _refuse_after_body(self, error: Exception) -> None:
        """Answer when the body has come, and drop it as it comes.

        Answered before, tornado would close the connection, perhaps with unread data in it: the client's system then
        throws the answer away, and the client sees a reset in place of the reason.
        """

        def refuse(*args: str, **kwargs: str) -> None:
            raise error

        self.data_received = _drop  # type: ignore[method-assign]
        setattr(self, (self.request.method or "").lower(), refuse)

    def send_json(self, value: Json, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(wire.dumps(value))

    async def send_piece(self, chunk: bytes) -> None:
        """Write and wait until it is on its way; a reader that takes too long loses the connection."""
        self.write(chunk)
        try:
            await asyncio.wait_for(self.flush(), self.site.options.reader_timeout_s)
        except (TimeoutError, asyncio.TimeoutError, StreamClosedError):
            self.hang_up()
            raise Finish() from None

    def hang_up(self) -> None:
        """Close the connection without a proper end, so that the reader cannot take a part for the whole."""
        connection = self.request.connection
        stream = getattr(connection, "stream", None)
        if stream is not None:
            stream.close()

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer an error; if a part of the answer is sent already, cut it short, so that it is seen to be a part."""
        if self._headers_written:
            self.hang_up()
        else:
            super().send_error(status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        status = status_of(error) if error is not None else status_code
        if status == 503:
            self.set_header("Retry-After", "1")
        if status == 401:
            self.set_header("WWW-Authenticate", "Bearer")
        if status == 405:
            self.set_header("Allow", ", ".join(self.allowed()))
        self.send_json(body_of(error, status), status)

    def allowed(self) -> list[str]:
        return ["GET"]

    def log_exception(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, NniliteError | HTTPError):
            log.debug("%s %s refused: %s", self.request.method, self.request.path, error)
        else:
            super().log_exception(kind, error, trace)


class ApiHandler(Answering):
    """A handler of one row of the table of routes.

    A handler may use `self.query` (by snake_case name, checked, with defaults), `self.json()` and `self.backend`.
    """

    route: Route
    query: Mapping[str, Json]

    def initialize(self, site: Site, route: Route) -> None:  # type: ignore[override]
        super().initialize(site)
        self.route = route
        self.backend = site.backend
        self._body = bytearray()

    def check(self) -> None:
        self.site.gate.check(self.request, self.route.access, self.job())
        operation = self.route.operations.get(self.request.method or "")
        if operation is None:
            raise HTTPError(405)
        if operation.writes and self.backend.read_only:
            raise Conflict("this experiment is opened for viewing only; resume it to change something")
        self.query = read_query(operation.query, self.request.query_arguments)
        self._check_body()

    def job(self) -> str | None:
        """The job that a worker's request is about."""
        job = self.path_kwargs.get("job") or self.request.headers.get("X-Nnilite-Job", "")
        return job if job and JOB_NAME.fullmatch(job) else None

    def allowed(self) -> list[str]:
        return list(self.route.operations)

    def _check_body(self) -> None:
        """Refuse what will not be read, by its headers alone."""
        headers = self.request.headers
        if "Transfer-Encoding" in headers:
            raise Refusal(411, "send the body with a Content-Length, not in chunks")
        if self.claimed_bytes() > self.route.body_max:
            raise Refusal(413, f"the body is larger than {self.route.body_max} bytes; send less at a time")
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Refusal(415, "send the body as it is, not compressed")
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if self.request.method in _BODY_METHODS and kind != "application/json":
            raise Refusal(415, "send JSON, with the header Content-Type: application/json")

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk

    def json(self) -> Json:
        """The request's body. Raises: ConfigError."""
        return wire.loads(bytes(self._body))

    def body(self) -> bytes:
        return bytes(self._body)
