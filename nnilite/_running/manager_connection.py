"""Kept-open connections to a manager's REST interface, and their errors. They use only the standard library."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from nnilite import _plain
from nnilite._answers import late_request
from nnilite._running.timely_answer import TimeLimit, limit_answers, read_pieces, read_whole
from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound, Place, ServiceError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""The strings in which NaN and the infinities travel, as JSON has no numbers for them."""


class Unreachable(NniliteError, RuntimeError):
    """The manager does not answer: it is not running, or not at this address."""


class ManagerError(NniliteError, RuntimeError):
    """The manager answered with an error of its own."""


class ManagerConnection:
    """Sends requests to the manager at `url`.

    Threads, signal handlers and forked processes may do so at once: a request that begins while another one runs has a
    connection of its own. `certificate`: a PEM file to trust besides those of the system; `process`: the manager's, if
    it is known; `users`: those whose program the manager may be, none if that is not known.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 20.0,
        certificate: Path | None = None,
        process: int | None = None,
        users: Collection[int] = (),
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._options: dict[str, Any] = {"token": token, "certificate": certificate, "process": process, "users": users}
        self._idle = [self._make_link()]

    def __enter__(self) -> ManagerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what no request uses now; the next call opens a new one."""
        for link in self._idle:
            link.close()

    def ask(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        with self._link() as link:
            text = link.ask(method, path, query, body)
        if not text:
            return {}
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ManagerError(f"{self.url} does not answer as a manager of nnilite does: {error}") from error

    def stream(self, path: str, query: Mapping[str, Any], write: Callable[[bytes], object]) -> None:
        with self._link() as link:
            link.stream(path, query, write)

    def piece(self, path: str, query: Mapping[str, Any]) -> tuple[bytes, int]:
        with self._link() as link:
            return link.piece(path, query)

    @contextlib.contextmanager
    def _link(self) -> Iterator[_Link]:
        try:
            link = self._idle.pop()  # in one step, so that nothing else takes the same one
        except IndexError:
            link = self._make_link()
        if link.owner != os.getpid():  # the connection is that of the process which has forked this one
            link = self._make_link()
        try:
            yield link
        except BaseException:
            link.close()  # the rest of an answer may still be in it
            raise
        finally:
            self._idle.append(link)

    def _make_link(self) -> _Link:
        return _Link(self.url, timeout_s=self._timeout_s, **self._options)


class _Link:
    """One connection, for one request after the other."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_s: float,
        certificate: Path | None,
        process: int | None,
        users: Collection[int],
    ) -> None:
        host, port, prefix = _split_url(url)
        self.url = url.rstrip("/")
        self.owner = os.getpid()
        self._secure = urlsplit(url).scheme == "https"
        self._address = (host, port or (443 if self._secure else 80))
        self._base = prefix.rstrip("/") + "/api/v1"
        self._token = token
        self._timeout_s = timeout_s
        self._limit = TimeLimit(timeout_s)
        self._certificate = certificate
        self._process = process
        self._users = users
        self._connection: http.client.HTTPConnection | None = None

    def __del__(self) -> None:
        """Close a connection that its client left open."""
        if getattr(self, "_connection", None) is not None:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> bytes:
        return self._read(self._send(method, path, query, body))

    def stream(self, path: str, query: Mapping[str, Any], write: Callable[[bytes], object]) -> None:
        response = self._send("GET", path, query, None)
        pieces = read_pieces(response)
        while piece := self._guarded(lambda: next(pieces, b"")):
            write(piece)
            # A large file may take its time, as long as something comes.
            self._limit.begin()

    def piece(self, path: str, query: Mapping[str, Any]) -> tuple[bytes, int]:
        response = self._send("GET", path, query, None)
        data = self._read(response)
        following = response.headers.get("X-Next-Offset")
        return data, int(following) if following else int(query["offset"]) + len(data)

    def _send(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> http.client.HTTPResponse:
        asked = {name: value for name, value in (query or {}).items() if value not in (None, [])}
        target = self._base + path + (f"?{urlencode(asked, doseq=True)}" if asked else "")
        if method != "GET":
            # A kept connection may have been closed meanwhile. Only a GET may be sent twice.
            self.close()
        fresh = self._connection is None
        try:
            response = self._attempt(method, target, body)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if self._is_from_elsewhere(error):
                raise
            if fresh or isinstance(error, TimeoutError):
                raise self._describe_unreachable(error) from error
            response = self._guarded(lambda: self._attempt(method, target, body))
        if response.status >= 300:  # a manager sends its clients nowhere else
            raise self._refusal(response)
        return response

    def _attempt(self, method: str, target: str, body: Any) -> http.client.HTTPResponse:
        self._limit.begin()  # to connect may take as long as an answer
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        payload = None
        if method != "GET":
            headers |= {
                "Content-Type": "application/json",
                late_request.HEADER: late_request.spell_until(self._timeout_s),
            }
            payload = b"" if body is None else _spell(body)
        self._limit.begin()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._timeout_s)  # the last answer has left it what it had left
        self._connection.request(method, target, payload, headers)
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address
        if self._secure:
            settings = _make_tls_settings(self._certificate)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=settings
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        connection.connect()
        limit_answers(connection, self._limit)
        connection.auto_open = 0  # a new connection might reach another program at that port
        if self._token and self._users:
            try:
                self._check_user(connection.sock)
            except BaseException:
                connection.close()
                raise
        return connection

    def _check_user(self, link: socket.socket) -> None:
        """Check that the token goes to the manager's user. Raises: Unreachable.

        A manager that is starting has not replaced the address of an earlier one yet, whose port any user may have by
        now.
        """
        from nnilite._network.socket_lists import users_at

        if users_at(link.getpeername()[:2], link.getsockname()[:2]) - {0, *self._users}:
            raise Unreachable(
                f"The manager is not at {self.url}: a program of another user listens there, which gets nothing. "
                "Try again when the manager has started."
            )

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        return self._guarded(lambda: read_whole(response, self._limit))

    def _guarded(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if self._is_from_elsewhere(error):
                raise
            raise self._describe_unreachable(error) from error

    def _is_from_elsewhere(self, error: Exception) -> bool:
        """Return whether a signal handler of the program has raised this, such as one for a time limit.

        The limits of this connection are over when it raises such an error, and one of the system has a number.
        """
        return isinstance(error, TimeoutError) and error.errno is None and not self._limit.is_over()

    def _describe_unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError):
            from nnilite._keeper.attempt_kill import describe_stop  # few commands need it

            stop = describe_stop(self._process)
            if stop:
                return Unreachable(f"The manager at {self.url} does not answer: {stop}.")
            return Unreachable(f"The manager at {self.url} did not answer within {self._timeout_s:g} s.")
        if isinstance(error, ConnectionRefusedError) and self._process is not None:
            # Who knows the process has found the experiment's lock held: the address may be that of the manager before.
            why = "it is starting or ending. Try again in a moment."
            return Unreachable(f"The manager is not at {self.url} now: {why}")
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(f"The manager at {self.url} does not answer: {cause}.")

    def _refusal(self, response: http.client.HTTPResponse) -> NniliteError:
        text = self._read(response)
        try:
            answer = json.loads(text)
            sentence, field = str(answer["error"]), answer.get("field")
        except (ValueError, LookupError, TypeError, RecursionError):
            sentence, field = f"{self.url} answered {response.status} {response.reason}.", None
        return _error(response.status, sentence, field if isinstance(field, str) else None)


def _split_url(url: str) -> tuple[str, int | None, str]:
    """Return host, port and path of a manager's address. Raises: ConfigError if it is none."""
    with contextlib.suppress(ValueError):  # a port that is no number, or half an IPv6 address
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname, parts.port, parts.path
    raise ConfigError(f"{url!r} is not the address of a manager; it looks like http://127.0.0.1:8080")


def _error(status: int, sentence: str, field: str | None) -> NniliteError:
    if status in (400, 413, 422):
        return ConfigError(sentence, Place(field=field))
    kinds: dict[int, type[NniliteError]] = {404: NotFound, 409: Conflict, 429: ServiceError, 503: ServiceError}
    return kinds.get(status, ManagerError)(sentence)


def _make_tls_settings(certificate: Path | None) -> Any:
    """Return a TLS context that trusts the manager's own certificate, known by its file, whatever host name it has."""
    import ssl

    context = ssl.create_default_context()
    if certificate is not None:
        context.load_verify_locations(certificate)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
    return context


@lru_cache
def _make_encoder(indent: int | None) -> json.JSONEncoder:
    return json.JSONEncoder(indent=indent, ensure_ascii=False, allow_nan=False)


def write_strict_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON; NaN and infinities become strings, as on the wire."""
    try:
        return _make_encoder(indent).encode(value)
    except (TypeError, ValueError):
        return _make_encoder(indent).encode(replace_infinities(value))


def replace_infinities(value: Any) -> Any:
    """Return JSON that any parser accepts, with NaN and the infinities as strings."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return next(name for name, number in NUMBERS.items() if repr(number) == repr(value))
    if isinstance(value, Mapping):
        return {key: replace_infinities(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_infinities(part) for part in value]
    return value


def _spell(body: Any) -> bytes:
    """Return the JSON of a body. A program may give numbers of numpy in it."""
    return json.dumps(replace_infinities(body), allow_nan=False, default=_plain).encode()
