"""Who is next for a slot of this machine. Pure: what runs and who waits come in, a reason to wait comes out.

Higher priorities first; within a priority, who asked first. Nobody passes somebody who is ahead, even if there is room
only for the one behind: otherwise an experiment that allows few slots would never find so few of them taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A trial that waits for a slot."""

    job: str
    experiment: str
    priority: int
    since: float  # when it asked for the first time, in seconds since the epoch

    @property
    def place(self) -> tuple[int, float, str]:
        """Lower places are served first."""
        return (-self.priority, self.since, self.job)


def reason_to_wait(mine: Claim, waiting: Collection[Claim], holders: Sequence[str], limit: int) -> str:
    """Whom the trial waits for; "" if it may start. `holders`: the experiment of each slot that is taken.

    >>> reason_to_wait(Claim("b", "B", 0, 2.0), [Claim("a", "A", 0, 1.0)], ["A"], 2)
    'waits for experiment A, which asked before'
    """
    ahead = sorted((claim for claim in waiting if claim.place < mine.place), key=lambda claim: claim.place)
    others = [claim for claim in ahead if claim.experiment != mine.experiment]
    if others and others[0].priority > mine.priority:
        return f"waits for experiment {others[0].experiment}, whose priority {others[0].priority} is higher"
    if others:
        return f"waits for experiment {others[0].experiment}, which asked before"
    if len(holders) >= limit:
        who = ", ".join(sorted(set(holders)))
        return f"waits for a slot of this machine: {len(holders)} of {limit} (maxSlots) are taken, by {who}"
    return "waits for an earlier trial of its experiment" if ahead else ""
