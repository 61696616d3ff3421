"""Where a raw value lies between 0 and 1, and back: for tuners that work in a unit cube.

The position is the quantile of the parameter's own distribution, so that a uniform draw of positions is a draw from
the search space. A finite parameter of n values has n cells of equal width; its values lie in their middles. Steps
and whole numbers on a log scale have cells as wide as their shares of that scale.
`raw_at(p, position(p, raw))` is `raw`, but for rounding.
"""

from __future__ import annotations

import math
import random
from statistics import NormalDist

from nnilite.space import Parameter, ParameterKind

__all__ = ["neighbour", "position", "raw_at"]

_TAIL = 1e-9  # the normal types have no end: so near to 0 and 1 is far enough


def position(parameter: Parameter, raw: int | float) -> float:
    """Return the position of a raw value, in [0, 1]."""
    if parameter.log_ends is not None:
        first, last = parameter.log_ends
        return min(max((math.log(raw) - first) / (last - first), 0.0), 1.0)
    if parameter.count is not None:
        return (_cell(parameter, raw) + 0.5) / parameter.count
    if parameter.mu is not None and parameter.sigma is not None:
        return _place_normal(parameter.log, NormalDist(parameter.mu, parameter.sigma), raw)
    low, high = _find_bounds(parameter)
    share = ((math.log(raw) if parameter.log else raw) - low) / (high - low)
    return min(max(share, 0.0), 1.0)


def raw_at(parameter: Parameter, place: float) -> int | float:
    """Return the raw value at a position in [0, 1]; what lies outside is moved to the nearest end."""
    place = min(max(place, 0.0), 1.0)
    if parameter.log_ends is not None:
        first, last = parameter.log_ends
        return parameter.legal(math.exp(first + place * (last - first)))
    if parameter.count is not None:
        return _place_in_cell(parameter, min(int(place * parameter.count), parameter.count - 1))
    if parameter.mu is not None and parameter.sigma is not None:
        inner = NormalDist(parameter.mu, parameter.sigma).inv_cdf(min(max(place, _TAIL), 1.0 - _TAIL))
    else:
        low, high = _find_bounds(parameter)
        inner = low + place * (high - low)
    return parameter.legal(math.exp(inner) if parameter.log else inner)


def neighbour(parameter: Parameter, raw: int | float, width: float, rng: random.Random) -> int | float:
    """Return a value near to `raw`.

    It is normally distributed in position with standard deviation `width`; for a choice, it is any other option. A
    finite parameter with more than one value changes always.
    """
    count = parameter.count
    if parameter.unordered or (count is not None and count <= 2):
        cell = _cell(parameter, raw)
        others = [k for k in range(count or 1) if k != cell]
        return _place_in_cell(parameter, rng.choice(others)) if others else raw
    step = rng.gauss(0.0, width)
    if parameter.log_ends is not None:
        found = raw_at(parameter, position(parameter, raw) + step)
        return _find_next(parameter, raw, up=step > 0.0) if found == raw else found
    if count is not None:
        step += math.copysign(1.0 / count, step)
    place = position(parameter, raw) + step
    found = raw_at(parameter, -place if place < 0.0 else 2.0 - place if place > 1.0 else place)
    return _find_next(parameter, raw, up=step > 0.0) if count is not None and found == raw else found


def _find_next(parameter: Parameter, raw: int | float, up: bool) -> int | float:
    """Return the value after or before `raw`; at an end of the range, the one on its other side."""
    cell, last = _cell(parameter, raw), (parameter.count or 1) - 1
    near = cell + 1 if up else cell - 1
    return _place_in_cell(parameter, near if 0 <= near <= last else 2 * cell - near)


def _find_bounds(parameter: Parameter) -> tuple[float, float]:
    low, high = float(parameter.low or 0.0), float(parameter.high or 0.0)
    return (math.log(low), math.log(high)) if parameter.log else (low, high)


def _place_normal(log: bool, distribution: NormalDist, raw: float) -> float:
    if log and raw <= 0.0:
        return _TAIL
    return min(max(distribution.cdf(math.log(raw) if log else raw), _TAIL), 1.0 - _TAIL)


def _cell(parameter: Parameter, raw: int | float) -> int:
    if parameter.q is not None:
        return round(raw / parameter.q) - round((parameter.low or 0.0) / parameter.q)
    return (
        int(raw) - int(parameter.low or 0)
        if parameter.kind is ParameterKind.RANDINT
        else int(raw)
        if _whole(parameter)
        else 0
    )


def _place_in_cell(parameter: Parameter, cell: int) -> int | float:
    if parameter.q is not None:
        return parameter.legal((round((parameter.low or 0.0) / parameter.q) + cell) * parameter.q)
    if _whole(parameter):
        return int(parameter.low or 0) + cell
    return float(parameter.low or 0.0)


def _whole(parameter: Parameter) -> bool:
    return parameter.kind in (ParameterKind.CHOICE, ParameterKind.RANDINT)
