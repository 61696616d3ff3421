"""The requests of keepers through the tunnel: the only ones that it lets through.

Only the head decides about a request. It has the proof of the sender, so no body is read before that.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

_ALLOWED = re.compile(
    r"(POST /api/v1/callback/(?P<job>[A-Za-z0-9._%-]{1,300})"
    r"|GET /api/v1/callback/[A-Za-z0-9._%-]{1,300}/proof\?nonce=[0-9a-f]{32}"
    r"|GET /api/v1/code/[0-9a-f]{64}|GET /api/v1/keeper\.pyz) HTTP/1\.1"
)
# A value begins with no blank: otherwise a stranger's line of blanks would be tried in thousands of ways.
_HEADER = re.compile(r"([A-Za-z0-9-]{1,64}):[ \t]*((?:[\x21-\x7e][\x20-\x7e]*)?)")
_PROOF_PATH = "/proof?"
_JOB_HEADER = "x-nnilite-job"
_HANDED_ON = ("authorization", "content-type", _JOB_HEADER)
_MAX_HEADERS = 64
_MAX_BODY_BYTES = 16_000_000

MAX_HEAD_BYTES = 8192


class TunnelRefused(Exception):
    """A request that is not from a keeper, with the status of the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class TunnelRequest(NamedTuple):
    """The head of a keeper's request, checked. `length`: that of its body."""

    method: str
    path: str
    headers: dict[str, str]
    length: int
    job: str

    @property
    def proves(self) -> bool:
        """Whether the manager accepts it only with a proof of the sender."""
        return _PROOF_PATH not in self.path


def parse_head(head: bytes) -> TunnelRequest:
    """Return the request of a head without its empty last line. Raises: TunnelRefused."""
    first, *lines = head.decode("latin-1").split("\n")
    found = _ALLOWED.fullmatch(first.rstrip("\r"))
    if found is None:
        raise TunnelRefused(403)
    headers = _parse_headers(lines)
    if "transfer-encoding" in headers:
        raise TunnelRefused(400)
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > _MAX_BODY_BYTES:
        raise TunnelRefused(413)
    method, path, _ = first.split(" ")
    if int(length) and method != "POST":
        raise TunnelRefused(400)
    kept = {name.title(): headers[name] for name in _HANDED_ON if name in headers}
    return TunnelRequest(method, path, kept, int(length), unquote(found["job"] or headers.get(_JOB_HEADER, "")))


def _parse_headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise TunnelRefused(431)
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line.rstrip("\r"))
        if not found or found.group(1).lower() in headers:
            raise TunnelRefused(400)
        headers[found.group(1).lower()] = found.group(2).strip()
    return headers
