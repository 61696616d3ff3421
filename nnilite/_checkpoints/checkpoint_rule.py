"""The rule for which checkpoints stay, and the interface of a place that holds them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Retention(Enum):
    """How much of the checkpoints of one ended trial is to stay."""

    ALL = "all"
    NEWEST = "newest"  # the newest entry of its folder, a file or a folder
    NOTHING = "nothing"


@dataclass(frozen=True)
class CheckpointRule:
    """The config's `checkpoint`. `keep`: all, last (each trial's newest file), best (the best trial's) or none."""

    keep: str = "all"
    max_bytes: int | None = None

    @property
    def keeps_everything(self) -> bool:
        """Whether the rule keeps everything, so that there is never anything to tidy."""
        return self.keep == "all" and self.max_bytes is None

    def retention(self, trial: str, best: str | None) -> Retention:
        """Return what is to stay of an ended trial, whatever the size of all; `best` is the best trial so far."""
        if self.keep == "best":
            return Retention.ALL if trial == best else Retention.NOTHING
        return {"last": Retention.NEWEST, "none": Retention.NOTHING}.get(self.keep, Retention.ALL)


class Deletion(Protocol):
    """The part of one trial's checkpoints to delete. Both methods block; both may be repeated after any failure."""

    def set_aside(self) -> None:
        """Set the rest aside in one quick step, during which the trial must not start.

        Then it finds exactly what is to stay.
        """

    def delete(self) -> None:
        """Delete what was set aside. The trial may run meanwhile."""


class CheckpointPlace(Protocol):
    """Holds the checkpoints of all trials. All methods block.

    They raise OSError or ServiceError for what may work later, and ValueError for what never will.
    """

    title: str

    def holding(self, trials: Collection[str]) -> Collection[str]:
        """Return the trials that may have checkpoints here."""

    def look(self, trial: str, attempt: int, retention: Retention) -> Deletion | None:
        """Return what is to be deleted of a trial whose latest attempt has that number; None if nothing is.

        Change nothing.
        """

    def size(self, trial: str, attempt: int) -> int:
        """Return the bytes of a trial's checkpoints. The trial may run."""
