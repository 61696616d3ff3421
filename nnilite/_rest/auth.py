"""Checks who may send which request.

There are three checks, in this order, before anything of a request's body is read:

    Host      must be a name of this server: otherwise a page elsewhere could rebind its own name to it
    Origin    if a browser sent one, must be this server: otherwise any page could act for its visitor
    token     must be the manager's (Bearer, or a cookie for which a one-time sign-in link was traded), or for the
              worker's routes the token of that one trial. Each opens its own routes and no other. Keepers do not
              send the token but sign with it (see `proof`); those of version 0.1 send it.

If the server is bound to loopback, the user who runs the manager and root need no manager's token, as the kernel says
whose connection it is (see `peers`), unless the config always requires the token. The first two checks still apply,
and workers still need their tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest, split_host_and_port

from nnilite._keeper.proof import same
from nnilite._network import ip_address, is_loopback
from nnilite._rest import wire
from nnilite._rest.callback_proofs import Proofs, Signed
from nnilite._rest.options import Options
from nnilite._rest.peers import Peers
from nnilite._rest.refusal import HttpRefusal

LINK_LIFE_S = 600
SESSION_LIFE_S = 30 * 24 * 3600
LINKS_MAX = 100

_SAFE = ("GET", "HEAD", "OPTIONS")


class Access(Enum):
    """Which token opens a route."""

    MANAGER = "manager"
    TRIAL = "trial"
    OPEN = "open"  # no token is needed, as nothing is revealed; the checks of Host and Origin still apply


class HostNames:
    """The names by which this server may be called.

    If it is bound to all addresses, any IP address is accepted as well: a rebinding attack needs a name.
    """

    def __init__(self, bind: str, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*names, bind) if name}
        address = ip_address(bind)
        self._any_address = not bind or (address is not None and address.is_unspecified)
        if not is_loopback(bind):
            self._names.add(socket.gethostname().lower())

    def known(self, host: str) -> bool:
        """Whether a Host header names this server. Its port does not matter, as it may have come through a tunnel."""
        name = split_host_and_port(host.lower())[0].strip("[]").rstrip(".")
        if name in self._names or is_loopback(name):
            return True
        return self._any_address and ip_address(name) is not None


class SignIn:
    """Makes one-time links for holders of the manager's token, and trades the links for signed cookies.

    Links exist in memory only, for ten minutes at most. A cookie holds its own expiry and a signature made with the
    manager's token, so it outlives a restart but not a change of the token.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.new(token.encode(), b"nnilite sign-in cookie", hashlib.sha256).digest()
        self._clock = clock
        self._links: dict[str, float] = {}

    def link(self) -> str:
        """A new one-time token, for the user interface's address as `?token=`."""
        now = self._clock()
        self._links = {link: end for link, end in self._links.items() if end > now}
        while len(self._links) >= LINKS_MAX:
            self._links.pop(next(iter(self._links)))
        link = secrets.token_urlsafe(32)
        self._links[link] = now + LINK_LIFE_S
        return link

    def redeem(self, link: str) -> str | None:
        """A cookie for a one-time token; None if it is unknown, used or too old."""
        found = [known for known in self._links if same(link, known)]
        if not found or self._links.pop(found[0]) <= self._clock():
            return None
        end = str(int(self._clock()) + SESSION_LIFE_S)
        return f"{end}.{self._signature(end)}"

    def valid(self, cookie: str) -> bool:
        end, _, signature = cookie.partition(".")
        if not same(signature, self._signature(end)):
            return False
        return int(end) > self._clock()

    def _signature(self, end: str) -> str:
        return hmac.new(self._key, end.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


class Keys(Protocol):
    """The tokens of one server."""

    @property
    def token(self) -> str:
        """The token of its user."""

    def callback_token(self, job: str) -> str:
        """The token of a job. Every text gets one, also if there is no such job."""


class AccessGate:
    """Checks every request before its handler runs. Raises: Refusal.

    `name` is different for all servers of a user: all ports of a host share cookies, so each has one of its own name.
    """

    def __init__(self, keys: Keys, options: Options, name: str) -> None:
        self._keys = keys
        self._command = options.sign_in_command
        self._hosts = HostNames(options.bind, options.hosts)
        self._prefix = options.prefix
        self._peers = Peers({0, os.geteuid()}) if options.own_user else None  # 0: root
        self.cookie = f"nnilite-{name}"
        self.sign_in = SignIn(keys.token)
        self.proofs = Proofs()

    async def check(self, request: HTTPServerRequest, access: Access, job: str | None = None) -> Signed | None:
        """Check a request. Returns the signature of a worker's request, None for all other requests."""
        self.check_source(request)
        if access is Access.MANAGER:
            await self.check_manager(request)
        return self.check_trial(request, job) if access is Access.TRIAL else None

    def check_source(self, request: HTTPServerRequest) -> None:
        """Check Host and Origin."""
        if not self._hosts.known(request.host):
            name = wire.clean(request.host)
            raise HttpRefusal(403, f"'{name}' is not a name of this server; if it should be, set nniManagerIp to it")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit_netloc(origin) != request.host.lower():
            raise HttpRefusal(403, "a page of another origin may not use this server")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if request.method not in _SAFE and site not in ("none", "same-origin"):
            raise HttpRefusal(403, "a page of another site may not change anything here")

    async def check_manager(self, request: HTTPServerRequest) -> None:
        """Check for the manager's token, a sign-in cookie or, if allowed, a connection of this user's."""
        if same(bearer(request), self._keys.token):
            return
        if self.signed_in(request):
            if request.method not in _SAFE and "Origin" not in request.headers:
                raise HttpRefusal(403, "a signed-in browser must say its origin to change anything")
        elif self._peers is None or not await self._peers.is_own(request):
            raise HttpRefusal(401, f"sign in first: `{self._command}` prints a link, scripts send the manager's token")

    def signed_in(self, request: HTTPServerRequest) -> bool:
        cookie = request.cookies.get(self.cookie)
        return cookie is not None and self.sign_in.valid(cookie.value)

    def check_trial(self, request: HTTPServerRequest, job: str | None) -> Signed | None:
        """Check for the token of this job, or a signature made with it, to which the answer needs a proof, too.

        Unknown jobs are refused in the same way, so that a wrong token learns nothing about jobs.
        """
        if not job:
            raise HttpRefusal(401, "say in the header X-Nnilite-Job whose token this is")
        token = self._keys.callback_token(job)
        if same(bearer(request), token):
            return None
        path = (request.uri or "").removeprefix(self._prefix)
        signed = self.proofs.read(request.headers.get("Authorization", ""), token, request.method or "", path)
        if signed is None:
            raise HttpRefusal(401, "this is not the token of this job")
        return signed


def bearer(request: HTTPServerRequest) -> str:
    """The token of the Authorization header; "" if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def urlsplit_netloc(origin: str) -> str:
    """Host and port of an Origin header; "" if it has none, as "null" has."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
