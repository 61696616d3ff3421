"""What becomes of an attempt, known from its start. Pure: simulated time comes in as seconds.

The curve of the trial, the moment of the start and the trace say when each step is done, and whether the machine is
lost before the last one. So an attempt needs no process, and a manager that comes back finds it by its plan alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnilite_simulated._trace import Trace


@dataclass(frozen=True)
class Plan:
    """An attempt: it does the steps from `first` on, and ends at `end_s`, or loses its machine then (`is_lost`)."""

    begin_s: float
    end_s: float
    start_s: float  # how long it takes before the first step begins
    step_s: float
    first: int  # steps that an earlier attempt has saved
    steps: int  # of the whole curve
    is_lost: bool

    def done(self, now_s: float) -> int:
        """How many steps of the curve are done, those of earlier attempts included."""
        spent_s = min(now_s, self.end_s) - self.begin_s - self.start_s
        if not self.is_lost and now_s >= self.end_s:
            return self.steps
        return min(self.first + max(int(spent_s // self.step_s), 0), self.steps)

    def saved(self, now_s: float, every: int | None) -> int:
        """The step at which a further attempt can begin."""
        return 0 if every is None else max(self.done(now_s) // every * every, self.first)

    def has_ended(self, now_s: float) -> bool:
        return now_s >= self.end_s

    def cost(self, trace: Trace, now_s: float) -> float:
        return trace.cost(self.begin_s, max(min(now_s, self.end_s), self.begin_s))

    def json(self) -> dict[str, Any]:
        return asdict(self)


def made_plan(name: str, trace: Trace, begin_s: float, curve: Sequence[float], times: tuple[float, float, int]) -> Plan:
    """The plan of an attempt with this name. `times`: start and step in seconds, and the steps that are saved."""
    start_s, step_s, first = times
    end_s = begin_s + start_s + (len(curve) - first) * step_s
    lost_s = trace.interrupted(name, begin_s, end_s)
    return Plan(begin_s, end_s if lost_s is None else lost_s, start_s, step_s, first, len(curve), lost_s is not None)
