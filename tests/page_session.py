"""A page that is signed in, as the web interface is: it sends neither its link nor its key."""

from __future__ import annotations

import os
from typing import Any

from nnilite._keeper.proof import HEADER, ProofSession, code, digest


def trade(link: str, **changed: str) -> tuple[dict[str, str], str]:
    """The body by which a link is traded, and its nonce."""
    mine = os.urandom(16).hex()
    return {"link": code(link, "name"), "nonce": mine, "proof": code(link, "link", mine), **changed}, mine


class PageSession:
    """The session for a link. `ask(method, path, body, **headers)` sends a request."""

    def __init__(self, ask: Any, link: str) -> None:
        body, mine = trade(link)
        answer = ask("POST", "/api/v1/sessions", body, Authorization="")
        assert answer.status == 201, answer.body
        theirs = answer.json["nonce"]
        assert answer.json["proof"] == code(link, "manager", mine, theirs)
        self.key = code(link, "session", mine, theirs)
        self.name = code(self.key, "name")
        self._ask = ask
        self.meet()

    def meet(self) -> int:
        """Exchange nonces with the server; the status of its answer."""
        self.proofs = ProofSession(self.key)
        answer = self._ask("GET", f"/api/v1/sessions/{self.name}/proof?nonce={self.proofs.nonce}", Authorization="")
        assert answer.status != 200 or self.proofs.meet(answer.json)
        return int(answer.status)

    def headers(self, method: str, path: str, body: bytes = b"") -> dict[str, str]:
        """Those of the next request."""
        return {
            "Authorization": self.proofs.authorization(method, f"/api/v1{path}", body),
            "X_Nnilite_Session": self.name,
        }

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
        """The answer to a signed request, which must be proven unless it says 401."""
        reply = self._ask(method, f"/api/v1{path}", body or None, **self.headers(method, path, body), **headers)
        assert reply.status == 401 or self.proofs.proves(reply.headers[HEADER], reply.status, digest(reply.body))
        return reply

    def get(self, path: str, **headers: str) -> Any:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: bytes = b"{}", **headers: str) -> Any:
        return self.ask("POST", path, body, **headers)
