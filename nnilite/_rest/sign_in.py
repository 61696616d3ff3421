"""Keys of people and their browsers. All are kept in memory only, so none outlives this start of the server.

    link      opens the page, and is traded there for a session: once, within ten minutes
    session   has a key with which the page signs each request (see `page_proofs`)
    ticket    opens one address once, within seconds, where a browser sends no headers: for the stream and downloads

Neither a link nor the key of a session is ever sent by a page: a program that takes the port can read all that an open
page sends, while the server still runs and can be reached by another way. Both ends compute the key from the link's
secret and a nonce of each, and name link and session by a code that only says which one is meant. With `code` of
`nnilite._keeper.proof`:

    NAME of a secret    code(SECRET, "name")
    page                {"link": NAME, "nonce": MINE, "proof": code(LINK, "link", MINE)}
    server              {"nonce": THEIRS, "proof": code(LINK, "manager", MINE, THEIRS)}
    key                 code(LINK, "session", MINE, THEIRS); none if THEIRS is empty
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

from nnilite._keeper.proof import code, same
from nnilite._rest.callback_proofs import SignedRequest
from nnilite._rest.page_proofs import Clock, PageProofs

LINK_LIFE_S = 600.0
TICKET_LIFE_S = 30.0
SESSION_LIFE_S = 30 * 24 * 3600.0
SESSION_IDLE_S = 7 * 24 * 3600.0
LINKS_MAX = 100
TICKETS_MAX = 1000
SESSIONS_MAX = 100


def name_secret(secret: str) -> str:
    """Return a code that says which secret is meant, and nothing more about it."""
    return code(secret, "name")


def _name_of(key: str) -> bytes:
    """Return what a key is stored under. By its digest, no comparison reveals how much of a guess is right."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class OneTimeKeys:
    """Keys that open one thing once, for a short time. When there are too many, the oldest are dropped."""

    def __init__(self, life_s: float, most: int, clock: Clock) -> None:
        self._life_s = life_s
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def make(self, place: str = "") -> str:
        """Return a new key for this place."""
        key = secrets.token_urlsafe(32)
        while len(self._kept) >= self._most:
            self._kept.popitem(last=False)
        self._kept[_name_of(key)] = (self._clock() + self._life_s, place)
        return key

    def use(self, key: str, place: str = "") -> bool:
        """Return whether the key opens this place. The key is used up by this."""
        end, known = self._kept.pop(_name_of(key), (0.0, ""))
        return end > self._clock() and known == place


class Links:
    """The secrets of links. When there are too many, the oldest are dropped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def make(self) -> str:
        """Return the secret of a new link."""
        secret = secrets.token_hex(32)
        while len(self._kept) >= LINKS_MAX:
            self._kept.popitem(last=False)
        self._kept[name_secret(secret)] = (self._clock() + LINK_LIFE_S, secret)
        return secret

    def use(self, name: str, mine: str, proof: str) -> str | None:
        """Return the secret of the link of this name, which is used up; None unless the proof is made with it."""
        end, secret = self._kept.get(name, (0.0, ""))
        if end <= self._clock() or not same(proof, code(secret, "link", mine)):
            return None
        del self._kept[name]
        return secret


@dataclass
class _SignedIn:
    key: str
    begun: float
    used: float


class Sessions:
    """The browsers that are signed in. When there are too many, the one that was used longest ago is signed out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _SignedIn] = OrderedDict()

    def begin(self, key: str) -> None:
        """Begin a session with this key."""
        now = self._clock()
        while len(self._kept) >= SESSIONS_MAX:
            self._kept.popitem(last=False)
        self._kept[name_secret(key)] = _SignedIn(key, now, now)

    def key(self, name: str) -> str | None:
        """Return the key of the session of this name; None if there is none, or not any more."""
        session, now = self._kept.get(name), self._clock()
        if session is None:
            return None
        if now > session.begun + SESSION_LIFE_S or now > session.used + SESSION_IDLE_S:
            del self._kept[name]
            return None
        return session.key

    def note_use(self, name: str) -> None:
        """Note that a session is in use."""
        self._kept[name].used = self._clock()
        self._kept.move_to_end(name)

    def end(self, name: str) -> None:
        """Forget a session."""
        self._kept.pop(name, None)


class SignIn:
    """All keys of one start of a server."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._links = Links(clock)
        self._tickets = OneTimeKeys(TICKET_LIFE_S, TICKETS_MAX, clock)
        self._sessions = Sessions(clock)
        self._proofs = PageProofs(clock)

    def link(self) -> str:
        """Return the secret of a new link, for the page's address as `#key=`."""
        return self._links.make()

    def trade(self, name: str, mine: str, proof: str, *, needs_key: bool) -> dict[str, str] | None:
        """Use up a link, and begin a session if its page needs one.

        Return None if the link is unknown, used or too old.
        """
        secret = self._links.use(name, mine, proof)
        if secret is None:
            return None
        theirs = secrets.token_hex(16) if needs_key else ""
        if theirs:
            self._sessions.begin(code(secret, "session", mine, theirs))
        return {"nonce": theirs, "proof": code(secret, "manager", mine, theirs)}

    def meet(self, name: str, mine: str) -> dict[str, str] | None:
        """Answer the nonce of a page that is signed in; None if there is no session of this name."""
        key = self._sessions.key(name)
        return None if key is None else self._proofs.meet(key, mine)

    def signed(self, name: str, authorization: str, method: str, path: str) -> SignedRequest | None:
        """Return the request that a session of this name has signed, and that was not taken before."""
        key = self._sessions.key(name)
        signed = None if key is None else self._proofs.read(authorization, key, method, path)
        if signed is not None:
            self._sessions.note_use(name)
        return signed

    def sign_out(self, name: str) -> None:
        """End a session."""
        self._sessions.end(name)

    def ticket(self, path: str) -> str:
        """Return a new ticket for the path of one request."""
        return self._tickets.make(path)

    def admits(self, ticket: str, path: str) -> bool:
        """Use up a ticket. Return False if it is unknown, used, too old, or for another path."""
        return self._tickets.use(ticket, path)
