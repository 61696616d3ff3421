"""Hands changes to readers: one `Changes` per manager, one bounded `Subscription` per reader.

A publisher never waits. Changes that a slow reader has not fetched are merged (only the latest state of a trial
counts). If a reader falls too far behind even so, it gets one `Reset` in their place and must read the state afresh.
All this is for the event loop only, not for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from nnilite._answers.queries import Profile, TrialRemarks
from nnilite.records import Metric, Trial


@dataclass(frozen=True)
class Reset:
    """Changes were dropped: read the state afresh."""


Change = Trial | Metric | TrialRemarks | Profile | Reset

PENDING_MAX = 20_000


class Subscription:
    """The changes one reader has not seen yet, at most `limit` of them."""

    def __init__(self, changes: Changes, limit: int) -> None:
        self._changes = changes
        self._limit = limit
        self._pending: dict[Hashable, Change] = {}
        self._wakeup = asyncio.Event()

    async def next(self) -> Sequence[Change]:
        """Wait until there is something, then return all of it, oldest first."""
        await self._wakeup.wait()
        self._wakeup.clear()
        pending = list(self._pending.values())
        self._pending.clear()
        return pending

    def close(self) -> None:
        """End the subscription. Harmless if it has ended already."""
        self._changes.remove(self)

    def put(self, key: Hashable, change: Change) -> None:
        # The change moves to the end, so that a trial's final metric still comes before the trial's end.
        self._pending.pop(key, None)
        self._pending[key] = change
        if len(self._pending) > self._limit:
            self._pending = {Reset: Reset()}
        self._wakeup.set()


class Changes:
    """Hands every published change to every subscription.

    Example: `changes.publish(trial)`, and in a reader `for change in await subscription.next(): ...`
    """

    def __init__(self, pending_max: int = PENDING_MAX) -> None:
        self._pending_max = pending_max
        self._subscriptions: set[Subscription] = set()

    @property
    def has_readers(self) -> bool:
        return bool(self._subscriptions)

    def subscribe(self) -> Subscription:
        subscription = Subscription(self, self._pending_max)
        self._subscriptions.add(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def publish(self, change: Change) -> None:
        if not self._subscriptions:
            return
        key = _key(change)
        for subscription in self._subscriptions:
            subscription.put(key, change)


def _key(change: Change) -> Hashable:
    """Return a key of the thing that the change is about: a later change with the same key replaces an earlier one."""
    if isinstance(change, Trial):
        return ("trial", change.id)
    if isinstance(change, Metric):
        return ("metric", change.trial, change.attempt, change.index)
    if isinstance(change, TrialRemarks):
        return ("remarks", change.trial)
    return type(change).__name__
