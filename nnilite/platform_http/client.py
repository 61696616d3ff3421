"""The calls to the REST interface of a platform."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from nnilite._logging.redaction import hide, redact
from nnilite._loop_waits import in_thread
from nnilite.errors import ConfigError, Place
from nnilite.platform_http import _patience
from nnilite.platform_http._abortable import AbortableAdapter, Try
from nnilite.platform_http._problems import (
    AccessRefused,
    Missing,
    Outage,
    Problem,
    Throttled,
    Untrusted,
    chain,
    describe_error,
    kind_and_cure,
    retry_after_s,
)
from nnilite.platform_http._problems import reply as reply_of
from nnilite.records import Json
from nnilite.units import Duration, FilePath, SecretText

log = logging.getLogger(__name__)

_SAFE = ("GET", "HEAD", "PUT", "DELETE")
_PASSING = (429, 500, 502, 503, 504)
_REDIRECTS = 5
_CHUNK_BYTES = 1 << 16
_UNSENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """Fields for the address of a platform and the way to it. To be inherited by a `Config`."""

    ca_cert: Annotated[FilePath | None, "PEM file of the authority that has signed the platform's certificate"] = None
    insecure_skip_tls_verify: Annotated[
        bool, "do not check the platform's certificate; anyone in between can then read the login"
    ] = False
    request_timeout: Annotated[Duration, "how long the platform may take for one answer"] = 30


@dataclass
class Credential:
    """The caller's login. Change `token`, or give `renew`, which gets a new one where there is none or it has expired.

    `renew` makes its calls with `Request(..., anonymous=True)`. `spell` makes headers of a token.
    """

    token: str = field(default="", repr=False)
    renew: Callable[[], Awaitable[str]] | None = None
    spell: Callable[[str], Mapping[str, str]] = lambda token: {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class HttpRequest:
    """One call. A `body` may be JSON, bytes, or the path of a file, which is sent piece by piece."""

    method: str
    path: str  # below the address of the platform
    query: Mapping[str, str | int] = field(default_factory=dict, repr=False)
    body: Json | bytes | Path = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    repeat: bool = False  # it may be sent twice though its method does not say so
    anonymous: bool = False  # without the credential
    timeout_s: float | None = None  # for one try; None: the config's
    patience_s: float = 40.0  # for all tries; the engine gives up a call after 60 s
    max_bytes: int = 64_000_000  # limit for the answer
    status_suffices: bool = False  # do not read the content of an answer with a status under 300

    @property
    def repeatable(self) -> bool:
        """Whether nothing can be done twice by sending it again."""
        return self.repeat or self.method in _SAFE


@dataclass(frozen=True)
class HttpAnswer:
    """What the platform has answered: a status under 300."""

    status: int
    headers: Mapping[str, str]  # upper and lower case do not matter
    content: bytes
    place: str  # what was requested, for messages

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the JSON.

        Raises: Outage if it is not JSON, as where a proxy has answered in the place of the platform.
        """
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            start = redact(self.text[:80])
            raise Outage(f"{self.place} answered with something other than JSON, which begins with {start!r}") from None


@dataclass(eq=False)
class _NoAnswer(Exception):
    """There was no whole answer."""

    problem: Problem
    unsent: bool = False  # the platform has certainly not begun with it


class PlatformHttp:
    """Calls one platform. Its methods are for one event loop. Raises: ConfigError for an invalid address."""

    def __init__(self, name: str, address: str, config: HttpConfig, credential: Credential | None = None) -> None:
        self._name = name
        self._address = _checked(name, address)
        self._config = config
        self._credential = credential or Credential()
        self._verify: bool | str = str(config.ca_cert) if config.ca_cert else not config.insecure_skip_tls_verify
        self._session = _session()
        self._requested_pause = _patience.RequestedPause(f"{name} at {self._address}")
        self._renewal = asyncio.Lock()
        self._turns = asyncio.Semaphore(_patience.CALLS_AT_ONCE)
        for each in fields(config):
            value = getattr(config, each.name)
            if isinstance(value, SecretText):
                hide(value)
        hide(self._credential.token)
        if not self._verify:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            log.warning("insecureSkipTlsVerify: the identity of %s at %s is not verified", name, self._address)

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> HttpAnswer:
        """Send a GET request. Raises: Problem, as all calls."""
        return await self.call(HttpRequest("GET", path, query or {}))

    async def post(self, path: str, body: Json | bytes = None) -> HttpAnswer:
        return await self.call(HttpRequest("POST", path, body=body))

    async def put(self, path: str, body: Json | bytes = None) -> HttpAnswer:
        return await self.call(HttpRequest("PUT", path, body=body))

    async def delete(self, path: str) -> HttpAnswer:
        return await self.call(HttpRequest("DELETE", path))

    async def call(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a request. Raises: Problem."""
        deadline = _patience.compute_deadline(request.patience_s)
        pause_s, longest_s = _patience.PAUSE_S
        renews = self._credential.renew is not None and not request.anonymous
        if renews and not self._credential.token:
            await self._renew("")
        while True:
            await self._requested_pause.wait(deadline)
            token = "" if request.anonymous else self._credential.token
            try:
                answer = await self._try(request, token)
            except _NoAnswer as failure:
                problem, again = failure.problem, failure.unsent or request.repeatable
            else:
                if answer.status < 300:
                    return answer
                problem = self._problem(request, answer)
                if answer.status == 401 and renews:
                    renews = False
                    await self._renew(token)
                    continue
                again = answer.status in _PASSING and (request.repeatable or answer.status == 429)
            wait_s = max(pause_s * random.uniform(0.5, 1.5), self._requested_pause.left_s)
            if not again or time.monotonic() + wait_s > deadline:
                raise problem
            log.debug("%s; tried again in %.1f s", problem, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(longest_s, 2 * pause_s)

    async def close(self) -> None:
        """Close the connections."""
        self._session.close()

    async def _renew(self, old: str) -> None:
        """Get another token than this one, unless another call has done so meanwhile."""
        async with self._renewal:
            if self._credential.token == old and self._credential.renew is not None:
                token = await self._credential.renew()
                hide(token)
                self._credential.token = token

    async def _try(self, request: HttpRequest, token: str) -> HttpAnswer:
        """Make one try, in a thread. Raises: _NoAnswer."""
        timeout_s = request.timeout_s or float(self._config.request_timeout)
        deadline = time.monotonic() + timeout_s
        tried = Try()

        def exchange() -> HttpAnswer:
            with tried.in_this_thread():
                return self._exchange(request, token, deadline)

        async with self._turns:
            try:
                answer = await asyncio.wait_for(in_thread(exchange), timeout_s + 1)
            except asyncio.TimeoutError:
                raise _NoAnswer(self._make_outage(request, f"has not answered within {timeout_s:g} s")) from None
            finally:
                tried.end()
        patience_s = retry_after_s(answer.headers.get("Retry-After", ""))
        if answer.status in (429, 503) and patience_s:
            self._requested_pause.begin(patience_s)
        return answer

    def _exchange(self, request: HttpRequest, token: str, deadline: float) -> HttpAnswer:
        """Exchange request and answer; blocks. Raises: _NoAnswer."""
        headers = {**(self._credential.spell(token) if token else {}), **request.headers}
        url = f"{self._address}/{request.path.lstrip('/')}"
        # A kept connection may just have been closed by the other end. What cannot be sent twice gets one of its own.
        session = nullcontext(self._session) if request.repeatable else _session()
        try:
            with session as used:
                return self._follow(_Sending(used, request, headers, self._verify, deadline), url)
        except requests.exceptions.SSLError as error:
            raise _NoAnswer(self._make_untrusted(error), unsent=True) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            unsent = any(isinstance(each, _UNSENT) for each in chain(error))
            cure = "check that its address is right, and no firewall blocks it"
            outage = self._make_outage(request, f"cannot be reached: {describe_error(error)}; {cure}")
            raise _NoAnswer(outage, unsent) from None

    def _follow(self, sending: _Sending, url: str) -> HttpAnswer:
        """Send a request, and again where it is redirected to within the platform's address."""
        request, query = sending.request, sending.request.query
        for _ in range(_REDIRECTS):
            with sending.send(url, query) as response:
                if not response.is_redirect:
                    return self._read(sending, response)
                url, query = urljoin(url, response.headers["Location"]), {}
            if request.method not in ("GET", "HEAD") or _origin(url) != _origin(self._address):
                raise _NoAnswer(
                    self._make_outage(request, f"sends to {_origin(url)} instead; check that the address is right")
                )
        raise _NoAnswer(self._make_outage(request, "sends from one address to the next without an end"))

    def _read(self, sending: _Sending, response: requests.Response) -> HttpAnswer:
        request, status = sending.request, response.status_code
        if request.status_suffices and status < 300:
            return HttpAnswer(status, response.headers, b"", self._place(request))
        content = bytearray()
        try:
            for chunk in response.iter_content(_CHUNK_BYTES):
                content += chunk
                if len(content) > request.max_bytes:
                    raise _NoAnswer(self._make_outage(request, f"answers with more than {request.max_bytes} bytes"))
                if time.monotonic() > sending.deadline:
                    raise _NoAnswer(self._make_outage(request, "has not finished its answer in time"))
        except (_NoAnswer, requests.RequestException, urllib3.exceptions.HTTPError, OSError):
            # The status of a refusal is enough; without its content only the platform's message is lost.
            if status < 300:
                raise
        return HttpAnswer(status, response.headers, bytes(content), self._place(request))

    def _place(self, request: HttpRequest) -> str:
        """Return a request as messages name it: what it asks for may be a secret."""
        return redact(f"{request.method} {self._address}/{request.path.lstrip('/')}")

    def _make_outage(self, request: HttpRequest, what: str) -> Outage:
        return Outage(redact(f"{self._name} {what} ({self._place(request)})"))

    def _make_untrusted(self, error: BaseException) -> Untrusted:
        return Untrusted(
            f"the certificate of {self._name} at {self._address} is not trusted ({describe_error(error)}): name the "
            f"authority that has signed it in caCert, as a PEM file"
        )

    def _problem(self, request: HttpRequest, answer: HttpAnswer) -> Problem:
        """Return the error for a status of 300 and more."""
        kind, cure = kind_and_cure(answer.status)
        reply = redact(reply_of(answer.content, answer.headers.get("Content-Type", "")))
        details = "; ".join(part for part in (reply, cure) if part)
        place = self._place(request)
        problem = kind(f"{self._name} answers {answer.status} to {place}" + (f": {details}" if details else ""))
        problem.status, problem.reply = answer.status, reply
        if isinstance(problem, Throttled):
            problem.retry_after_s = retry_after_s(answer.headers.get("Retry-After", ""))
        return problem


@dataclass(frozen=True)
class _Sending:
    """One try, as it is sent."""

    session: requests.Session
    request: HttpRequest
    headers: Mapping[str, str]
    verify: bool | str
    deadline: float

    def send(self, url: str, query: Mapping[str, str | int]) -> requests.Response:
        """Return the head of the answer."""
        body = self.request.body
        opened: Any = body.open("rb") if isinstance(body, Path) else nullcontext(body)
        with opened as content:
            return self.session.request(
                self.request.method,
                url,
                params=query,
                data=content if isinstance(body, (bytes, Path)) else None,
                json=None if isinstance(body, (bytes, Path)) else content,
                headers=self.headers,
                timeout=max(0.1, self.deadline - time.monotonic()),
                verify=self.verify,
                # Without this, requests would put what it finds in ~/.netrc in the place of the credential.
                auth=lambda prepared: prepared,
                allow_redirects=False,
                stream=True,
            )


@contextmanager
def as_config_error(config_field: str = "") -> Iterator[None]:
    """Turn a wrong login, certificate or address, while a service opens, into a ConfigError at this field.

    >>> with as_config_error("token"):
    ...     pass
    """
    try:
        yield
    except (AccessRefused, Untrusted, Missing) as error:
        raise ConfigError(str(error), Place(field=config_field or None)) from error


def _session() -> requests.Session:
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, AbortableAdapter())
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    session.headers["User-Agent"] = "nnilite"
    return session


def _checked(name: str, address: str) -> str:
    """Return an address without a slash at its end. Raises: ConfigError."""
    try:
        parts = urlsplit(address)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or half of an IPv6 address
        is_web = False
    if not is_web or parts.query or parts.fragment:
        raise ConfigError(f"{redact(address)!r} is not an address of {name}; write it as https://host:port/path")
    if parts.username or parts.password:
        raise ConfigError(f"the address of {name} must not hold a login; there are fields for that")
    return address.rstrip("/")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
