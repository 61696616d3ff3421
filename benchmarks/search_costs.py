"""Processor time of whole searches against plain optuna, and what the tuner's process keeps of a trial."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import optuna

from benchmarks.curves import Curve
from benchmarks.search_speed import SPACE, value_of
from benchmarks.table import Result
from nnilite import Search
from nnilite._plugins import lookup
from nnilite._tuner_host.child import Child
from nnilite.tuning.class_args import construct

TRIALS = 100
ROUNDS = 7
LEARNED, KEPT = 1000, 5000  # trials of Random: before its memory is looked at, and between the two looks
MOST_KEPT_BYTES = 10  # of a trial


def measure() -> list[Result]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kept = measure_kept_bytes()
    return [
        compare(f"{TRIALS} evaluations by TPE in Search", search_by_ours, search_by_optuna),
        compare(f"{TRIALS} proposals of NSGA2, with results", propose_by_ours, propose_by_optuna),
        Result(
            "memory of the tuner's process, Random, for each trial",
            f"{kept:.0f} bytes",
            "",
            "",
            f"{MOST_KEPT_BYTES} bytes",
            kept <= MOST_KEPT_BYTES,
        ),
    ]


def curve() -> Curve | None:
    return None


def compare(what: str, ours: Callable[[], None], theirs: Callable[[], None]) -> Result:
    """Medians of processor time. They take turns, so that a busy machine is so for both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS + 1):
        for found, act in zip(times, (ours, theirs), strict=True):
            start = time.process_time()
            act()
            found.append((time.process_time() - start) * 1000)
    ours_ms, theirs_ms = (statistics.median(found[1:]) for found in times)  # the first ones import
    ratio = ours_ms / theirs_ms
    return Result(what, f"{ours_ms:.0f} ms", f"plain optuna {theirs_ms:.0f} ms", f"{ratio:.2f}", "1.0", ratio <= 1.0)


def search_by_ours() -> None:
    search = Search(SPACE, "TPE", optimize="minimize", seed=1)
    search.run(lambda parameters: value_of(parameters)["default"], trials=TRIALS)


def search_by_optuna() -> None:
    sampler = optuna.samplers.TPESampler(seed=1, multivariate=True, constant_liar=True)

    def objective(trial: optuna.Trial) -> float:
        return value_of({name: trial.suggest_float(name, -5, 5) for name in SPACE})["default"]

    optuna.create_study(sampler=sampler).optimize(objective, n_trials=TRIALS)


def propose_by_ours() -> None:
    goals = {"default": "minimize", "other": "minimize"}
    tuner: Any = construct(lookup.tuner_class("NSGA2"), {"objectives": goals, "seed": 1})
    tuner.update_search_space(SPACE)
    for number in range(TRIALS):
        parameters = tuner.generate_parameters(number)
        tuner.receive_trial_result(number, parameters, value_of(parameters))
        tuner.trial_end(number, True)


def propose_by_optuna() -> None:
    axes = {name: optuna.distributions.FloatDistribution(-5, 5) for name in SPACE}
    study = optuna.create_study(sampler=optuna.samplers.NSGAIISampler(seed=1), directions=["minimize"] * 2)
    for _ in range(TRIALS):
        trial = study.ask(axes)
        study.tell(trial, list(value_of(trial.params).values())[:2])


def measure_kept_bytes() -> float:
    """What stays of a trial of Random in the tuner's process."""
    child = Child()
    child.answer({"do": "open", "tuner": {"name": "Random", "classArgs": {"seed": 1}}, "space": SPACE, "gpus": ""})
    run_trials(child, 0, LEARNED)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run_trials(child, LEARNED, KEPT)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / KEPT


def run_trials(child: Child, first: int, count: int) -> None:
    for number in range(first, first + count):
        (parameters,) = child.answer({"do": "generate", "ids": [number]})["ok"]
        call = {"kind": "result", "parameter_id": number, "trial_job_id": str(number), "parameters": parameters}
        child.answer({"do": "call", "call": {**call, "value": 0.5}})
        child.answer({"do": "call", "call": {"kind": "end", "parameter_id": number, "success": True}})
