"""Who runs next on which budget: the schedules of Hyperband and ASHA, without any random numbers.

A schedule hands out slots. A slot of the lowest rung needs new parameters; a higher one continues with those of a
candidate that did well below. The schedule is notified of the end of each slot. As it decides by results alone, the
same order of calls gives the same slots, in a live search and in a replay.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from typing import Protocol

from nnilite.errors import NoMoreTrialError
from nnilite.space import Flat

_EPSILON = 1e-6


@dataclass(eq=False)
class BracketCandidate:
    """A set of parameters on its way up."""

    number: int
    flat: Flat | None = None  # None until the tuner has chosen it


@dataclass(frozen=True)
class Slot:
    """Run this candidate with this budget."""

    candidate: BracketCandidate
    rung: int
    budget: float
    bracket: Bracket | None = None


class Schedule(Protocol):
    def next(self) -> Slot: ...  # Raises: NoMoreTrialError if nothing can run until something ends
    def record_end(self, slot: Slot, loss: float | None) -> None: ...


def ladder(low: float, high: float, eta: int) -> list[float]:
    """Return budgets from about `low` to `high`, each eta times the one before: whole numbers if both of these are.

    Those are rounded down, as NNI's, so that trials can go through `range(parameters["TRIAL_BUDGET"])`.
    """
    last = math.floor(math.log(high / low) / math.log(eta) + _EPSILON)
    exact = [high * float(eta) ** (rung - last) for rung in range(last + 1)]
    whole = float(low).is_integer() and float(high).is_integer()
    return [math.floor(budget + _EPSILON) for budget in exact] if whole else exact


@dataclass(eq=False)
class Bracket:
    """Successive halving: `sizes[k]` candidates run with `budgets[k]`; the best of a full rung move to the next."""

    sizes: list[int]
    budgets: list[float]
    created: int = 0
    rung: int = 0
    waiting: list[BracketCandidate] = field(default_factory=list)
    running: int = 0
    results: list[tuple[float, int, BracketCandidate]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.rung >= len(self.sizes)

    def next(self, number: int) -> Slot | None:
        """Return the next slot; None: nothing to run until the rung is full."""
        if self.over:
            return None
        if self.rung == 0 and self.created < self.sizes[0]:
            self.created += 1
            candidate = BracketCandidate(number)
        elif self.waiting:
            candidate = self.waiting.pop(0)
        else:
            return None
        self.running += 1
        return Slot(candidate, self.rung, self.budgets[self.rung], self)

    def record_end(self, slot: Slot, loss: float | None) -> None:
        self.running -= 1
        if loss is not None:
            insort(self.results, (loss, slot.candidate.number, slot.candidate))
        if self.running or self.waiting or (self.rung == 0 and self.created < self.sizes[0]):
            return
        self.rung += 1
        kept = self.sizes[self.rung] if not self.over else 0
        self.waiting = [candidate for _, _, candidate in self.results[:kept]]
        self.results = []
        if not self.waiting:
            self.rung = len(self.sizes)


class HyperbandSchedule:
    """Brackets from many short runs to few full ones, over and over (Li et al., 2018).

    `serial`: a bracket begins when the one before is over; otherwise whenever nothing else can run. `first` is the
    number of the first candidate.
    """

    def __init__(self, low: float, high: float, eta: int, serial: bool = False, first: int = 0) -> None:
        self._eta, self._serial = eta, serial
        self._budgets = ladder(low, high, eta)
        self._turn = self._last = len(self._budgets) - 1
        self._brackets: list[Bracket] = []
        self._candidates = first

    def next(self) -> Slot:
        self._brackets = [bracket for bracket in self._brackets if not bracket.over]
        for bracket in self._brackets:
            slot = bracket.next(self._candidates)
            if slot is not None:
                return self._counted(slot)
        if self._serial and self._brackets:
            raise NoMoreTrialError("the bracket continues when its running trials have ended")
        self._brackets.append(self._make_bracket())
        slot = self._brackets[-1].next(self._candidates)
        if slot is None:
            raise NoMoreTrialError
        return self._counted(slot)

    def _counted(self, slot: Slot) -> Slot:
        self._candidates += slot.candidate.number == self._candidates
        return slot

    def _make_bracket(self) -> Bracket:
        turn = self._turn
        self._turn = turn - 1 if turn else self._last
        count = math.ceil((self._last + 1) / (turn + 1) * self._eta**turn - _EPSILON)
        sizes = [max(1, math.floor(count * self._eta**-k + _EPSILON)) for k in range(turn + 1)]
        return Bracket(sizes, self._budgets[self._last - turn :])

    def record_end(self, slot: Slot, loss: float | None) -> None:
        if slot.bracket is not None:
            slot.bracket.record_end(slot, loss)


class AshaSchedule:
    """Promotes a candidate as soon as it is among the best 1/eta of its rung, without waiting (Li et al., 2020).

    `first` is the number of the first candidate.
    """

    def __init__(self, low: float, high: float, eta: int, first: int = 0) -> None:
        self.budgets = ladder(low, high, eta)
        self._eta = eta
        self._results: list[list[tuple[float, int, BracketCandidate]]] = [[] for _ in self.budgets]
        self._promoted: list[set[int]] = [set() for _ in self.budgets]
        self._candidates = first

    def next(self) -> Slot:
        for rung in reversed(range(len(self.budgets) - 1)):
            results = self._results[rung]
            for _, number, candidate in results[: len(results) // self._eta]:
                if number not in self._promoted[rung]:
                    self._promoted[rung].add(number)
                    return Slot(candidate, rung + 1, self.budgets[rung + 1])
        self._candidates += 1
        return Slot(BracketCandidate(self._candidates - 1), 0, self.budgets[0])

    def record_end(self, slot: Slot, loss: float | None) -> None:
        if loss is not None:
            insort(self._results[slot.rung], (loss, slot.candidate.number, slot.candidate))
