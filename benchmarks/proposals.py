"""The next parameters of TPE after 1,000 trials, against plain optuna on the same history."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import optuna

from benchmarks.curves import Curve
from benchmarks.table import Result
from nnilite._plugins import lookup

TRIALS = 1000
SIZES = (50, 250, 1000)
ROUNDS = 15
SPACE = {f"x{i}": {"_type": "uniform", "_value": [0, 1]} for i in range(5)}


def measure() -> list[Result]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    luck = random.Random(0)
    history = [({name: luck.random() for name in SPACE}, luck.random()) for _ in range(TRIALS)]
    plain, ours = plain_study(history), our_tuner(history)
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(ROUNDS):
        for found, propose in zip(times, (plain, ours), strict=True):
            start = time.perf_counter()
            propose(TRIALS + i)
            found.append((time.perf_counter() - start) * 1000)
    plain_ms, ours_ms = map(statistics.median, times)
    extra = ours_ms - plain_ms
    return [
        Result(
            "next parameters, TPE after 1,000 trials",
            f"{ours_ms:.1f} ms",
            f"plain optuna {plain_ms:.1f} ms",
            f"{extra:+.1f} ms",
            "+5 ms",
            extra < 5,
        )
    ]


def curve() -> Curve:
    luck, points = random.Random(0), []
    for trials in SIZES:
        propose = our_tuner([({name: luck.random() for name in SPACE}, luck.random()) for _ in range(trials)])
        times = []
        for i in range(ROUNDS):
            start = time.perf_counter()
            propose(trials + i)
            times.append((time.perf_counter() - start) * 1000)
        points.append((trials, statistics.median(times)))
    return Curve("next parameters of TPE", "trials before", "ms", points)


def plain_study(history: list[tuple[dict[str, float], float]]) -> Any:
    axes = {name: optuna.distributions.FloatDistribution(0, 1) for name in SPACE}
    sampler = optuna.samplers.TPESampler(seed=1, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    for parameters, value in history:
        study.add_trial(optuna.trial.create_trial(params=parameters, distributions=axes, value=value))
    return lambda _: study.ask(axes)


def our_tuner(history: list[tuple[dict[str, float], float]]) -> Any:
    tuner: Any = lookup.tuner_class("TPE")(seed=1)
    tuner.update_search_space(SPACE)
    tuner.import_data([{"parameter": parameters, "value": value} for parameters, value in history])
    return tuner.generate_parameters
