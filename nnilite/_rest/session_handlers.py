"""Handlers for people and their browsers: sign-in links, sessions, and tickets for what sends no headers."""

from __future__ import annotations

import re

from nnilite._rest import schemas as s
from nnilite._rest import wire
from nnilite._rest.auth import SESSION_HEADER, Access
from nnilite._rest.handler import RouteHandler
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.route_definition import Operation, Param, Response, Route
from nnilite.errors import ConfigError, Place
from nnilite.records import Json

_BODY_MAX = 16 * 1024  # bytes
_NONCE = "^[0-9a-f]{32,64}$"
SESSION = Param("session", {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "name of the session")
NONCE = Param("nonce", {"type": "string", "pattern": _NONCE}, "the page's random digits", required=True)


class SignInLinkHandler(RouteHandler):
    """A one-time link to the user interface."""

    def post(self) -> None:
        wire.check_strict_object(self.json(), [])
        path = f"{self.context.options.prefix}/#key={self.context.gate.sign_in.link()}"
        self.send_json({"path": path, "host": self.context.options.page_name}, 201)


class SessionHandler(RouteHandler):
    """Trades a link for a session. The key of the session is computed by both ends, and never sent."""

    async def post(self) -> None:
        gate = self.context.gate
        name, mine, proof = read_texts(self.json(), "link", "nonce", "proof")
        if re.fullmatch(_NONCE, mine) is None:
            raise ConfigError("must be 32 to 64 hex digits", Place(field="nonce"))
        # Where the browser needs no key, there is none that could get lost.
        answer = gate.sign_in.trade(name, mine, proof, needs_key=not await gate.is_own(self.request))
        if answer is None:
            raise HttpRefusal(401, "this link was used already, or is too old")
        self.send_json(answer, 201)


class SessionProofHandler(RouteHandler):
    """Proves to a page that this is the server at which it has signed in. Others learn nothing from the answer."""

    def get(self, session: str) -> None:
        answer = self.context.gate.sign_in.meet(session, self.query["nonce"])
        if answer is None:
            raise HttpRefusal(401, "this session has ended")
        self.send_json(answer)


class SignOutHandler(RouteHandler):
    """Ends the session of a request."""

    def post(self) -> None:
        wire.check_strict_object(self.json(), [])
        if self.signed is not None:
            self.context.gate.sign_in.sign_out(self.request.headers[SESSION_HEADER])
        self.send_json({"signedOut": True})


class TicketHandler(RouteHandler):
    """Makes a ticket for one GET of one path of the API."""

    def post(self) -> None:
        (path,) = read_texts(self.json(), "path")
        ticket = self.context.gate.sign_in.ticket(f"{self.context.options.prefix}/api/v1/{path}")
        self.send_json({"ticket": ticket}, 201)


def read_texts(body: Json, *names: str) -> list[str]:
    """Return the fields of a body, which are all texts. Raises: ConfigError."""
    fields = wire.check_strict_object(body, names)
    for name in names:
        if not isinstance(fields.get(name), str):
            raise ConfigError("is needed, and must be text", Place(field=name))
    return [fields[name] for name in names]


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
                "Trade a link for a session, which ends with the server at the latest",
                Response(
                    "the server's nonce, empty if this sender needs no key, and proof", s.ref("Proof"), status=201
                ),
                body={**s.record(link=s.TEXT, nonce=NONCE.schema, proof=s.TEXT), "additionalProperties": False},
            )
        },
        access=Access.OPEN,
        body_max=_BODY_MAX,
    ),
    Route(
        "/sessions/{session}/proof",
        SessionProofHandler,
        {
            "GET": Operation(
                "Prove to the page of a session that this is its server",
                Response("the server's nonce and proof", s.ref("Proof")),
                query=(NONCE,),
            )
        },
        (SESSION,),
        access=Access.OPEN,
    ),
    Route(
        "/sign-out",
        SignOutHandler,
        {
            "POST": Operation(
                "End the session of the request",
                Response("its key is no longer valid", s.record(signedOut=s.FLAG)),
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
