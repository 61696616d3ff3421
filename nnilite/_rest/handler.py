"""The base of all JSON handlers: checks before the body is read, a bounded body, security headers, errors as JSON."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from asyncio import Future
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tornado.escape import utf8
from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler, stream_request_body

from nnilite._answers import late_request
from nnilite._answers.backend import Backend
from nnilite._keeper.proof import HEADER, digest
from nnilite._logging.sparse_log import SparseLog
from nnilite._rest import wire
from nnilite._rest.auth import Access, AccessGate
from nnilite._rest.body_budget import BodyBudget, BodyReservation
from nnilite._rest.callback_proofs import SignedRequest
from nnilite._rest.file_digests import FileDigests
from nnilite._rest.options import ServerOptions
from nnilite._rest.refusal import HttpRefusal, body_of, explain_to_user, status_of
from nnilite._rest.request_body import BODY_METHODS, STRANGERS_BODY_MAX, check_body, claimed_bytes
from nnilite._rest.route_definition import SERVER_BODY_MAX, Operation, Route, read_query
from nnilite._rest.server_connections import ServerConnections, hang_up, stream_of
from nnilite.errors import Conflict, NniliteError
from nnilite.records import Json, strict_json

log = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
OLD_COOKIE = "nnilite-"
JOB_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def _drop(chunk: bytes) -> None:
    """Ignore a piece of the body of a refused request."""


@dataclass
class StreamCount:
    """Counts the open live streams."""

    open: int = 0


@dataclass
class Activity:
    """When the last request came that was not refused. Times are those of the monotonic clock."""

    last: float = field(default_factory=time.monotonic)

    def record(self) -> None:
        self.last = time.monotonic()


@dataclass(frozen=True)
class ServerContext:
    """The objects that all handlers of one server share, whatever it serves."""

    gate: AccessGate
    options: ServerOptions
    streams: StreamCount = field(default_factory=StreamCount)
    activity: Activity = field(default_factory=Activity)
    connections: ServerConnections = field(default_factory=ServerConnections)
    refusals: SparseLog = field(default_factory=SparseLog)
    bodies: BodyBudget = field(default_factory=BodyBudget)  # bodies of trials' requests
    digests: FileDigests = field(default_factory=FileDigests)  # digests of the files that trials fetch

    @property
    def has_callers(self) -> bool:
        """Whether a caller has a connection open, to get an answer or to ask again, or watches a live stream."""
        return self.streams.open > 0 or len(self.connections) > 0

    def idle_s(self) -> float:
        """Return the seconds since the last request; 0 while a page is open."""
        return 0.0 if self.streams.open else time.monotonic() - self.activity.last


@dataclass(frozen=True, kw_only=True)
class ManagerContext(ServerContext):
    """The objects that all handlers of a manager's server share."""

    backend: Backend


@stream_request_body
class BaseHandler(RequestHandler):
    """Checks, headers and errors for handlers of any kind. Its own check refuses all requests as not found.

    The checks run once the headers have come. Of a refused request, no byte of the body is kept.
    """

    context: ServerContext
    policy = API_POLICY
    signed: SignedRequest | None = None  # set for a request whose answer needs a proof
    refusal = ""  # why the sender has to sign in first
    trial_job = ""  # the job whose token the request has
    is_users = False  # whether the sender has proven to be the manager's user, who may also fill the log

    def initialize(self, context: ServerContext) -> None:
        self.context = context

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in SECURITY_HEADERS.items():
            self.set_header(name, value)
        self.set_header("Content-Security-Policy", self.policy)

    def compute_etag(self) -> str | None:
        return None

    async def prepare(self) -> None:
        try:
            host = await self.context.gate.find_better_host(self.request)
            if host is not None:
                _send_to(self, host)
                return
            with self.context.connections.checking(stream_of(self.request)):
                await self.check()
        except (NniliteError, HTTPError) as error:
            if not _drains_refused_body(self):
                raise
            self._refuse_after_body(error)
        else:
            if self.checks_sender():
                self.context.activity.record()
                self.context.connections.busy(stream_of(self.request), self.trial_job)

    def checks_sender(self) -> bool:
        """Return whether only requests of known senders pass the check."""
        return True

    async def check(self) -> None:
        """Make all checks that need no body. Raises: NniliteError, HTTPError."""
        self.signed = await self.context.gate.check(self.request, Access.MANAGER)
        self.is_users = True
        raise HTTPError(404)

    def data_received(self, chunk: bytes) -> None:
        """Drop the body, which this handler does not use."""

    def _refuse_after_body(self, error: Exception) -> None:
        """Drop the body, and answer after its end.

        After an earlier answer, tornado would close the connection, perhaps with unread data in it. The client's system
        then discards the answer, and the client sees a reset instead of the reason.
        """

        def refuse(*args: str, **kwargs: str) -> None:
            raise error

        self.data_received = _drop  # type: ignore[method-assign]
        setattr(self, (self.request.method or "").lower(), refuse)

    def send_json(self, value: Json, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(strict_json.spell_json(value).encode("ascii"))

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> Future[None]:
        """Answer. An answer that is whole is proven to the sender of a signed request."""
        if self.signed is not None and isinstance(chunk, str | bytes) and not _is_begun(self):
            chunk = utf8(chunk)
            prove(self, self.signed, digest(chunk))
        return super().finish(chunk)

    async def send_piece(self, chunk: bytes) -> None:
        """Write a chunk and wait until it is sent. A reader that takes too long loses the connection."""
        self.write(chunk)
        try:
            await asyncio.wait_for(self.flush(), self.context.options.reader_timeout_s)
        except (TimeoutError, asyncio.TimeoutError, StreamClosedError):
            hang_up(self.request)
            raise Finish() from None

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer an error. If a part of the answer is sent already, cut it short, so that the reader notices."""
        if self._headers_written:
            hang_up(self.request)
        else:
            super().send_error(status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        error = explain_to_user(error) if self.is_users else error
        status = status_of(error) if error is not None else status_code
        if status == 503:
            self.set_header("Retry-After", "1")
        if status == 401:
            self.refusal = str(error)
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
            # A user's request that fails for a reason without a status of its own is worth a line in the log.
            level = logging.ERROR if self.is_users and status_of(error) == 500 else logging.DEBUG
            log.log(level, "%s %s refused: %s", self.request.method, self.request.path, error)
        elif self.is_users or self.context.refusals.left_out(self.sender(), repr(kind)) is not None:
            super().log_exception(kind, error, trace)

    def sender(self) -> str:
        """Return the sender of the request, as far as it is proven."""
        return self.request.remote_ip or ""


def _send_to(handler: BaseHandler, host: str) -> None:
    """Have the browser open the same page under another name of this server."""
    handler.set_status(303)
    handler.set_header("Location", f"{handler.request.protocol}://{host}{handler.request.uri}")
    drop_old_cookies(handler)
    handler.finish()


def drop_old_cookies(handler: BaseHandler) -> None:
    """Have the browser drop the cookies of sign-ins to earlier versions, which it sends to all ports."""
    for name in handler.request.cookies:
        if name.startswith(OLD_COOKIE):
            handler.set_cookie(name, "", expires_days=-1, path=f"{handler.context.options.prefix}/")


def _drains_refused_body(handler: BaseHandler) -> bool:
    """Return whether the body of a refused request is read, although it is dropped; see `_refuse_after_body`."""
    request = handler.request
    if {"Transfer-Encoding", "Expect"} & set(request.headers):  # after an `Expect`, none is on its way yet
        return False
    known = handler.is_users or handler.sender() != request.remote_ip or handler.context.gate.has_token(request)
    return claimed_bytes(request) <= (SERVER_BODY_MAX if known else STRANGERS_BODY_MAX)


def _is_begun(handler: BaseHandler) -> bool:
    """Return whether the answer has its proof already, or a part of it is on its way."""
    return handler._headers_written or bool(handler._write_buffer) or HEADER in handler._headers


def prove(handler: BaseHandler, signed: SignedRequest, content: str) -> None:
    """Prove to the sender of a signed request that the answer is the server's.

    `content`: the digest of the body, as it is before it is compressed for the way.
    """
    handler.set_header(HEADER, signed.proof(handler.get_status(), content))


class RouteHandler(BaseHandler):
    """A handler of one row of a table of routes.

    A handler can use `self.query` (by snake_case name, checked, with defaults) and `self.json()`.
    """

    route: Route
    query: Mapping[str, Json]

    def initialize(self, context: ServerContext, route: Route) -> None:  # type: ignore[override]
        super().initialize(context)
        self.route = route
        self._body = bytearray()
        self._hold = BodyReservation(context.bodies)

    async def check(self) -> None:
        self.signed = await self.context.gate.check(self.request, self.route.access, self.job())
        self.is_users = self.route.access is Access.MANAGER
        if self.route.access is Access.TRIAL:
            self.trial_job = self.job() or ""
            self.context.connections.admit(stream_of(self.request), self.trial_job)
        operation = self.route.operations.get(self.request.method or "")
        if operation is None:
            raise HTTPError(405)
        self.check_operation(operation)
        if late_request.is_late(self.request.headers.get(late_request.HEADER, "")):
            raise Conflict("this request came when its sender no longer waited for it, and nothing was done")
        self.query = read_query(operation.query, self.request.query_arguments)
        check_body(self.request, self.route.body_max)
        if self.route.access is Access.TRIAL and self.request.method in BODY_METHODS:
            self._hold.add(self.job() or "", claimed_bytes(self.request))

    def on_finish(self) -> None:
        self._hold.release()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if len(self._body) < claimed_bytes(self.request):  # a whole one is being handled, and `on_finish` follows
            self._hold.release()

    def checks_sender(self) -> bool:
        return self.route.access is not Access.OPEN

    def check_operation(self, operation: Operation) -> None:
        """Make the checks of the method itself. Raises: NniliteError."""

    def sender(self) -> str:
        return self.trial_job or super().sender()

    def job(self) -> str | None:
        """Return the job that a worker's request is about."""
        job = self.path_kwargs.get("job") or self.request.headers.get("X-Nnilite-Job", "")
        return job if job and JOB_NAME.fullmatch(job) else None

    def allowed(self) -> list[str]:
        return list(self.route.operations)

    def data_received(self, chunk: bytes) -> None:
        # No other method has a body by HTTP's rules. If one is sent anyway, nothing of it is kept.
        if self.request.method in BODY_METHODS:
            self._body += chunk

    def json(self) -> Json:
        """Return the request's body. Raises: ConfigError, HttpRefusal if it is not the one that was signed."""
        body = bytes(self._body)
        if self.signed is not None and digest(body) != self.signed.content:
            raise HttpRefusal(401, "the body is not as it was signed")
        return wire.loads(body)

    def body(self) -> bytes:
        return bytes(self._body)


class ApiHandler(RouteHandler):
    """A handler of a manager's route; it can use `self.backend`, too."""

    context: ManagerContext

    def initialize(self, context: ManagerContext, route: Route) -> None:  # type: ignore[override]
        super().initialize(context, route)
        self.backend = context.backend

    def check_operation(self, operation: Operation) -> None:
        if operation.writes and self.backend.read_only:
            raise Conflict("this experiment is opened for viewing only; resume it to change something")
