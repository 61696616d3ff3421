"""Reach a Redis server, and turn its errors into sentences.

The password is never part of the URL: a URL appears on command lines, in configs and in logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from redis import asyncio as aioredis
from redis import exceptions as e
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from nnilite.errors import ConfigError, JobRefused, NniliteError, Place, ServiceError

EXAMPLE = "rediss://redis.example.org:6379/0"
REDIS_ERRORS: tuple[type[Exception], ...] = (e.RedisError, OSError)
"""The errors of a command that come from the server or the connection."""
SENSELESS: tuple[type[Exception], ...] = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What an answer of another shape than Redis gives leads to, in the client, too."""

_ANSWER_S = 10.0
_CONNECT_S = 5.0
_OLDEST = (6, 2)
_COMMAND = re.compile(r"run the '?([A-Za-z|]+)'? command")


@dataclass(frozen=True)
class RedisAddress:
    """A Redis server's address and login. Raises: ConfigError for an invalid URL."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        place = Place(field="redis")
        try:
            parts = urlsplit(self.url)
            host, port, database = parts.hostname, parts.port, parts.path.strip("/")
        except ValueError as error:
            raise ConfigError(f"{self.url!r} is no URL ({error}); write one like {EXAMPLE}", place) from error
        if parts.password is not None:
            advice = "nnictl worker: NNILITE_REDIS_PASSWORD or --password-file; config: password"
            raise ConfigError(f"the URL must not hold the password, which all users could read ({advice})", place)
        if parts.scheme not in ("redis", "rediss") or not host or (database and not database.isdecimal()):
            raise ConfigError(f"{self.url!r} is not the address of a Redis server; write one like {EXAMPLE}", place)
        if port == 0:
            raise ConfigError(f"{self.url!r} has no usable port", place)

    @property
    def title(self) -> str:
        """Return the name of the server for messages."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{parts.port or 6379}"

    @property
    def tls(self) -> bool:
        return self.url.startswith("rediss:")

    def client(self) -> aioredis.Redis:
        """Return a client that makes its connections when it needs them. It never retries: that is for its caller."""
        parts = urlsplit(self.url)
        more: dict[str, Any] = {}
        if self.tls:  # redis-py before 6 accepts the certificate of any host unless told otherwise
            more = {"ssl": True, "ssl_ca_certs": _text(self.ca_file), "ssl_check_hostname": True}
        return aioredis.Redis(
            host=str(parts.hostname),
            port=parts.port or 6379,
            db=int(parts.path.strip("/") or 0),
            username=self.user or unquote(parts.username or "") or None,
            password=self.password or None,
            protocol=2,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_CONNECT_S,
            retry=Retry(NoBackoff(), 0),
            **more,
        )

    async def check(self, client: aioredis.Redis) -> None:
        """Check that the server can be used. Raises: ConfigError: never as things are; ServiceError: not now."""
        try:
            facts = dict(await client.info("server"))
            await client.eval("return 1", 0)
        except (*REDIS_ERRORS, *SENSELESS) as error:
            raise self.explained(error) from error
        version = str(facts.get("redis_version", ""))
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST:
            raise ConfigError(f"Redis at {self.title} has version {version}; 6.2 or later is needed", _PLACE)
        if facts.get("redis_mode") == "cluster":
            raise ConfigError(
                f"Redis at {self.title} is a cluster; a single server, or a sentinel's, is needed", _PLACE
            )

    def explained(self, error: Exception) -> NniliteError:
        """Return the error of a command as a sentence with a cure."""
        text = str(error) or type(error).__name__
        if isinstance(error, SENSELESS):
            return ServiceError(f"Redis at {self.title} gives an answer that makes no sense: {text:.200}")
        if isinstance(error, e.NoPermissionError):
            return ServiceError(f"Redis at {self.title}: {_find_missing_rule(text, self._name())}")
        if isinstance(error, (e.AuthenticationError, e.AuthorizationError)) or "NOAUTH" in text:
            return JobRefused(f"Redis at {self.title} refuses {self._name()}: {_sign_in(text)}", _PLACE)
        if "CERTIFICATE_VERIFY_FAILED" in text:
            cure = "name the file of the authority that signed it (caFile; nnictl worker --ca-file)"
            return ConfigError(
                f"the certificate of Redis at {self.title} is not trusted ({_find_reason(text)}): {cure}", _PLACE
            )
        if "WRONG_VERSION" in text or "record layer" in text.lower():
            return ConfigError(
                f"the server at {self.title} does not use TLS: write redis:// instead of rediss://", _PLACE
            )
        if isinstance(error, (e.ConnectionError, e.TimeoutError, OSError)):
            return ServiceError(self._describe_unreachable(error, text))
        return ServiceError(f"Redis at {self.title} says: {text}{_hint(text)}")

    def _describe_unreachable(self, error: Exception, text: str) -> str:
        if isinstance(error, (e.TimeoutError, TimeoutError)):
            hint = ", or it does not use TLS: then write redis:// instead of rediss://" if self.tls else ""
            return f"Redis at {self.title} does not answer in time{hint}"
        closed = "closed by server" in text.lower() or "reset by peer" in text.lower()
        hint = ", or it wants TLS: then write rediss://" if closed and not self.tls else ""
        cause = text.rstrip(".")
        return f"no Redis can be reached at {self.title}: {cause}. Does it run, and is the way there open{hint}?"

    def _name(self) -> str:
        return f"the user {self.user}" if self.user else "the default user"


_PLACE = Place(field="redis")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _sign_in(text: str) -> str:
    if "NOAUTH" in text or "Authentication required" in text or "without any password" in text:
        return "it wants a password (password; nnictl worker: NNILITE_REDIS_PASSWORD or --password-file)"
    return f"the password or the user is wrong, or the user is off ({text.rstrip('.')})"


def _find_missing_rule(text: str, who: str) -> str:
    """Return the ACL rule that a user lacks, from Redis' own words."""
    found = _COMMAND.search(text)
    if found:
        return f"{who} may not use the command {found.group(1)}: its ACL needs the rule +{found.group(1)}"
    if "channel" in text:
        return f"{who} lacks a right on channels ({text})"
    return f"{who} may not use the keys: its ACL needs the rule ~PREFIX:*, by default ~nnilite:* ({text.rstrip('.')})"


def _find_reason(text: str) -> str:
    found = re.search(r"certificate verify failed: ([^(]*)", text)
    return found.group(1).strip() if found else "certificate verify failed"


def _hint(text: str) -> str:
    if text.startswith("OOM") or "OOM command" in text:
        return " (raise its maxmemory, or use storage for what is large)"
    if "MISCONF" in text:
        return " (its disk may be full)"
    if "READONLY" in text:
        return " (this is a replica: name the primary)"
    return ""
