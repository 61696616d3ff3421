"""What is believed of good parameters before anything ran: `_default` of a search space, and values near to it.

A number is believed to be normally distributed around its default, with a fifth of its range (of its logarithm, for the
log types) as standard deviation, and one in ten anywhere; a choice to be the default in every second trial.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from nnilite.space import Flat, Parameter, SearchSpace
from nnilite.tuning.positions import position, raw_at

if TYPE_CHECKING:
    from nnilite.tuning.cube import Cube, Matrix, Vector

__all__ = ["Prior", "falling_share"]

_WIDTH = 0.2  # share of the unit interval
_ANYWHERE = 0.1  # share of draws from the whole range
_OTHERWISE = 0.5  # share of draws of any option, the default included
_POINTS = 5  # this many points weigh as much as the defaults


def falling_share(points: int) -> float:
    """Return the share of proposals to draw around the defaults once this many points are known.

    It falls, so that a wrong default costs some trials and no more.
    """
    return 0.5 * _POINTS / (_POINTS + points)


class Prior:
    """The belief that a search space expresses by `_default`."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._defaults: Flat = {p.path: p.default for p in space.parameters if p.default is not None}

    @classmethod
    def of(cls, space: SearchSpace) -> Prior | None:
        """Return the prior of a space; None if no parameter has a default."""
        prior = cls(space)
        return prior if prior._defaults else None

    def replace(self, flat: Flat, parameter_id: int, share: float, rng: random.Random) -> Flat | None:
        """Return what to propose in place of `flat`, a tuner's proposal, or None if that stays.

        The first proposal has the defaults; `share` of the later ones are drawn around them. Parameters that have no
        default keep the tuner's first value, or get a random one where it has none.
        """
        if parameter_id == 0:
            return {**{p.path: p.sample(rng) for p in self._space.parameters}, **flat, **self._defaults}
        return self.draw(rng) if rng.random() < share else None

    def draw(self, rng: random.Random) -> Flat:
        """Return raw values drawn from the prior, for active and other parameters alike."""
        return {p.path: self._draw_one(p, rng) for p in self._space.parameters}

    def _draw_one(self, parameter: Parameter, rng: random.Random) -> int | float:
        default = parameter.default
        anywhere = _OTHERWISE if parameter.unordered else _ANYWHERE
        if default is None or rng.random() < anywhere:
            return parameter.sample(rng)
        if parameter.unordered:
            return default
        return raw_at(parameter, position(parameter, default) + rng.gauss(0.0, _WIDTH))

    def log_density(self, cube: Cube, rows: Matrix) -> Vector:
        """Return the logarithm of the prior of position rows, 0 at the defaults; what is not active counts 0."""
        import numpy as np

        found, active = np.zeros(len(rows)), cube.find_active(rows)
        for column, parameter in enumerate(cube.parameters):
            if parameter.default is None or parameter.count == 1:
                continue
            apart = rows[:, column] - position(parameter, parameter.default)
            if parameter.unordered:
                others = _OTHERWISE / (parameter.count or 1)
                share = math.log(others / (1.0 - _OTHERWISE + others))
                part = np.where(np.abs(apart) < 0.5 / (parameter.count or 1), 0.0, share)
            else:
                part = np.log((1.0 - _ANYWHERE) * np.exp(-0.5 * np.square(apart / _WIDTH)) + _ANYWHERE)
            found += np.where(active[:, column], part, 0.0)
        return found
