"""Questions and answers about many trials at once, for charts and large tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nnilite.records import Attempt, Trial
from nnilite.records.shapes import wire_names

# What rows have of the records, by the names here and on the wire: all fields but those that no chart needs.
TRIAL_FIELDS = {name: key for name, key in wire_names(Trial).items() if name != "parameter_id"}
ATTEMPT_FIELDS = {name: key for name, key in wire_names(Attempt).items() if name != "url"}


class Table(Enum):
    """Whether rows are about trials or about attempts."""

    TRIALS = "trials"
    ATTEMPTS = "attempts"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names on the wire of what is in a row."""
        if self is Table.TRIALS:
            return (*TRIAL_FIELDS.values(), "latest")
        return ("sequence", *ATTEMPT_FIELDS.values())


@dataclass(frozen=True)
class PageCursor:
    """How far rows were read: for trials (revision, sequence), for attempts (sequence, number)."""

    major: int = -1
    minor: int = -1


@dataclass(frozen=True)
class RowPage:
    """Rows as a JSON array of arrays, ready to be sent. `next` continues after them, now or later."""

    rows: str
    count: int
    next: PageCursor


@dataclass(frozen=True)
class Curve:
    """Some of the intermediate results of a trial's latest attempt. None in `values` is not a finite number."""

    trial: str
    steps: Sequence[int]
    values: Sequence[float | None]


class ImportanceMethod(str, Enum):
    """The method that computes the importance of parameters."""

    AUTO = "auto"  # fANOVA where scikit-learn is installed, else PED-ANOVA
    FANOVA = "fanova"
    PED_ANOVA = "pedAnova"


@dataclass(frozen=True)
class Importance:
    """Shares of the variance of the metric, by dotted name of parameter, largest first; their sum is 1.

    `intervals` has the lower and the upper end of each share, in the same order: nine of ten values that are found from
    random samples of the same trials lie between them. It is empty where there was no time to find them. `reason` says
    why there are no shares, and is "" if there are some.
    """

    method: ImportanceMethod
    trials: int  # how many trials it was computed from
    shares: Sequence[tuple[str, float]]
    reason: str = ""
    intervals: Sequence[tuple[float, float]] = ()
