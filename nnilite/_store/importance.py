"""`python -m nnilite._store.importance` computes the importance of parameters by optuna. JSON on stdin and on stdout.

Parameters count as they were recorded: numbers as numbers, on a logarithmic scale if they span decades, and all other
values as categories. A parameter that a nested choice left out counts as one further category, or as its median.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnilite.records import Json

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.importance import BaseImportanceEvaluator

_ABSENT = "(absent)"
_DECADES = 1000.0  # spanning more than this, a positive number is taken on a logarithmic scale
_CATEGORIES_MAX = 100
_SAMPLES = 40  # for the intervals
_SAMPLES_MIN = 10  # fewer say nothing
_SAMPLES_S = 3.0
_SAMPLE_TRIALS = 500


def flatten(parameters: Json, prefix: str = "") -> dict[str, Json]:
    """Return parameters by dotted names.

    A nested choice counts by its `_name`, under the name of the choice itself.
    """
    if not isinstance(parameters, Mapping):
        return {prefix or "value": parameters}
    flat: dict[str, Json] = {}
    for name, value in parameters.items():
        if name == "_name":
            flat[prefix or name] = value
        elif isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
        else:
            flat[f"{prefix}.{name}" if prefix else str(name)] = value
    return flat


def columns(trials: Sequence[Json]) -> dict[str, list[Json]]:
    """Return the values of each parameter that varies, one for each trial, without gaps."""
    flat = [flatten(parameters) for parameters in trials]
    names = sorted({name for one in flat for name in one})
    found = {name: _fill([one.get(name, _ABSENT) for one in flat]) for name in names}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _fill(values: list[Json]) -> list[Json]:
    present = [value for value in values if value != _ABSENT]
    if all(_is_number(value) for value in present):
        middle = statistics.median_low(present)
        return [float(middle if value == _ABSENT else value) for value in values]
    texts = [value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in values]
    return texts if len(set(texts)) <= _CATEGORIES_MAX else []


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def distribution(values: Sequence[Json]) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(values[0], str):
        return CategoricalDistribution(sorted(set(values)))
    low, high = min(values), max(values)
    return FloatDistribution(low, high, log=low > 0 and high / low >= _DECADES)


def evaluator(method: str) -> tuple[str, BaseImportanceEvaluator]:
    """Return the method that is really used, and its evaluator."""
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    if method != "pedAnova":
        try:
            return "fanova", FanovaImportanceEvaluator(n_trees=32, max_depth=32, seed=0)
        except ImportError:
            if method == "fanova":
                raise
    return "pedAnova", PedAnovaImportanceEvaluator()


def compute(method: str, trials: Sequence[tuple[Json, float]], direction: str) -> dict[str, Any]:
    """Return the method, shares by parameter, and the reason if there are none. `direction`: maximize or minimize."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    scores = [score for _, score in trials]
    known = columns([parameters for parameters, _ in trials])
    if not known or len(set(scores)) < 2:
        what = "no parameter" if not known else "the metric never"
        return {"method": method, "shares": [], "intervals": [], "reason": f"{what} varies among the trials so far"}
    used, how = evaluator(method)
    every = range(len(scores))
    shares = _compute_shares(known, scores, every, direction, how)
    intervals = _compute_intervals(
        list(shares), lambda places: _compute_shares(known, scores, places, direction, how), len(scores)
    )
    return {"method": used, "shares": list(shares.items()), "intervals": intervals, "reason": ""}


def _compute_shares(
    known: Mapping[str, Sequence[Json]],
    scores: Sequence[float],
    places: Sequence[int],
    direction: str,
    how: BaseImportanceEvaluator,
) -> dict[str, float]:
    """Return the share of each parameter, largest first, by the trials at these places."""
    import optuna

    # From all trials, since a sample may miss the ends of a range.
    distributions = {name: distribution(values) for name, values in known.items()}
    study = optuna.create_study(direction=optuna.study.StudyDirection[direction.upper()])
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: values[place] for name, values in known.items()},
                distributions=distributions,
                value=scores[place],
            )
            for place in places
        ]
    )
    return dict(optuna.importance.get_param_importances(study, evaluator=how))


def _compute_intervals(
    names: Sequence[str], shares_of: Callable[[Sequence[int]], Mapping[str, float]], count: int
) -> list[tuple[float, float]]:
    """Return the ends between which nine of ten shares lie by random samples of the trials; none without the time."""
    luck = random.Random(0)
    samples: list[Mapping[str, float]] = []
    began = time.monotonic()
    while len(samples) < _SAMPLES and time.monotonic() - began < _SAMPLES_S:
        try:
            samples.append(shares_of(luck.choices(range(count), k=min(count, _SAMPLE_TRIALS))))
        except (ValueError, RuntimeError):  # the results of this sample are all the same
            continue
    if len(samples) < _SAMPLES_MIN:
        return []
    cut = len(samples) // 20
    ordered = [sorted(one.get(name, 0.0) for one in samples) for name in names]
    return [(values[cut], values[-1 - cut]) for values in ordered]


def main() -> None:
    os.nice(10)  # trials on this machine come first
    # Optuna warns of its experimental parts, and no one reads the warnings of this process.
    warnings.simplefilter("ignore")
    question = json.load(sys.stdin)
    trials = [(json.loads(parameters), score) for parameters, score in question["trials"]]
    json.dump(compute(question["method"], trials, question["direction"]), sys.stdout)


if __name__ == "__main__":
    main()
