"""Deliver keepers' requests on the manager's side: they come as messages and go to the manager's own callback.

All clients with write access to the pool's Redis can write such a message, and the manager requires no sign-in from its
own machine. So only requests of keepers are passed on, and the manager checks the trial's token.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from nnilite_redis._mailbox import PoolMessage

REQUEST_HEADERS = ("Authorization", "Content-Type", "X-Nnilite-Job")
ANSWER_HEADERS = ("Content-Type", "X-Nnilite-Proof")
MAX_BODY_BYTES = 16_000_000
LIMIT_S = 25.0
"""How long a keeper's request may take; the keeper itself waits for 30 s."""

_JOB = r"/api/v1/callback/[A-Za-z0-9._%-]{1,300}"
_ALLOWED = re.compile(rf"POST {_JOB}|GET {_JOB}/proof\?nonce=[0-9a-f]{{32}}")
_VALUE = re.compile(r"[\x20-\x7e]{0,4096}")


def is_of_keeper(method: str, path: str) -> bool:
    """Return whether it is a request that keepers make."""
    return bool(_ALLOWED.fullmatch(f"{method} {path}"))


def put(address: Callable[[], str], message: PoolMessage) -> PoolMessage:
    """Put a keeper's request to the manager at this address; return its answer. It blocks: use a thread."""
    method, path = message.text("method"), message.text("path")
    given = message.head.get("headers")
    headers = (
        {name: value for name, value in given.items() if _is_header(name, value)} if isinstance(given, dict) else {}
    )
    if not is_of_keeper(method, path):
        return PoolMessage({"status": 403})
    connection = _connection(address())
    try:
        prefix = urlsplit(address()).path.rstrip("/")
        connection.request(method, prefix + path, message.data or None, headers)
        response = connection.getresponse()
        body = response.read(MAX_BODY_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return PoolMessage({"status": 503, "error": f"the manager does not answer: {error}"})
    finally:
        connection.close()
    found = {name: response.getheader(name) for name in ANSWER_HEADERS}
    return PoolMessage(
        {"status": response.status, "headers": {name: value for name, value in found.items() if value}}, body
    )


def _is_header(name: Any, value: Any) -> bool:
    return name in REQUEST_HEADERS and isinstance(value, str) and bool(_VALUE.fullmatch(value))


def _connection(address: str) -> http.client.HTTPConnection:
    """Connect to our own process by loopback. Its certificate, if it has one, names another address."""
    url = urlsplit(address)
    if url.scheme != "https":
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=LIMIT_S)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=LIMIT_S, context=trust)
