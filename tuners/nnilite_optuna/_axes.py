"""From search-space parameters to optuna's distributions and back.

Each axis is exact in one direction: `encode(decode(x))` always gives the same number again for the value that the
trial got, so that a study made from recorded parameters equals the one in which they were proposed. Steps (q) become
whole numbers; normal types are searched by their quantile, so that a uniform draw is a draw from the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from nnilite.space import Flat, Key, Parameter, ParameterKind, SearchSpace

if TYPE_CHECKING:
    from optuna.trial import Trial

_TAIL = 1e-9  # quantiles this close to 0 and 1 are left out: the normal types are unbounded


@dataclass(frozen=True)
class Axis:
    """One parameter as optuna sees it."""

    parameter: Parameter
    name: str
    distribution: BaseDistribution

    @property
    def path(self) -> Key:
        return self.parameter.path

    @property
    def conditional(self) -> bool:
        return self.parameter.parent is not None

    def active(self, flat: Flat) -> bool:
        """Return whether the choices made so far make this parameter count."""
        if self.parameter.parent is None:
            return True
        path, option = self.parameter.parent
        return flat.get(path) == option

    def suggest(self, trial: Trial) -> int | float:
        """Let the sampler choose a raw value."""
        return self.decode(_suggest(trial, self.name, self.distribution))

    def decode(self, inner: int | float) -> int | float:
        """Convert optuna's value to the raw value."""
        parameter = self.parameter
        if parameter.categorical:
            return int(inner)
        if parameter.mu is not None and parameter.sigma is not None:
            drawn = NormalDist(parameter.mu, parameter.sigma).inv_cdf(inner)
            return parameter.legal(math.exp(drawn) if parameter.log else drawn)
        if parameter.q is not None:
            return parameter.legal((inner - _find_shift(parameter)) * parameter.q)
        return parameter.legal(inner)

    def encode(self, raw: int | float) -> int | float:
        """Convert the raw value to optuna's value."""
        parameter = self.parameter
        if parameter.mu is not None and parameter.sigma is not None:
            return _compute_quantile(parameter, raw, parameter.mu, parameter.sigma)
        if parameter.q is not None:
            return round(raw / parameter.q) + _find_shift(parameter)
        return raw


def list_axes(space: SearchSpace) -> list[Axis]:
    """Yield all parameters, each parent before its children."""
    return [Axis(p, ".".join(str(part) for part in p.path), _make_distribution(p)) for p in space.parameters]


def _make_distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.ordered:
        return IntDistribution(0, len(parameter.values) - 1)
    if parameter.kind is ParameterKind.CHOICE:
        return CategoricalDistribution(tuple(range(len(parameter.values))))
    if parameter.low is None or parameter.high is None:
        return FloatDistribution(_TAIL, 1.0 - _TAIL)
    if parameter.kind is ParameterKind.RANDINT:
        return IntDistribution(int(parameter.low), int(parameter.high) - 1)
    if parameter.q is None:
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    shift = _find_shift(parameter)
    first, last = round(parameter.low / parameter.q) + shift, round(parameter.high / parameter.q) + shift
    return IntDistribution(first, last, log=parameter.log)


def _find_shift(parameter: Parameter) -> int:
    """Return the shift for optuna's logarithmic integers: they begin at 1, but the smallest multiple of q may be 0."""
    return 1 if parameter.log and round((parameter.low or 0.0) / (parameter.q or 1.0)) < 1 else 0


def _compute_quantile(parameter: Parameter, raw: float, mu: float, sigma: float) -> float:
    if parameter.log and raw <= 0:
        return _TAIL
    share = NormalDist(mu, sigma).cdf(math.log(raw) if parameter.log else raw)
    return min(max(share, _TAIL), 1.0 - _TAIL)


def _suggest(trial: Trial, name: str, distribution: BaseDistribution) -> int | float:
    if isinstance(distribution, CategoricalDistribution):
        return int(trial.suggest_categorical(name, range(len(distribution.choices))))
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    if not isinstance(distribution, FloatDistribution):
        raise TypeError(f"no axis has a {type(distribution).__name__}")
    return trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)
