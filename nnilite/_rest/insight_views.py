"""Questions and answers about many trials at once: what charts and large tables are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Table(Enum):
    """What rows are about."""

    TRIALS = "trials"
    ATTEMPTS = "attempts"


@dataclass(frozen=True)
class Cursor:
    """How far rows were read: those of trials by (revision, sequence), those of attempts by (sequence, number)."""

    major: int = -1
    minor: int = -1


@dataclass(frozen=True)
class RowPage:
    """Rows as a JSON array of arrays, ready to be sent. `next` continues after them, also later."""

    rows: str
    count: int
    next: Cursor


@dataclass(frozen=True)
class Curve:
    """Intermediate results of a trial's latest attempt, thinned out. `values` None: not a finite number."""

    trial: str
    steps: Sequence[int]
    values: Sequence[float | None]


class ImportanceMethod(str, Enum):
    """How the importance of parameters is found."""

    AUTO = "auto"  # fANOVA where scikit-learn is installed, else PED-ANOVA
    FANOVA = "fanova"
    PED_ANOVA = "pedAnova"


@dataclass(frozen=True)
class Importance:
    """Shares of the variance of the metric, by dotted name of parameter, largest first; their sum is 1.

    `reason` says why there are none, "" if there are.
    """

    method: ImportanceMethod
    trials: int  # how many it was computed from
    shares: Sequence[tuple[str, float]]
    reason: str = ""
