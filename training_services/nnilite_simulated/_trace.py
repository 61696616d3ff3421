"""The prices and interruptions of a trace: CSV with the columns `hour`, `price` and `interruption`.

`price` is that of a slot per hour from this row to the next. `interruption` is the probability that a running attempt
loses its machine in that time. Rows are at equal distances; after the last one the trace repeats.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from nnilite.errors import ConfigError, Place

COLUMNS = ("hour", "price", "interruption")
_HOUR_S = 3600.0
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Trace:
    """Prices and probabilities by row; a row lasts `row_s` seconds."""

    row_s: float
    prices: tuple[float, ...]
    interruptions: tuple[float, ...]

    def cost(self, begin_s: float, end_s: float) -> float:
        """Return what a slot costs between two moments of simulated time."""
        parts = self._parts(begin_s, end_s)
        return sum(self.prices[row % len(self.prices)] * (end - begin) / _HOUR_S for row, begin, end in parts)

    def interrupted(self, name: str, begin_s: float, end_s: float) -> float | None:
        """When an attempt loses its machine, None if it does not. The same name has the same fate each time."""
        for row, begin, end in self._parts(begin_s, end_s):
            whole = self.interruptions[row % len(self.interruptions)]
            moment = row * self.row_s + _chance(f"{name} when {row}") * self.row_s
            if begin <= moment < end and _chance(f"{name} whether {row}") < whole:
                return moment
        return None

    def _parts(self, begin_s: float, end_s: float) -> Iterator[tuple[int, float, float]]:
        """Return the rows between two moments, each with the part of it that lies between them."""
        row = math.floor(begin_s / self.row_s)
        while row * self.row_s < end_s:
            yield row, max(begin_s, row * self.row_s), min(end_s, (row + 1) * self.row_s)
            row += 1


def _chance(text: str) -> float:
    """Return a number from 0 to 1, always the same for the same text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48


def shipped(name: str) -> Trace:
    """One of the traces that come with nnilite: `steady` or `spot`."""
    return read_trace(Path(__file__).parent / "traces" / f"{name}.csv")


def read_trace(path: Path) -> Trace:
    """Read a file. Raises: ConfigError that names the line."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"the trace cannot be read: {error}", Place(file=str(path))) from error
    if not rows or tuple(rows[0]) != COLUMNS or len(rows) < 2:
        raise _fault(path, 1, f"must begin with the line {','.join(COLUMNS)}, and have a row")
    found = [_row(path, number, row) for number, row in enumerate(rows[1:], 2)]
    step = found[1][0] - found[0][0] if len(found) > 1 else 1.0
    for number, (before, after) in enumerate(pairwise(found), 3):
        if step <= 0 or abs(after[0] - before[0] - step) > _TOLERANCE:
            raise _fault(path, number, _gap(before[0], step))
    return Trace(step * _HOUR_S, tuple(row[1] for row in found), tuple(row[2] for row in found))


def _gap(before: float, step: float) -> str:
    return f"there is a gap: after hour {before:g} comes hour {before + abs(step):g}; write a row for each time"


def _row(path: Path, number: int, row: Sequence[str]) -> tuple[float, float, float]:
    try:
        hour, price, interruption = map(float, row)
    except ValueError:
        raise _fault(path, number, f"must be three numbers, not {','.join(row)!r:.60}") from None
    if not 0 <= price < math.inf:
        raise _fault(path, number, f"a price is at least 0, not {price:g}")
    if not 0 <= interruption <= 1:
        raise _fault(path, number, f"an interruption is a probability from 0 to 1, not {interruption:g}")
    return hour, price, interruption


def _fault(path: Path, line: int, message: str) -> ConfigError:
    return ConfigError(message, Place(file=str(path), line=line))
