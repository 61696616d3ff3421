"""Who may ask what.

Three checks, in this order, before anything of a request's body is read:

    Host      must be a name of this server: else a page elsewhere could rebind its own name to it
    Origin    if a browser sent one, must be this server: else any page could act for its visitor
    token     the manager's (Bearer, or the cookie that a one-time sign-in link was traded for), or for the worker's
              routes the token of that one trial. Each opens its own routes and no other.

Without a manager's token (bound to loopback) the first two still hold, and workers still need theirs.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from enum import Enum
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest, split_host_and_port

from nnilite._rest import wire
from nnilite._rest.backend import Backend
from nnilite._rest.refusal import Refusal

LINK_LIFE_S = 600
SESSION_LIFE_S = 30 * 24 * 3600
LINKS_MAX = 100

_SAFE = ("GET", "HEAD", "OPTIONS")


class Access(Enum):
    """Whose token opens a route."""

    MANAGER = "manager"
    TRIAL = "trial"
    OPEN = "open"  # the handler decides for itself; the checks of Host and Origin still hold


def same(given: str, wanted: str) -> bool:
    """Compare secrets in a time that does not tell how much of them is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def is_loopback(host: str) -> bool:
    """Whether a bind address or host name can only be reached from this machine."""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


class HostNames:
    """The names by which this server may be called.

    Bound to all addresses, any IP address will do besides the names: rebinding needs a name.
    """

    def __init__(self, bind: str, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*names, bind) if name}
        address = _address(bind)
        self._any_address = not bind or (address is not None and address.is_unspecified)
        if not is_loopback(bind):
            self._names.add(socket.gethostname().lower())

    def known(self, host: str) -> bool:
        """Whether a Host header (its port does not matter: it may have come through a tunnel) is ours."""
        name = split_host_and_port(host.lower())[0].strip("[]").rstrip(".")
        if name in self._names or is_loopback(name):
            return True
        return self._any_address and _address(name) is not None


class SignIn:
    """Trades the manager's token for one-time links, and those for signed cookies.

    Links live in memory only, ten minutes at most. A cookie holds its own end and a signature made with the manager's
    token, so it outlives a restart, and a new token ends it.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.new(token.encode(), b"nnilite sign-in cookie", hashlib.sha256).digest()
        self._clock = clock
        self._links: dict[str, float] = {}

    def link(self) -> str:
        """A new one-time token, to be given to the user interface as `?token=`."""
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


class Gate:
    """Checks every request before its handler runs. Raises: Refusal."""

    def __init__(self, backend: Backend, hosts: HostNames) -> None:
        self._backend = backend
        self._hosts = hosts
        self.cookie = f"nnilite-{backend.experiment_id}"  # ports share their cookies, so each experiment has a name
        self.sign_in = None if backend.token is None else SignIn(backend.token)

    def check(self, request: HTTPServerRequest, access: Access, job: str | None = None) -> None:
        self.check_source(request)
        if access is Access.MANAGER:
            self.check_manager(request)
        elif access is Access.TRIAL:
            self.check_trial(request, job)

    def check_source(self, request: HTTPServerRequest) -> None:
        """Host and Origin."""
        if not self._hosts.known(request.host):
            name = wire.clean(request.host)
            raise Refusal(403, f"'{name}' is not a name of this server; if it should be, set nniManagerIp to it")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit_netloc(origin) != request.host.lower():
            raise Refusal(403, "a page of another origin may not use this server")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if request.method not in _SAFE and site not in ("none", "same-origin"):
            raise Refusal(403, "a page of another site may not change anything here")

    def check_manager(self, request: HTTPServerRequest) -> None:
        """The manager's token or a sign-in cookie, where the manager has a token at all."""
        token = self._backend.token
        if token is None or same(bearer(request), token):
            return
        if not self.signed_in(request):
            raise Refusal(401, "sign in first: `nnictl webui url` prints a link, scripts send the manager's token")
        if request.method not in _SAFE and "Origin" not in request.headers:
            raise Refusal(403, "a signed-in browser must say its origin to change anything")

    def signed_in(self, request: HTTPServerRequest) -> bool:
        cookie = request.cookies.get(self.cookie)
        return self.sign_in is not None and cookie is not None and self.sign_in.valid(cookie.value)

    def check_trial(self, request: HTTPServerRequest, job: str | None) -> None:
        """The token of this job. Unknown jobs are refused alike: a wrong token learns nothing about jobs."""
        if not job:
            raise Refusal(401, "say in the header X-Nnilite-Job whose token this is")
        if not same(bearer(request), self._backend.callback_token(job)):
            raise Refusal(401, "this is not the token of this job")


def bearer(request: HTTPServerRequest) -> str:
    """The token of the Authorization header; "" if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def urlsplit_netloc(origin: str) -> str:
    """Host and port of an Origin header; "" for one that is none, such as "null"."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
