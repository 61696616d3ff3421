"""`nni.parameter_expressions`: one value of each type of parameter, drawn by a numpy RandomState."""

from __future__ import annotations

import math

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def choice(options: Any, random_state: Any) -> Any:
    """Return one of the options."""
    return options[random_state.randint(len(options))]


def randint(lower: int, upper: int, random_state: Any) -> int:
    """Return a whole number from `lower` to below `upper`."""
    return int(random_state.randint(lower, upper))


def uniform(low: float, high: float, random_state: Any) -> float:
    """Return a number between the two."""
    return float(random_state.uniform(low, high))


def quniform(low: float, high: float, q: float, random_state: Any) -> float:
    """Return a number between the two that is a multiple of `q` within the bounds."""
    return min(max(_multiple(uniform(low, high, random_state), q), low), high)


def loguniform(low: float, high: float, random_state: Any) -> float:
    """Return a number whose logarithm is uniform."""
    return math.exp(uniform(math.log(low), math.log(high), random_state))


def qloguniform(low: float, high: float, q: float, random_state: Any) -> float:
    """Return a number whose logarithm is uniform, as a multiple of `q` within the bounds."""
    return min(max(_multiple(loguniform(low, high, random_state), q), low), high)


def normal(mu: float, sigma: float, random_state: Any) -> float:
    """Return a number from the normal distribution."""
    return float(random_state.normal(mu, sigma))


def qnormal(mu: float, sigma: float, q: float, random_state: Any) -> float:
    """Return a number from the normal distribution, as a multiple of `q`."""
    return _multiple(normal(mu, sigma, random_state), q)


def lognormal(mu: float, sigma: float, random_state: Any) -> float:
    """Return a number whose logarithm is normal."""
    return math.exp(normal(mu, sigma, random_state))


def qlognormal(mu: float, sigma: float, q: float, random_state: Any) -> float:
    """Return a number whose logarithm is normal, as a multiple of `q`."""
    return _multiple(lognormal(mu, sigma, random_state), q)


def _multiple(value: float, q: float) -> float:
    return round(value / q) * q
