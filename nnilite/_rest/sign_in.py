"""Keys of people and their browsers. All are kept in memory only, so none outlives this start of the server.

    link      opens the page, and is traded there for a session: once, within ten minutes
    session   is what the page sends with each request, in the header `X-Nnilite-Session`
    ticket    opens one address once, within seconds, where a browser sends no headers: for the stream and downloads

Whoever takes the port after the end of the server may get the key of a session from a page that is still open. The
key opens nothing then: the next server does not know it, at this port or at another one.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

LINK_LIFE_S = 600.0
TICKET_LIFE_S = 30.0
SESSION_LIFE_S = 30 * 24 * 3600.0
SESSION_IDLE_S = 7 * 24 * 3600.0
LINKS_MAX = 100
TICKETS_MAX = 1000
SESSIONS_MAX = 100

Clock = Callable[[], float]


def _name_of(key: str) -> bytes:
    """What a key is stored under. By its digest, no comparison reveals how much of a guess is right."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class OneTimeKeys:
    """Keys that open one thing once, for a short time. When there are too many, the oldest are dropped."""

    def __init__(self, life_s: float, most: int, clock: Clock) -> None:
        self._life_s = life_s
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def make(self, place: str = "") -> str:
        """A new key for this place."""
        key = secrets.token_urlsafe(32)
        while len(self._kept) >= self._most:
            self._kept.popitem(last=False)
        self._kept[_name_of(key)] = (self._clock() + self._life_s, place)
        return key

    def use(self, key: str, place: str = "") -> bool:
        """Whether the key opens this place. It is used up by this."""
        end, known = self._kept.pop(_name_of(key), (0.0, ""))
        return end > self._clock() and known == place


@dataclass
class _SignedIn:
    begun: float
    used: float


class Sessions:
    """The browsers that are signed in. When there are too many, the one that was used longest ago is signed out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, _SignedIn] = OrderedDict()

    def begin(self) -> str:
        """The key of a new session."""
        key, now = secrets.token_urlsafe(32), self._clock()
        while len(self._kept) >= SESSIONS_MAX:
            self._kept.popitem(last=False)
        self._kept[_name_of(key)] = _SignedIn(now, now)
        return key

    def valid(self, key: str) -> bool:
        """Whether this is the key of a session. It counts as used."""
        name, now = _name_of(key), self._clock()
        session = self._kept.get(name)
        if session is None:
            return False
        if now > session.begun + SESSION_LIFE_S or now > session.used + SESSION_IDLE_S:
            del self._kept[name]
            return False
        session.used = now
        self._kept.move_to_end(name)
        return True

    def end(self, key: str) -> None:
        """Forget a session."""
        self._kept.pop(_name_of(key), None)


class SignIn:
    """All keys of one start of a server."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._links = OneTimeKeys(LINK_LIFE_S, LINKS_MAX, clock)
        self._tickets = OneTimeKeys(TICKET_LIFE_S, TICKETS_MAX, clock)
        self.sessions = Sessions(clock)

    def link(self) -> str:
        """A new one-time key, for the page's address as `#key=`."""
        return self._links.make()

    def uses_up(self, link: str) -> bool:
        """Use up a link. False if it is unknown, used or too old."""
        return self._links.use(link)

    def ticket(self, path: str) -> str:
        """A new ticket for the path of one request."""
        return self._tickets.make(path)

    def admits(self, ticket: str, path: str) -> bool:
        """Use up a ticket. False if it is unknown, used, too old, or for another path."""
        return self._tickets.use(ticket, path)
