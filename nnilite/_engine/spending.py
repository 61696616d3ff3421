"""What an experiment has spent, and what its running trials are going to cost.

Prices are per hour and slot, in whatever currency the config means; a slot is the room for one trial. If a platform
reports what a job has cost, that counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from nnilite._engine.live_trial import ActiveTrial

_HOUR_S = 3600.0


class Spending:
    """Counts the money of one experiment."""

    def __init__(self, prices: Mapping[str, float], settled: Mapping[str, float]) -> None:
        self._prices = prices
        self.settled = dict(settled)  # by service: what attempts that have ended have cost

    @property
    def is_known(self) -> bool:
        """Whether anything has a price."""
        return bool(self._prices or self.settled)

    def price(self, live: ActiveTrial, seconds: float) -> float | None:
        """Return what the current attempt has cost after that many seconds; None if its price is unknown."""
        if live.reported_cost is not None:
            return live.reported_cost
        price = self._prices.get(live.attempt.service) if live.attempt is not None else None
        return None if price is None else price * max(seconds, 0.0) / _HOUR_S

    def settle(self, service: str, cost: float) -> None:
        """Count the cost of an attempt that has ended."""
        self.settled[service] = self.settled.get(service, 0.0) + cost

    def sum_by_service(self, live: Iterable[ActiveTrial], now: float) -> dict[str, float]:
        """Return what has been spent at each service, running attempts included."""
        found = dict(self.settled)
        for one in live:
            if one.attempt is not None and (cost := self._running(one, now)) is not None:
                found[one.attempt.service] = found.get(one.attempt.service, 0.0) + cost
        return found

    def total(self, live: Iterable[ActiveTrial], now: float) -> float:
        return sum(self.sum_by_service(live, now).values())

    def mean(self, ended: int) -> float:
        """Return what a trial has cost on average, 0 as long as none has ended."""
        return sum(self.settled.values()) / ended if ended else 0.0

    def expected(self, live: Iterable[ActiveTrial], now: float, ended: int) -> float:
        """Return the expected cost at the end of the trials that have not ended, if they cost as much as the others."""
        mean = self.mean(ended)
        return sum(self.settled.values()) + sum(self._whole(one, now, mean) for one in live)

    def affordable(self, limit: float, expected: float, ended: int) -> float:
        """Return how many further trials may start: the last one may exceed the limit."""
        if expected >= limit:
            return 0
        mean = self.mean(ended)
        return math.ceil((limit - expected) / mean) if mean > 0 else math.inf

    def _running(self, live: ActiveTrial, now: float) -> float | None:
        # An attempt that has not begun costs nothing yet.
        begun = live.attempt is not None and live.attempt.started is not None
        return self.price(live, now - live.running_since if begun else 0.0)

    def _whole(self, live: ActiveTrial, now: float, mean: float) -> float:
        cost = self._running(live, now)
        placed = live.attempt is not None and live.attempt.service
        if placed and live.reported_cost is None and not self._prices.get(live.attempt.service if live.attempt else ""):
            return 0.0
        return max(cost or 0.0, mean)
