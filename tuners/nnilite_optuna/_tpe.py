"""TPE behind NNI's name and arguments."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nnilite.errors import ConfigError, Place
from nnilite.tuning.class_args import number, one_of, whole_number
from nnilite_optuna._caching_tpe import get_caching_tpe
from nnilite_optuna._study import OptunaTuner

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from optuna.samplers import BaseSampler

_DEFAULTS: dict[str, Any] = {
    "constant_liar_type": "best",
    "n_startup_jobs": 10,
    "n_ei_candidates": 24,
    "linear_forgetting": 25,
    "prior_weight": 1.0,
    "gamma": None,
    "multivariate": True,
}
_LEAST_WEIGHT = 1e-9
"""Of the prior where a user gives it none, as an example of NNI's does: options not yet tried stay possible."""


class TPETuner(OptunaTuner):
    """Tree-structured Parzen estimators (Bergstra et al., 2011), by optuna's TPESampler.

    Args:
        optimize_mode: "minimize" or "maximize".
        seed: any whole number; None for a different search each time.
        tpe_args: `constant_liar_type` ("best", "worst", "mean": running trials repel new ones; None: they do not),
            `n_startup_jobs` (10 random trials first), `n_ei_candidates` (24), `linear_forgetting` (25: older trials
            than so many weigh less), `prior_weight` (1.0), `gamma` (the best ceil(gamma * sqrt(n)) trials are the good
            ones, at most `linear_forgetting`; None: the best tenth, at most 25), `multivariate` (True: parameters are
            modelled together).

    Raises: ConfigError
    """

    weighs_violations = True
    ignored_arguments = MappingProxyType(
        {
            "parallel_optimize": "trials that run count always",
            "constant_liar_type": "trials that run count always; tpe_args has an argument of this name",
        }
    )
    """What NNI 1 and 2 had."""

    def __init__(
        self,
        optimize_mode: str = "minimize",
        seed: int | None = None,
        tpe_args: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed)
        self._args = _checked(tpe_args or {})

    def _make_sampler(self, nested: bool) -> BaseSampler:
        args = self._args
        together = args["multivariate"]
        return get_caching_tpe()(
            always=None if nested else self._always,
            n_startup_trials=args["n_startup_jobs"],
            n_ei_candidates=args["n_ei_candidates"],
            multivariate=together,
            group=together and nested,
            constant_liar=args["constant_liar_type"] is not None,
            **_changed(args),
        )


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"must be an object, not {given!r}", Place(field="classArgs.tpe_args"))
    for name in given:
        if name not in _DEFAULTS:
            close = difflib.get_close_matches(str(name), _DEFAULTS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"valid arguments are {', '.join(_DEFAULTS)}"
            raise ConfigError(f"unknown argument; {hint}", Place(field=f"classArgs.tpe_args.{name}"))
    args = {**_DEFAULTS, **given}
    one_of("tpe_args.constant_liar_type", args["constant_liar_type"], ("best", "worst", "mean", None))
    one_of("tpe_args.multivariate", args["multivariate"], (True, False))
    for name, low in (("n_startup_jobs", 0), ("n_ei_candidates", 1), ("linear_forgetting", 1)):
        whole_number(f"tpe_args.{name}", args[name], low)
    number("tpe_args.prior_weight", args["prior_weight"], low=0.0)
    if args["gamma"] is not None:
        number("tpe_args.gamma", args["gamma"], low=1e-9)
    return args


def _changed(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from the defaults, under optuna's names; optuna warns about needless ones."""
    changed: dict[str, Any] = {}
    keep, share = args["linear_forgetting"], args["gamma"]
    if args["prior_weight"] != _DEFAULTS["prior_weight"]:
        changed["prior_weight"] = max(args["prior_weight"], _LEAST_WEIGHT)
    if keep != _DEFAULTS["linear_forgetting"]:
        changed["weights"] = lambda count: _weights(count, keep)
    if share is not None:
        changed["gamma"] = lambda count: min(math.ceil(share * math.sqrt(count)), keep)
    return changed


def _weights(count: int, keep: int) -> NDArray[np.float64]:
    import numpy as np

    if count <= keep:
        return np.ones(count)
    return np.concatenate([np.linspace(1.0 / count, 1.0, num=count - keep), np.ones(keep)])
