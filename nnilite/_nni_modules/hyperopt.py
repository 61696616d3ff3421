"""NNI's HyperoptTuner: the tuners that it had from hyperopt, chosen by their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nnilite._plugins import lookup
from nnilite.tuner import Call, Tuner
from nnilite.tuning.class_args import construct, one_of

_TUNERS = {"tpe": "TPE", "random_search": "Random", "anneal": "Anneal"}


class HyperoptTuner(Tuner):
    """TPE, Random or Anneal.

    Args:
        algorithm_name: "tpe", "random_search" or "anneal".
        optimize_mode: "maximize" or "minimize".
        parallel_optimize, constant_liar_type: those of Anneal; for TPE, trials that run count always.

    Raises: ConfigError
    """

    def __init__(
        self,
        algorithm_name: str,
        optimize_mode: str = "minimize",
        parallel_optimize: bool = False,
        constant_liar_type: str = "min",
    ) -> None:
        found = lookup.tuner_class(_TUNERS[one_of("algorithm_name", algorithm_name, tuple(_TUNERS))])
        liar = {"parallel_optimize": parallel_optimize, "constant_liar_type": constant_liar_type}
        more = liar if algorithm_name == "anneal" else {}
        self._tuner: Tuner = construct(found, {"optimize_mode": optimize_mode, **more})
        self._accept_customized_trials()

    def update_search_space(self, search_space: Any) -> None:
        self._tuner.update_search_space(search_space)

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        return self._tuner.generate_parameters(parameter_id, **kwargs)

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        self._tuner.receive_trial_result(parameter_id, parameters, value, **kwargs)

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        self._tuner.trial_end(parameter_id, success, **kwargs)

    def import_data(self, data: list[dict[str, Any]]) -> None:
        self._tuner.import_data(data)

    def replay(self, calls: Iterable[Call]) -> None:
        self._tuner.replay(calls)
