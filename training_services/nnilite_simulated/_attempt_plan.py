"""What becomes of an attempt, known from its start. Pure: simulated time comes in as seconds.

The curve of the trial, the moment of the start and the trace say when each step is done, and which machines are lost
when. So an attempt needs no process, and a manager that comes back finds it by its plan alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnilite_simulated._trace import Trace

# An attempt whose machines change more often than this gets nowhere, and counts as lost.
_MOST_CHANGES = 1000


@dataclass(frozen=True)
class WorkerGroup:
    """The workers of an attempt, each on a machine of its own."""

    workers: int = 1
    least: int = 1  # the attempt is lost with fewer than this
    replace_s: float = 600.0  # time until another machine replaces a lost one


@dataclass(frozen=True)
class AttemptPlan:
    """An attempt: it does the steps from `first` on, and ends at `end_s`, or is lost then (`is_lost`)."""

    begin_s: float
    end_s: float
    first: int  # steps that an earlier attempt has saved
    steps: int  # length of the whole curve
    is_lost: bool
    moments: Sequence[float]  # when each step from `first` on is done
    phases: Sequence[Sequence[float]]  # begin, end and number of workers, one after the other

    def done(self, now_s: float) -> int:
        """How many steps of the curve are done, those of earlier attempts included."""
        return self.first + bisect_right(self.moments, min(now_s, self.end_s))

    def saved(self, now_s: float, every: int | None) -> int:
        """Return the step at which a further attempt can begin."""
        return 0 if every is None else max(self.done(now_s) // every * every, self.first)

    def has_ended(self, now_s: float) -> bool:
        return now_s >= self.end_s

    def cost(self, trace: Trace, now_s: float) -> float:
        """Return what its machines have cost until now."""
        until = min(now_s, self.end_s)
        parts = ((begin, min(end, until), count) for begin, end, count in self.phases if begin < until)
        return sum(trace.cost(begin, end) * count for begin, end, count in parts)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def made_plan(
    name: str,
    trace: Trace,
    begin_s: float,
    curve: Sequence[float],
    times: tuple[float, float, int],
    group: WorkerGroup | None = None,
) -> AttemptPlan:
    """Return the plan of an attempt with this name. `times`: start and step in seconds, and the steps that are saved.

    When a machine is lost or replaced, those that are there start again from the last whole step, which they have in
    memory. With a part of the workers a step takes that much longer.
    """
    start_s, step_s, first = times
    group = group or WorkerGroup()
    machines = dict.fromkeys(range(group.workers), 0)  # by worker: how many were lost before this one
    absent: dict[int, tuple[float, int]] = {}  # by worker: when its next machine arrives, and that machine's number
    now_s, left = begin_s, len(curve) - first
    moments: list[float] = []
    phases: list[list[float]] = []
    while left and len(machines) >= group.least and len(phases) < _MOST_CHANGES:
        ready_s, pace_s = now_s + start_s, step_s * group.workers / len(machines)
        end_s = ready_s + left * pace_s
        losses = _losses(name, trace, machines, (now_s, end_s))
        change_s = min([end_s, *losses.values(), *(back_s for back_s, _ in absent.values())])
        made = [moment for k in range(left) if (moment := ready_s + (k + 1) * pace_s) <= change_s]
        moments += made
        left -= len(made)
        phases.append([now_s, change_s, len(machines)])  # a list, as in JSON
        now_s = change_s
        for worker in [worker for worker, (back_s, _) in absent.items() if back_s <= now_s]:
            machines[worker] = absent.pop(worker)[1]
        for worker in [worker for worker, lost_s in losses.items() if lost_s <= now_s]:
            absent[worker] = (now_s + group.replace_s, machines.pop(worker) + 1)
    return AttemptPlan(begin_s, now_s, first, len(curve), left > 0, moments, phases)


def _losses(name: str, trace: Trace, machines: Mapping[int, int], between: tuple[float, float]) -> dict[int, float]:
    """When each worker loses its machine, if it does."""
    found = {}
    for worker, number in machines.items():
        machine = f"{name} worker {worker} machine {number}" if worker or number else name
        lost_s = trace.interrupted(machine, *between)
        if lost_s is not None:
            found[worker] = lost_s
    return found
