"""Proves server and page to each other, without sending the key of the page's session; see `nnilite._keeper.proof`.

The scheme is that of keepers. A page sends its requests side by side, so they need not come in the order of their
counts: each count of an exchange of nonces is taken once, and only for a short time after the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nnilite._rest.callback_proofs import Proofs, SignedRequest

LIFE_S = 60.0
"""How long requests are taken after their exchange of nonces."""

COUNT_MAX = 4096
"""How many requests are taken after one exchange."""

EXCHANGES_MAX = 1000  # exchanges whose counts are remembered, half a kilobyte each

Clock = Callable[[], float]


def _count_moments(clock: Clock) -> Iterator[int]:
    """Yield numbers for nonces that show their age: milliseconds of the clock, each larger than the one before."""
    last = 0
    while True:
        last = max(last + 1, int(clock() * 1000))
        yield last


class PageProofs:
    """Proves the server to pages, and takes each request that they have signed once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._proofs = Proofs(_count_moments(clock))
        self._taken: dict[int, int] = {}  # the counts taken, as bits, by the number of the exchange
        self._forgotten = 0  # exchanges up to this number are not taken any more

    def meet(self, key: str, mine: str) -> dict[str, str]:
        """Return the answer to a page's nonce. A stranger who asks for it takes no memory."""
        return self._proofs.meet(key, mine)

    def read(self, authorization: str, key: str, method: str, path: str) -> SignedRequest | None:
        """Return the signed request of an Authorization header; None if it is invalid, too old, or was taken before.

        `path` begins with /api/v1.
        """
        signed = self._proofs.read(authorization, key, method, path)
        return signed if signed is not None and self._accept(*signed.place) else None

    def _accept(self, number: int, count: int) -> bool:
        if number <= self._forgotten or count >= COUNT_MAX or self._clock() * 1000 > number + LIFE_S * 1000:
            return False
        taken = self._taken.get(number, 0)
        if taken >> count & 1:
            return False
        self._taken[number] = taken | 1 << count
        if len(self._taken) > EXCHANGES_MAX:
            self._forgotten = min(self._taken)
            del self._taken[self._forgotten]
        return True
