"""Decides which services of an experiment are asked to take a job, and in which order. Pure: no I/O and no clock.

Three things come before the policy: a service that may have the job already is asked first, one that has as many trials
as it may have is not asked at all, and one where this trial was tried before comes after those where it was not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Placement(str, Enum):
    """How trials are shared out between the services of an experiment."""

    FILL = "fill"  # the first of the list until it is full, then the second, ...
    WEIGHTED = "weighted"  # each has a number of trials in proportion to its weight
    CHEAPEST = "cheapest"  # the one with the lowest cost that has room


@dataclass(frozen=True)
class Share:
    """What the config says of a service's part in the experiment."""

    max_trials: int | None = None  # at once; None: no limit
    weight: float = 1.0
    cost: float | None = None  # per hour and slot; None: nothing is known of it


EVERYTHING = Share()
"""The share of a service that has none in the config."""


@dataclass(frozen=True)
class Candidate:
    """A service and its state when a job is to be placed."""

    name: str
    share: Share = EVERYTHING
    held: int = 0  # trials that it has, without the one to be placed
    is_aside: bool = False  # it failed a short time ago
    tried: int = 0  # how many earlier attempts of this trial ran on it

    @property
    def is_full(self) -> bool:
        return self.share.max_trials is not None and self.held >= self.share.max_trials


def order(policy: Placement, candidates: Sequence[Candidate], asked: str = "") -> list[str]:
    """Return the names of the services to ask, best first. `asked`: the one that may have the job, "" if none may."""
    open_to_it = [one for one in candidates if one.name == asked or not (one.is_full or one.is_aside)]
    ranked = sorted(open_to_it, key=lambda one: (one.name != asked, one.tried, _RANKS[policy](one)))
    return [one.name for one in ranked]


def _in_order(one: Candidate) -> float:
    # `sorted` is stable, so that equal ranks keep the order of the config.
    return 0.0


def _rank_by_weight(one: Candidate) -> float:
    return (one.held + 1) / one.share.weight


def _rank_by_cost(one: Candidate) -> float:
    return one.share.cost or 0.0


_RANKS: dict[Placement, Callable[[Candidate], float]] = {
    Placement.FILL: _in_order,
    Placement.WEIGHTED: _rank_by_weight,
    Placement.CHEAPEST: _rank_by_cost,
}
