"""Handlers for people and their browsers: sign-in links, sessions, and tickets for what sends no headers."""

from __future__ import annotations

from nnilite._rest import schemas as s
from nnilite._rest import wire
from nnilite._rest.auth import SESSION_HEADER, Access
from nnilite._rest.handler import RouteHandler
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.route_definition import Operation, Response, Route
from nnilite.errors import ConfigError, Place
from nnilite.records import Json

_BODY_MAX = 16 * 1024  # bytes


class SignInLinkHandler(RouteHandler):
    """A one-time link to the user interface."""

    def post(self) -> None:
        wire.strict_object(self.json(), [])
        path = f"{self.site.options.prefix}/#key={self.site.gate.sign_in.link()}"
        self.send_json({"path": path, "host": self.site.options.page_name}, 201)


class SessionHandler(RouteHandler):
    """Trades a link for a session. Its key is all that is needed."""

    async def post(self) -> None:
        gate = self.site.gate
        if not gate.sign_in.uses_up(text_of(self.json(), "link")):
            raise HttpRefusal(401, "this link was used already, or is too old")
        # Where the browser needs no key, there is none that could get lost.
        self.send_json({"key": "" if await gate.is_own(self.request) else gate.sign_in.sessions.begin()}, 201)


class SignOutHandler(RouteHandler):
    """Ends the session of a request."""

    def post(self) -> None:
        wire.strict_object(self.json(), [])
        self.site.gate.sign_in.sessions.end(self.request.headers.get(SESSION_HEADER, ""))
        self.send_json({"signedOut": True})


class TicketHandler(RouteHandler):
    """Makes a ticket for one GET of one path of the API."""

    def post(self) -> None:
        path = text_of(self.json(), "path")
        ticket = self.site.gate.sign_in.ticket(f"{self.site.options.prefix}/api/v1/{path}")
        self.send_json({"ticket": ticket}, 201)


def text_of(body: Json, name: str) -> str:
    """The only field of a body, a text. Raises: ConfigError."""
    value = wire.strict_object(body, [name]).get(name)
    if not isinstance(value, str):
        raise ConfigError("is needed, and must be a text", Place(field=name))
    return value


SESSION_ROUTES = (
    Route(
        "/sign-in-links",
        SignInLinkHandler,
        {
            "POST": Operation(
                "Make a one-time link to the user interface",
                Response(
                    "path of the link, which works once, within ten minutes, and the host name for it, if any",
                    s.record(path=s.TEXT, host=s.TEXT),
                    status=201,
                ),
                body=s.EMPTY,
            )
        },
        body_max=_BODY_MAX,
    ),
    Route(
        "/sessions",
        SessionHandler,
        {
            "POST": Operation(
                "Trade a link's key for that of a session, which ends with the server at the latest",
                Response(
                    "the value for the header X-Nnilite-Session; empty if this sender needs none",
                    s.record(key=s.TEXT),
                    status=201,
                ),
                body={**s.record(link=s.TEXT), "additionalProperties": False},
            )
        },
        access=Access.OPEN,
        body_max=_BODY_MAX,
    ),
    Route(
        "/sign-out",
        SignOutHandler,
        {
            "POST": Operation(
                "End the session of the request",
                Response("its key opens nothing any more", s.record(signedOut=s.FLAG)),
                body=s.EMPTY,
            )
        },
        body_max=_BODY_MAX,
    ),
    Route(
        "/tickets",
        TicketHandler,
        {
            "POST": Operation(
                "Make a ticket: it opens one GET of a path below /api/v1, within 30 seconds",
                Response(
                    "the value for the query parameter `ticket`, or for a protocol of a WebSocket",
                    s.record(ticket=s.TEXT),
                    status=201,
                ),
                body={**s.record(path=s.TEXT), "additionalProperties": False},
            )
        },
        body_max=_BODY_MAX,
    ),
)
