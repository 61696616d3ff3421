"""Puts the REST interface together and listens."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, PathMatches, Rule, URLSpec
from tornado.web import Application, RequestHandler

from nnilite._answers.backend import Backend
from nnilite._logging.secret_filter import guard_server_logs
from nnilite._network.host_names import is_loopback
from nnilite._rest.auth import AccessGate
from nnilite._rest.handler import BaseHandler, ManagerContext, ServerContext
from nnilite._rest.openapi import document
from nnilite._rest.options import ServerOptions
from nnilite._rest.page_name import ADDRESSES
from nnilite._rest.port_binding import bind
from nnilite._rest.route_definition import SERVER_BODY_MAX, Route
from nnilite._rest.routes import ROUTES
from nnilite._rest.server_connections import RestServer
from nnilite._rest.web import PlainPage, WebHandler
from nnilite.errors import ConfigError
from nnilite.records import Json

access_log = logging.getLogger("tornado.access")

HEADERS_MAX = 32 * 1024  # bytes


class RestApplication(Application):
    """A tornado application that knows its context."""

    context: ServerContext


def make_application(backend: Backend, options: ServerOptions | None = None) -> RestApplication:
    """Make the whole REST interface of one manager.

    Example: `listen(make_application(backend, Options(bind="127.0.0.1")), "127.0.0.1", 8080)`
    """
    options = options or ServerOptions()
    context = ManagerContext(
        AccessGate(backend.token, backend.callbacks.callback_token, options), options, backend=backend
    )
    guard_server_logs([backend.token])
    return assembled(context, ROUTES, document(ROUTES, options.prefix))


def assembled(context: ServerContext, routes: Sequence[Route], openapi: Json) -> RestApplication:
    """Make the application of these routes and of the context's page."""
    options = context.options
    application = RestApplication(
        _rules(context, routes),
        default_handler_class=BaseHandler,
        default_handler_args={"context": context},
        openapi=openapi,
        log_function=_log_request,
        websocket_ping_interval=options.ping_s,
        websocket_ping_timeout=options.ping_s,
        websocket_max_message_size=4096,
    )
    application.context = context
    return application


def sign_in_address(application: RestApplication, url: str) -> str:
    """Return the address of the user interface with a fresh one-time key; `url`: that of the server."""
    context = application.context
    parts = urlsplit(url)
    netloc = f"{context.options.page_name}:{parts.port}" if context.options.page_name else parts.netloc
    return f"{parts.scheme}://{netloc}{context.options.prefix}/#key={context.gate.sign_in.link()}"


class _Addresses(Matcher):
    """The addresses of a route. Their pattern is compiled for the first request that needs it, since all take 10 ms."""

    def __init__(self, prefix: str, route: Route) -> None:
        self._begin = f"{prefix}/api/v1{route.path.partition('{')[0]}"
        self._pattern = f"{re.escape(prefix)}/api/v1{route.pattern}"

    @cached_property
    def _compiled(self) -> PathMatches:
        return PathMatches(self._pattern)

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        return self._compiled.match(request) if request.path.startswith(self._begin) else None


def _rules(context: ServerContext, routes: Sequence[Route]) -> list[Rule]:
    prefix = re.escape(context.options.prefix)
    rules: list[Rule] = [
        Rule(_Addresses(context.options.prefix, route), route.handler, {"context": context, "route": route})
        for route in routes
    ]
    rules.append(URLSpec(rf"{prefix}/api(?:/.*)?", BaseHandler, {"context": context}))
    rules.append(_make_web_rule(context, prefix, routes))
    return rules


def _make_web_rule(context: ServerContext, prefix: str, routes: Sequence[Route]) -> URLSpec:
    pattern = rf"{prefix}(?:/(?P<path>.*))?"
    if (context.options.web_folder / context.options.page).is_file():
        return URLSpec(pattern, WebHandler, {"context": context})
    return URLSpec(pattern, PlainPage, {"context": context, "routes": routes})


def _log_request(handler: RequestHandler) -> None:
    """Log a request. Callbacks come by the thousand, so those that succeed are only logged for debugging."""
    status = handler.get_status()
    more: str | None = ""
    if status >= 400 and isinstance(handler, BaseHandler) and not handler.is_users:
        # Strangers and trials can be refused as often as they like, and must not fill the log by it.
        more = handler.context.refusals.more(handler.sender(), handler.refusal or str(status))
    level = logging.DEBUG if status < 400 else logging.INFO if status < 500 else logging.ERROR
    if more is None or not access_log.isEnabledFor(level):
        return
    request = handler.request
    if status == 401:
        access_log.info("401 %s %s of %s%s", request.method, request.uri, request.remote_ip, more)
    else:
        seconds = request.request_time()
        access_log.log(level, "%d %s %s %.1f ms%s", status, request.method, request.uri, 1000 * seconds, more)


def listen(
    application: RestApplication,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
) -> RestServer:
    """Begin to serve. `host` "" means all addresses, `port` 0 any free one. This must be called on the event loop.

    Raises: Conflict if the port is taken; ConfigError if it is impossible to listen there, or if `own_user` is set
    although other machines could connect.
    """
    options = application.context.options
    if options.own_user and not is_loopback(host):
        raise ConfigError(f"listening on '{host or 'all addresses'}' needs a token, since others can connect there")
    tls = None if certificate is None else _make_tls(certificate, key)
    sockets = bind([host, *ADDRESSES] if options.page_name else [host], port)
    server = RestServer(
        application,
        connections=application.context.connections,
        idle_timeout_s=options.idle_timeout_s,
        ssl_options=tls,
        max_header_size=HEADERS_MAX,
        max_body_size=SERVER_BODY_MAX,
        idle_connection_timeout=options.head_timeout_s,
        body_timeout=options.body_timeout_s,
    )
    server.add_sockets(sockets)
    server.port = sockets[0].getsockname()[1]
    return server


def _make_tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the TLS certificate {certificate} and its key cannot be used: {error}") from error
    return context
