"""Points as rows of numbers: positions in the unit cube, and the features that models see.

A position row has one column for each parameter of the space. A feature row has one for each number, and one for each
option of a choice (1: chosen). A parameter that is not active has -1 in its features.

The normal types have no end, and their positions are quantiles, between which values far out are squeezed together: as
features they are evenly spaced again, 0 and 1 at three standard deviations, and what is proposed lies in between.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from nnilite.space import Flat, SearchSpace
from nnilite.tuning.positions import position, raw_at

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

__all__ = ["Cube", "Matrix", "Vector", "generator"]

_ABSENT = -1.0
_TAIL = 1e-9  # the normal types have no end
_REACH = 3.0  # standard deviations
_APART = 0.02  # distance of features below which points are nearly alike
_MOST_CELLS = 20  # values of a finite parameter up to which all are tried
_STANDARD = NormalDist()
_deviations = np.vectorize(_STANDARD.inv_cdf, otypes=[float])  # numpy alone has no quantiles
_STEPS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)


class Cube:
    """The unit cube of a search space."""

    def __init__(self, space: SearchSpace) -> None:
        self.parameters = space.parameters
        self._column = {p.path: k for k, p in enumerate(self.parameters)}
        # Steps and whole numbers on a log scale have cells of different widths, and count as continuous here.
        self._counts = [p.count if p.log_ends is None else None for p in self.parameters]
        self.continuous = np.array([count is None for count in self._counts], dtype=bool)
        self._choice = np.array([p.unordered for p in self.parameters], dtype=bool)
        choices = zip(self._choice, self._counts, strict=True)
        self._normal = np.array([p.mu is not None and p.count is None for p in self.parameters], dtype=bool)
        self.low = np.where(self._normal, _STANDARD.cdf(-_REACH), 0.0)
        self.high = np.where(self._normal, _STANDARD.cdf(_REACH), 1.0)
        self._one_hot = [count if choice and count and count > 2 else 0 for choice, count in choices]  # features

    @property
    def width(self) -> int:
        """Return the number of columns of a position row."""
        return len(self.parameters)

    def positions(self, flats: Sequence[Flat]) -> Matrix:
        """Return position rows, with the middle for parameters that are not active."""
        rows = np.full((len(flats), self.width), 0.5)
        for row, flat in zip(rows, flats, strict=True):
            for path, raw in flat.items():
                column = self._column[path]
                row[column] = position(self.parameters[column], raw)
        return self.snapped(rows)

    def flat(self, row: Vector) -> Flat:
        """Return the raw values of a position row, of active and other parameters alike."""
        return {p.path: raw_at(p, float(row[k])) for k, p in enumerate(self.parameters)}

    def snapped(self, rows: Matrix) -> Matrix:
        """Move finite parameters to the middles of their cells, and all into [0, 1]."""
        rows = np.clip(rows, 0.0, 1.0)
        for column, count in enumerate(self._counts):
            if count is not None:
                cells = np.minimum(np.floor(rows[:, column] * count), count - 1)
                rows[:, column] = (cells + 0.5) / count
        return rows

    def settled(self, rows: Matrix) -> Matrix:
        """Return position rows with the middle for parameters that are not active: the same point, the same row."""
        return self.snapped(np.where(self.find_active(rows), rows, 0.5))

    @property
    def groups(self) -> list[int]:
        """Return, for each feature, the column that it comes from."""
        return [column for column, one_hot in enumerate(self._one_hot) for _ in range(one_hot or 1)] or [0]

    def features(self, rows: Matrix) -> Matrix:
        """Return the feature rows of (snapped) position rows."""
        active = self.find_active(rows)
        columns: list[Vector] = []
        for column, one_hot in enumerate(self._one_hot):
            values = rows[:, column]
            if self._normal[column]:
                values = 0.5 + _deviations(np.clip(values, _TAIL, 1.0 - _TAIL)) / (2.0 * _REACH)
            if one_hot:
                cells = np.floor(values * one_hot).astype(int)
                columns.extend(np.where(active[:, column], 1.0 * (cells == k), _ABSENT) for k in range(one_hot))
            else:
                columns.append(np.where(active[:, column], values, _ABSENT))
        return np.column_stack(columns) if columns else np.zeros((len(rows), 1))

    def find_active(self, rows: Matrix) -> NDArray[np.bool_]:
        """Return of each position row which columns count: those at the top, and what chosen options bring."""
        active = np.ones(rows.shape, dtype=bool)
        for column, parameter in enumerate(self.parameters):
            if parameter.parent is None:
                continue
            path, option = parameter.parent
            above = self._column[path]
            chosen = np.floor(rows[:, above] * (self._counts[above] or 1)).astype(int) == option
            active[:, column] = active[:, above] & chosen
        return active

    def nearly_alike(self, rows: Matrix, others: Matrix) -> NDArray[np.bool_]:
        """Return of each position row whether one of `others` is nearly alike.

        A model that is sure where the lowest point is would send every worker there.
        """
        if not len(others):
            return np.zeros(len(rows), dtype=bool)
        ours, theirs = self.features(rows), self.features(others)
        squares = np.square(ours).sum(axis=1)[:, None] + np.square(theirs).sum(axis=1)[None, :]
        return np.asarray((squares - 2.0 * ours @ theirs.T).min(axis=1) < _APART**2)

    def drawn(self, count: int, numbers: np.random.Generator) -> Matrix:
        """Draw position rows at random, as the space says."""
        return self.snapped(self.low + (self.high - self.low) * numbers.random((count, self.width)))

    def neighbours(self, row: Vector) -> Matrix:
        """Return all rows that differ in one finite column: in any cell, or, of many cells, in a nearby one."""
        rows = [row]
        for column, count in enumerate(self._counts):
            if count is None:
                continue
            here = min(int(row[column] * count), count - 1)
            cells = range(count) if self._choice[column] or count <= _MOST_CELLS else (here + step for step in _STEPS)
            for cell in cells:
                if cell != here and 0 <= cell < count:
                    rows.append(row.copy())
                    rows[-1][column] = (cell + 0.5) / count
        return np.array(rows[1:]).reshape(-1, self.width)

    def near(self, rows: Matrix, count: int, numbers: np.random.Generator) -> Matrix:
        """Return `count` rows near some of `rows`: a few columns changed, by steps from tiny to large."""
        chosen = rows[numbers.integers(len(rows), size=count)]
        step = 10.0 ** numbers.uniform(-3.0, -0.5, size=(count, 1))
        moved = chosen + step * numbers.standard_normal(chosen.shape)
        moved = np.where(moved < 0.0, -moved, np.where(moved > 1.0, 2.0 - moved, moved))
        moved = np.where(self._choice, numbers.random(chosen.shape), np.clip(moved, self.low, self.high))
        share = np.where(numbers.random((count, 1)) < 0.5, 1.0, 1.5 / self.width)  # all columns, or one or two
        change = (numbers.random(chosen.shape) < share) & ~(self._choice & (numbers.random(chosen.shape) > 0.2))
        return self.snapped(np.where(change, moved, chosen))


def generator(rng: random.Random) -> np.random.Generator:
    """Return numpy's random number generator, seeded by Python's."""
    return np.random.default_rng(rng.getrandbits(64))
