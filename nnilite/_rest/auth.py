"""Checks who may send which request.

There are three checks, in this order, before anything of a request's body is read:

    Host      must be a name of this server: otherwise a page elsewhere could rebind its own name to it
    Origin    if a browser sent one, must be this server: otherwise any page could act for its visitor
    token     must be the manager's (Bearer), a ticket or the signature of a page (see `sign_in`), or for the worker's
              routes the token of that one trial. Each opens its own routes and no other. Keepers do not send the token
              but sign with it (see `proof`); those of version 0.1 send it.

No cookie opens anything: a browser sends cookies to all ports of a host, whatever program listens there.

If the server is bound to loopback, the programs of the user who runs it need no token, as the kernel says whose
connection it is (see `peers`), unless the config always requires the token. A browser is such a program, but what it
asks may come from any page that it shows. So it needs no key only under the server's page name (see `page_name`), and
the first two checks still apply. Workers still need their tokens.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from enum import Enum
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest, split_host_and_port

from nnilite._keeper.proof import same
from nnilite._network.host_names import ip_address, is_loopback
from nnilite._rest import wire
from nnilite._rest.callback_proofs import Proofs, SignedRequest
from nnilite._rest.options import ServerOptions
from nnilite._rest.page_name import is_browser, is_former, opens_a_page
from nnilite._rest.peers import Peers
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.sign_in import SignIn

SESSION_HEADER = "X-Nnilite-Session"
"""Names the session whose key has signed a request. The name opens nothing."""

TICKET = "ticket"
"""The query parameter with a ticket."""

STREAM_PROTOCOL = "nnilite"
"""The WebSocket protocol of the live stream. A page offers its ticket as a second one."""

_SAFE = ("GET", "HEAD", "OPTIONS")


class Access(Enum):
    """Which token opens a route."""

    MANAGER = "manager"
    TRIAL = "trial"
    OPEN = "open"  # no token is needed, as nothing is revealed; the checks of Host and Origin still apply


class HostNames:
    """The names that this server accepts as its own.

    If it is bound to all addresses, any IP address is accepted as well: a rebinding attack needs a name.
    """

    def __init__(self, bind: str, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*names, bind) if name}
        address = ip_address(bind)
        self._any_address = not bind or (address is not None and address.is_unspecified)
        if not is_loopback(bind):
            self._names.add(socket.gethostname().lower())

    def accepts(self, host: str) -> bool:
        """Return whether a Host header names this server.

        Its port does not matter, as it may have come through a tunnel.
        """
        name = split_host_and_port(host.lower())[0].strip("[]").rstrip(".")
        if name in self._names or is_loopback(name):
            return True
        return self._any_address and ip_address(name) is not None


class AccessGate:
    """Checks every request before its handler runs. Raises: Refusal.

    `token` is that of the server's user. `callback_token` returns that of a job: every text has one, a job or not.
    """

    def __init__(self, token: str, callback_token: Callable[[str], str], options: ServerOptions) -> None:
        self._token = token
        self._callback_token = callback_token
        self._command = options.sign_in_command
        self._hosts = HostNames(options.bind, options.hosts)
        self._prefix = options.prefix
        self._peers = Peers({os.geteuid()}) if options.own_user else None
        self.page_name = options.page_name
        self.sign_in = SignIn()
        self.proofs = Proofs()

    async def check(self, request: HTTPServerRequest, access: Access, job: str | None = None) -> SignedRequest | None:
        """Check a request. Return the signature of one that is signed."""
        self.check_source(request)
        if access is Access.MANAGER:
            return await self.check_manager(request)
        return self.check_trial(request, job) if access is Access.TRIAL else None

    def check_source(self, request: HTTPServerRequest) -> None:
        """Check Host and Origin.

        A proxy may have any name. Behind one each request needs a key, so a page that rebinds its name gains nothing.
        """
        if not self._prefix and not self._hosts.accepts(request.host):
            name = wire.clean(request.host)
            cure = "behind a proxy start it with --url-prefix; if it is a name of this machine, set nniManagerIp to it"
            raise HttpRefusal(403, f"'{name}' is not a name of this server; {cure}")
        if is_former(request.host_name, self.page_name):
            raise HttpRefusal(421, "the server has restarted since this page was loaded; load the page again")
        origin = request.headers.get("Origin")
        if origin is not None and split_netloc(origin) != request.host.lower():
            raise HttpRefusal(403, "a page of another origin may not use this server")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin") and not _follows_a_link(request):
            raise HttpRefusal(403, "a page of another site may not use this server")

    async def check_manager(self, request: HTTPServerRequest) -> SignedRequest | None:
        """Check for the manager's token, a page's signature or ticket, or, if that is allowed, a program of this user.

        Return the signature, if it is that.
        """
        if self.has_token(request):
            return None
        signed = self._check_page_signature(request)
        if signed is not None:
            if request.method not in _SAFE and "Origin" not in request.headers:
                raise HttpRefusal(403, "a signed-in browser must send its origin to change anything")
        elif not self._has_ticket(request) and not await self.is_own(request):
            raise HttpRefusal(401, f"sign in first: `{self._command}` prints a link, scripts send the manager's token")
        return signed

    def _check_page_signature(self, request: HTTPServerRequest) -> SignedRequest | None:
        """Return the signature of a signed-in page's request that was not taken before; None if there is none."""
        name, authorization = request.headers.get(SESSION_HEADER, ""), request.headers.get("Authorization", "")
        return self.sign_in.signed(name, authorization, request.method or "", self._find_signed_path(request))

    def _find_signed_path(self, request: HTTPServerRequest) -> str:
        """Return the path that requests sign, with the query, without any prefix that a proxy has added."""
        return (request.uri or "").removeprefix(self._prefix)

    def has_token(self, request: HTTPServerRequest) -> bool:
        """Return whether a request has the manager's token."""
        return same(bearer(request), self._token)

    async def is_own(self, request: HTTPServerRequest) -> bool:
        """Return whether the request needs no key, as it is from a program of this user or a page of this start."""
        if self.page_name and is_browser(request) and request.host_name.lower() != self.page_name:
            return False
        return self._peers is not None and await self._peers.is_own(request)

    async def find_better_host(self, request: HTTPServerRequest) -> str | None:
        """Return the host under which a browser should open this page instead, with its port; None if it need not.

        The user's own browser goes to the page name, and a page of an earlier start to one that says what to do.
        """
        if not self.page_name or not opens_a_page(request) or request.host_name.lower() == self.page_name:
            return None
        if not is_loopback(request.host_name):
            return None
        port = request.host[len(request.host_name) :]
        if self._peers is not None and await self._peers.is_own(request):
            return self.page_name + port
        return f"localhost{port}" if is_former(request.host_name, self.page_name) else None

    def _has_ticket(self, request: HTTPServerRequest) -> bool:
        """Return whether a request has a ticket for its path, in its query or among the protocols of a WebSocket."""
        protocols = request.headers.get("Sec-WebSocket-Protocol", "")
        offered = [word.strip() for word in protocols.split(",") if word.strip() != STREAM_PROTOCOL]
        given = [text.decode("utf-8", "replace") for text in request.query_arguments.pop(TICKET, [])]
        tickets = [*given, *offered][:1]
        return request.method == "GET" and any(self.sign_in.admits(ticket, request.path) for ticket in tickets)

    def check_trial(self, request: HTTPServerRequest, job: str | None) -> SignedRequest | None:
        """Check for the token of this job, or a signature made with it, to which the answer needs a proof, too.

        Unknown jobs are refused in the same way, so that a wrong token learns nothing about jobs.
        """
        if not job:
            raise HttpRefusal(401, "name the job of this token in the header X-Nnilite-Job")
        token = self._callback_token(job)
        if same(bearer(request), token):
            return None
        authorization = request.headers.get("Authorization", "")
        signed = self.proofs.read(authorization, token, request.method or "", self._find_signed_path(request))
        if signed is None:
            raise HttpRefusal(401, "this is not the token of this job")
        return signed


def bearer(request: HTTPServerRequest) -> str:
    """Return the token of the Authorization header; "" if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _follows_a_link(request: HTTPServerRequest) -> bool:
    """Return whether this opens an address in a tab.

    A page of another site may do that: it cannot see what is there.
    """
    return request.method in _SAFE and request.headers.get("Sec-Fetch-Mode") == "navigate"


def split_netloc(origin: str) -> str:
    """Return host and port of an Origin header; "" if it has none, as "null" has."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
