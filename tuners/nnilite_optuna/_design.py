"""Points that no model proposes: those that many workers begin with, and those far from all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nnilite.tuning.learning import derived_seed

if TYPE_CHECKING:
    from nnilite.tuning.cube import Cube, Matrix, Vector

_ROWS = 16  # rows of a design; the next one begins after these
_DRAWN = 20  # designs, and the one whose nearest points are farthest apart is taken
_SPREAD = 4  # random points of which the farthest one is taken


def draw_first(
    cube: Cube,
    place: tuple[int, int],
    known: tuple[Matrix, Matrix],
    numbers: np.random.Generator,
    allowed: Callable[[Vector], bool],
) -> Vector:
    """Return a position row of a design or, where nothing runs or that one will not do, one far from all others.

    place: the seed, and the number of the point; known: the rows of all that ran and that run.
    """
    there, running = np.vstack(known), known[1]
    if len(running):
        row = latin_row(cube, *place)
        if allowed(row) and not cube.nearly_alike(row[None], there)[0]:
            return row
    return draw_far(cube, there, numbers)


def draw_far(cube: Cube, there: Matrix, numbers: np.random.Generator) -> Vector:
    """Return of a few position rows that are drawn at random the one farthest from all rows that are `there`."""
    drawn, features = cube.drawn(_SPREAD, numbers), cube.features(there)
    if not len(there):
        return np.asarray(drawn[0])
    apart = np.abs(cube.features(drawn)[:, None, :] - features[None, :, :]).sum(axis=2).min(axis=1)
    return np.asarray(drawn[int(np.argmax(apart))])


def latin_row(cube: Cube, seed: int, number: int) -> Vector:
    """Return the position row of a point by its number, of one Latin hypercube after the other.

    Each number of a parameter lies in a share of its range of its own (McKay, Beckman and Conover, 1979), so that the
    points do not crowd at the ends, as points do that are each drawn far from the others.
    """
    block, place = divmod(number, _ROWS)
    numbers = np.random.default_rng(derived_seed(seed, block))
    designs = [_draw_design(cube, numbers) for _ in range(_DRAWN)]
    return np.asarray(max(designs, key=lambda rows: _find_smallest_gap(cube.features(rows)))[place])


def _draw_design(cube: Cube, numbers: np.random.Generator) -> Matrix:
    shape = (_ROWS, cube.width)
    shares = (np.argsort(numbers.random(shape), axis=0) + numbers.random(shape)) / _ROWS
    return cube.snapped(cube.low + (cube.high - cube.low) * shares)


def _find_smallest_gap(features: Matrix) -> float:
    gaps = np.abs(features[:, None, :] - features[None, :, :]).sum(axis=2)
    return float(gaps[np.triu_indices(len(gaps), 1)].min())
