"""The manager's half of the mutual proofs of keepers and managers; see `nnilite._keeper.proof`."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from nnilite._keeper.proof import SCHEME, code, digest, same

JOBS_MAX = 10_000  # jobs whose last batch is remembered
_END = 10**15  # a count later than all of a session

_SIGNED = re.compile(
    r"(?P<mine>[0-9a-f]{32,64}):(?P<theirs>[0-9a-f]{32}\.[1-9][0-9]{0,14}):(?P<count>[1-9][0-9]{0,14}):(?P<content>[0-9a-f]{64})"
    r":(?P<made>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class SignedRequest:
    """A request whose sender has proven that it knows the token."""

    token: str
    mine: str  # the keeper's nonce
    theirs: str  # the manager's nonce
    count: int
    content: str  # the digest that the body must have

    @property
    def place(self) -> tuple[int, int]:
        """The place of the request among all of its job, which grows from request to request."""
        return int(self.theirs.partition(".")[2]), self.count

    def proof(self, status: int, content: str) -> str:
        """Return the proof for the keeper that the answer is the manager's. `content`: the digest of its body."""
        return code(self.token, "answer", self.mine, self.theirs, self.count, status, content)


class Proofs:
    """Proves the manager to keepers, checks their signatures, and refuses batches that were taken already.

    Only the place of a job's last batch is kept, and only for recently active jobs. For other jobs, any session that
    may be older than their last batch is refused, and the keeper opens a new one.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        """Keep proofs. `numbers`: those of the nonces, which grow."""
        self._start = secrets.token_hex(16)  # makes signatures for an earlier manager invalid
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._last: dict[str, tuple[int, int]] = {}
        self._forgotten = 0

    def meet(self, token: str, mine: str) -> dict[str, str]:
        """Return the answer to a keeper's nonce, which begins a session."""
        theirs = f"{self._start}.{next(self._numbers)}"
        return {"nonce": theirs, "proof": code(token, "manager", mine, theirs)}

    def read(self, authorization: str, token: str, method: str, path: str) -> SignedRequest | None:
        """Return the signed request of an Authorization header; None if it proves nothing.

        `path` begins with /api/v1.
        """
        scheme, _, given = authorization.partition(" ")
        match = _SIGNED.fullmatch(given)
        if scheme.lower() != SCHEME.lower() or match is None or not match["theirs"].startswith(self._start):
            return None
        parts = (match["mine"], match["theirs"], match["count"], method, path, match["content"])
        if not same(match["made"], code(token, "request", *parts)):
            return None
        return SignedRequest(token, match["mine"], match["theirs"], int(match["count"]), match["content"])

    def accept(self, job: str, signed: SignedRequest, body: bytes) -> bool:
        """Return whether this body is the signed one, and comes after all batches taken of this job."""
        if digest(body) != signed.content or signed.place <= self._last.get(job, (self._forgotten, _END)):
            return False
        self._last.pop(job, None)
        self._last[job] = signed.place
        if len(self._last) > JOBS_MAX:
            longest_silent = next(iter(self._last))
            self._forgotten = max(self._forgotten, self._last.pop(longest_silent)[0])
        return True
