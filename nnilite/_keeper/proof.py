"""How a keeper and its manager prove to each other who they are, without sending the trial's token.

Both know the token of the trial's job. The token is never sent. It is the key of HMAC-SHA256: keeper and manager send
codes that can only be made with the key. `code(token, *parts)` is the code of the parts, joined by line ends, after the
line "nnilite".

    1  keeper, on each new connection    GET /api/v1/callback/JOB/proof?nonce=MINE    (MINE: 32 random hex digits)
    2  manager                           {"nonce": THEIRS, "proof": code("manager", MINE, THEIRS)}
    3  keeper, with each request         Authorization: Nnilite MINE:THEIRS:COUNT:DIGEST:CODE
                                         where CODE is code("request", MINE, THEIRS, COUNT, METHOD, PATH, DIGEST)
    4  manager, with each answer         X-Nnilite-Proof: code("answer", MINE, THEIRS, COUNT, STATUS, DIGEST)

DIGEST is the SHA-256 of the request's or the answer's body in hex, COUNT goes up by one with each request, and PATH
begins with /api/v1, whatever a proxy has put before it. The keeper sends nothing of its trial before step 2 has proven
the manager, and accepts no answer without step 4.

The random numbers of both ends make each exchange fresh, without a clock. The manager's nonces (THEIRS) are numbered,
and it takes a batch of events only if THEIRS and COUNT are later than those of the job's last batch, so a listener
cannot send a batch again. The first part of each code names its kind, so that none can be sent back as another. A
program in between that passes on everything can read plain http but cannot change or invent anything; https prevents
the reading, too.
"""

from __future__ import annotations

import os
import re
from typing import Any, Optional

SCHEME = "Nnilite"
HEADER = "X-Nnilite-Proof"

_NONCE = re.compile(r"[0-9A-Za-z.]{1,100}")


def code(token: str, *parts: object) -> str:
    """Return the code of the parts, with the token as the key. No part may have a line end."""
    import hmac

    text = "\n".join(["nnilite", *map(str, parts)])
    return hmac.new(token.encode("utf-8"), text.encode("utf-8"), "sha256").hexdigest()


def digest(body: bytes) -> str:
    """Return the SHA-256 of a body in hex."""
    import hashlib

    return hashlib.sha256(body).hexdigest()


def same(given: str, wanted: str) -> bool:
    """Compare codes in a time that does not reveal how much of them is right."""
    import hmac

    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("utf-8"))


def proves(authorization: str, token: str, method: str, path: str) -> bool:
    """Return whether an Authorization header proves that its sender knows the token; `path` begins with /api/v1.

    For programs in between, which do not know the manager's nonces: they can let a caller come to the manager, which
    also checks that the request is fresh. Keepers of version 0.1 send the token itself.
    """
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return same(given.strip(), token)
    *parts, made = given.split(":")
    if scheme.lower() != SCHEME.lower() or len(parts) != 4:
        return False
    mine, theirs, count, content = parts
    return same(made, code(token, "request", mine, theirs, count, method, path, content))


class ProofSession:
    """The keeper's half of the proofs on one connection."""

    def __init__(self, token: str) -> None:
        self.nonce = os.urandom(16).hex()
        self._token = token
        self._theirs = ""
        self._count = 0

    @property
    def open(self) -> bool:
        """Whether the manager has proven itself on this connection."""
        return bool(self._theirs)

    def meet(self, answer: Any) -> bool:
        """Check the answer to the keeper's nonce, parsed from JSON. Return whether it comes from the manager."""
        theirs, proof = (answer.get("nonce"), answer.get("proof")) if isinstance(answer, dict) else (None, None)
        if not isinstance(theirs, str) or not isinstance(proof, str) or not _NONCE.fullmatch(theirs):
            return False
        if not same(proof, code(self._token, "manager", self.nonce, theirs)):
            return False
        self._theirs = theirs
        return True

    def authorization(self, method: str, path: str, body: bytes = b"") -> str:
        """Return the Authorization header of the next request."""
        self._count += 1
        given = (self.nonce, self._theirs, self._count)
        content = digest(body)
        made = code(self._token, "request", *given, method, path, content)
        return "{} {}".format(SCHEME, ":".join(map(str, (*given, content, made))))

    def proves(self, proof: Optional[str], status: int, content: str) -> bool:
        """Return whether the answer to the last request comes from the manager. `content`: the digest of its body."""
        wanted = code(self._token, "answer", self.nonce, self._theirs, self._count, status, content)
        return proof is not None and same(proof, wanted)
