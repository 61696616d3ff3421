"""What every tracker can do. A run is one attempt of a trial."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnilite.records import Json
from nnilite.records.dotted import flatten

DEFAULT = "default"
FINAL = "final"
_KEY_MAX = 200


@dataclass(frozen=True)
class Run:
    """One attempt of a trial, as trackers show it."""

    experiment: str
    trial: str
    sequence: int
    attempt: int
    parameters: Mapping[str, str | int | float | bool | None]  # flat: `layer.size`
    created: float  # seconds since the epoch

    @property
    def name(self) -> str:
        """The name of the run; names sort by the trial's number (`00003-Xy12z`; second attempt `00003-Xy12z-1`)."""
        first = f"{self.sequence:05d}-{self.trial}"
        return first if self.attempt == 0 else f"{first}-{self.attempt}"

    @property
    def key(self) -> str:
        """The key of the run: the same in each process that feeds a tracker, and unique among all experiments."""
        return f"{self.experiment}-{self.trial}-{self.attempt}"


@dataclass(frozen=True)
class CurvePoint:
    """One number of a curve. `step` counts the reports of the attempt; `time` is in seconds since the epoch."""

    key: str
    step: int
    value: float
    time: float


class Runs(ABC):
    """The runs of one tracker. In each process a run is begun once, and then gets all its points from the first.

    So an implementation either throws away what a process before this one has written of the run, or leaves out what is
    there already. All methods may block, and raise anything: the process then ends, and is started again later.
    """

    @abstractmethod
    def begin(self, run: Run) -> None:
        """Make the run, or continue it."""

    @abstractmethod
    def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
        """Add points to the curves of a run that has been begun."""

    @abstractmethod
    def end(self, run: Run, state: str) -> None:
        """Close a run; `state` is that of its trial at the end of this attempt, or LOST if the attempt was lost."""

    def close(self) -> None:
        """Finish writing. Runs that have not ended stay open for the next process."""


def list_points(value: Json, step: int, time: float, *, final: bool) -> Iterator[CurvePoint]:
    """Yield the numbers in a reported value. A final result has curves of its own, with one point each.

    >>> [point.key for point in list_points({"default": 0.5, "loss": 1}, 3, 0.0, final=False)]
    ['default', 'loss']
    """
    given = value if isinstance(value, Mapping) else {DEFAULT: value}
    for name, number in given.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            continue
        key = name if not final else FINAL if name == DEFAULT else f"{FINAL}_{name}"
        yield CurvePoint(_plain(key), step, float(number), time)


def flat(parameters: Json) -> dict[str, str | int | float | bool | None]:
    """Return parameters with dots in their names in place of objects in objects.

    >>> flat({"lr": 0.1, "layer": {"_name": "conv", "size": 3}})
    {'lr': 0.1, 'layer._name': 'conv', 'layer.size': 3}
    """
    return {_plain(name): _simplify(value) for name, value in flatten(parameters)}


def _simplify(value: Json) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _plain(key: str) -> str:
    """Return a name that all trackers accept: letters, digits, and a few marks.

    A slash makes groups of curves. MLflow refuses names that mean another one as the path of a file, such as `a/../b`.

    >>> _plain("loss/train"), _plain("../a//b/.")
    ('loss/train', '__/a/b/_')
    """
    text = "".join(mark if mark.isascii() and (mark.isalnum() or mark in "_-. /") else "_" for mark in str(key))
    parts = [part for part in text[:_KEY_MAX].split("/") if part]
    return "/".join("_" * len(part) if part in (".", "..") else part for part in parts) or "_"
