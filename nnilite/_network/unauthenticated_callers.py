"""Callers who have not proven who they are: a limited number stays, and one of the older half is closed for the next.

Which one is a matter of chance. If it were always the oldest, a caller that connects often enough would close every
caller after the same short time, before a slow one has proven itself; by chance, some of these get through however many
connect. The newer half has the time for a request. Callers who have sent a whole and valid head have a share of their
own, in which those who only connect displace none.
"""

from __future__ import annotations

import random
from typing import Generic, TypeVar

Caller = TypeVar("Caller")


class UnauthenticatedCallers(Generic[Caller]):
    """The callers without a proof. Half as many as `most` may stay in addition if they have sent a valid head."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._silent: dict[Caller, None] = {}
        self._heard: dict[Caller, None] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._heard)

    def __contains__(self, caller: object) -> bool:
        return caller in self._silent or caller in self._heard

    @property
    def is_full(self) -> bool:
        """Whether a caller has to be closed before the next one is added."""
        return len(self._silent) >= self._most

    def add(self, caller: Caller) -> None:
        """Add a caller that has connected."""
        self._silent[caller] = None

    def note_valid_head(self, caller: Caller) -> Caller | None:
        """Note that a caller has sent a valid head. Return another one that has to be closed for it."""
        if caller in self._heard:
            return None
        self._silent.pop(caller, None)
        closed = _choose_one_of(self._heard) if len(self._heard) >= self._most // 2 else None
        self._heard[caller] = None
        return closed

    def remove_one(self) -> Caller | None:
        """Remove a random caller of the older half; one with a valid head only if all have one.

        Return None if there is none.
        """
        return _choose_one_of(self._silent or self._heard)

    def remove(self, caller: Caller) -> None:
        """Remove a caller that has gone, or has proven who it is."""
        self._silent.pop(caller, None)
        self._heard.pop(caller, None)


def _choose_one_of(callers: dict[Caller, None]) -> Caller | None:
    if not callers:
        return None
    found = random.choice(list(callers)[: (len(callers) + 1) // 2])
    del callers[found]
    return found
