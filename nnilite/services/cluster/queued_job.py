"""What a scheduler says of one job, in terms that hold for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class QueuePhase(Enum):
    """How far a job has come. The ends differ in what they mean for its trial."""

    WAITING = auto()
    PREPARING = auto()  # its node is being made ready
    RUNNING = auto()
    COMPLETED = auto()  # its script has ended with 0
    FAILED = auto()  # its script has ended otherwise
    TIMED_OUT = auto()  # ended by the scheduler's time limit, for which the trial is asked to end first
    KILLED = auto()  # ended by another limit, as that of memory: the trial is the cause
    CANCELED = auto()
    LOST = auto()  # the trial is not the cause: it is tried again
    UNKNOWN = auto()  # nnilite does not know the scheduler's word for it

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self not in (QueuePhase.WAITING, QueuePhase.PREPARING, QueuePhase.RUNNING, QueuePhase.UNKNOWN)


@dataclass(frozen=True)
class QueuedJob:
    """One job. `words` say why it waits or how it has ended."""

    id: str
    name: str
    phase: QueuePhase
    state: str = ""  # the scheduler's own word
    words: str = ""
    host: str = ""
    started: float | None = None
    exit_code: int | None = None  # negative for a signal
    reason: str = ""  # the scheduler's own reason
    nodes: tuple[str, ...] = ()  # where they are known, and matter

    @property
    def needs_reason(self) -> bool:
        """Return whether its state has a reason that the scheduler has not given."""
        return not self.reason and self.phase in (QueuePhase.WAITING, QueuePhase.LOST)

    def explained(self, reason: str) -> QueuedJob:
        """Return the job with a reason, if it needs one."""
        if not (reason and self.needs_reason):
            return self
        return replace(self, words=f"{self.words}: {reason}", reason=reason)
