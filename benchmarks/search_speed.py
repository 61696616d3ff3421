"""`python -m benchmarks.search_speed [--out FILE]`: what a proposal takes after 100, 1,000 and 5,000 trials.

Each tuner replays the same random history, as after a restart; then proposals and results take turns. Where a library
is behind a tuner, it gets the same history and the same turns, bare.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnilite._plugins import lookup
from nnilite.tuner import Call
from nnilite.tuning.class_args import construct

SPACE = {f"x{k}": {"_type": "uniform", "_value": [-5, 5]} for k in range(5)}
ARGS: dict[str, dict[str, Any]] = {
    "NSGA2": {"objectives": {"default": "minimize", "other": "minimize"}},
    "Auto, 3 objectives": {"objectives": {"default": "minimize", "other": "minimize", "third": "maximize"}},
    "PBT": {"all_checkpoint_dir": "/dev/null/nowhere", "population_size": 20},
}
TUNERS = ("Random", "QMC", "Anneal", "Evolution", "TPE", "CMAES", "NSGA2", "PBT", "Hyperband", "ASHA", "BOHB")
DEAR = ("Auto", "Auto, 3 objectives", "GP", "Metis", "SMAC", "DNGO")
Turn = Callable[[int], None]
ABOUT = """\
# Speed of the tuners

Milliseconds of processor time for one proposal and one result with five numbers, after 100, 1,000 and 5,000 trials. If
a tuner is built on a library, the library gets the same history and takes turns with the tuner. The share is the
tuner's time divided by the library's: below 1, nnilite is faster. The bare library is optuna with the same sampler and
settings. Use the milliseconds to compare rows, not machines. The page is made by `python -m benchmarks.search_speed`.

Auto, GP, Metis, SMAC and DNGO have no comparable library. Auto hands over to another algorithm after 300 results. With
more than 300 (GP, Metis), 1,500 (SMAC) or 2,000 results (DNGO), the others learn from the best and the latest results
only, since the cost of a Gaussian process grows with the cube of their number.
"""


def value_of(parameters: dict[str, Any]) -> dict[str, float]:
    xs = [parameters[name] for name in SPACE]
    return {"default": sum(x * x for x in xs), "other": sum((x - 1) ** 2 for x in xs), "third": xs[0] - xs[1] ** 2}


def history(count: int) -> list[dict[str, float]]:
    luck = random.Random(0)
    return [{name: luck.uniform(-5, 5) for name in SPACE} for _ in range(count)]


def ours(name: str, count: int) -> Turn:
    tuner: Any = construct(lookup.tuner_class(name.partition(",")[0]), {"seed": 1, **ARGS.get(name, {})})
    tuner.update_search_space(SPACE)
    calls = []
    for k, parameters in enumerate(history(count)):
        calls.append(Call("generate", k, str(k), parameters))
        calls.append(Call("result", k, str(k), parameters, value_of(parameters)))
        calls.append(Call("end", k, str(k), success=True))
    tuner.replay(calls)

    def turn(k: int) -> None:
        parameters = tuner.generate_parameters(k)
        tuner.receive_trial_result(k, parameters, value_of(parameters))
        tuner.trial_end(k, True)

    return turn


def bare(name: str, count: int) -> Turn | None:
    import optuna
    from optuna import samplers

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kinds: dict[str, Callable[[], Any]] = {
        "Random": lambda: samplers.RandomSampler(seed=1),
        "TPE": lambda: samplers.TPESampler(seed=1, multivariate=True, constant_liar=True),
        "CMAES": lambda: samplers.CmaEsSampler(seed=1),
        "NSGA2": lambda: samplers.NSGAIISampler(seed=1),
        "QMC": lambda: samplers.QMCSampler(seed=1, scramble=True),
    }
    if name not in kinds:
        return None
    axes = {key: optuna.distributions.FloatDistribution(-5, 5) for key in SPACE}
    goals = 2 if name == "NSGA2" else 1
    study = optuna.create_study(sampler=kinds[name](), directions=["minimize"] * goals)
    for parameters in history(count):
        values = list(value_of(parameters).values())[:goals]
        study.add_trial(optuna.trial.create_trial(params=parameters, distributions=axes, values=values))

    def turn(k: int) -> None:
        trial = study.ask(axes)
        study.tell(trial, list(value_of(trial.params).values())[:goals])

    return turn


def medians_ms(turns: list[Turn], first: int, rounds: int) -> list[float]:
    """Return the median of each; they take turns, so that a busy machine slows all of them alike."""
    times: list[list[float]] = [[] for _ in turns]
    for k in range(first, first + 1 + rounds):
        for turn, known in zip(turns, times, strict=True):
            start = time.process_time()
            turn(k)
            known.append((time.process_time() - start) * 1000)
    return [statistics.median(known[1:]) for known in times]


def row(name: str, counts: tuple[int, ...]) -> str:
    cells = []
    for count in counts:
        library = bare(name, count)
        turns = [ours(name, count)] + ([library] if library else [])
        found = medians_ms(turns, count, 5 if name in DEAR else 15)
        cells += [f"{found[0]:.1f}", f"{found[0] / found[1]:.2f}" if library else ""]
    return f"| {name} | " + " | ".join(cells) + " |"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_speed")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="1,000 trials only, and no tuner with a dear model")
    args = parser.parse_args(arguments)
    counts = (1000,) if args.quick else (100, 1000, 5000)
    heads = [cell for count in counts for cell in (f"ms after {count:,}", "share of the library's")]
    lines = [ABOUT, "| tuner | " + " | ".join(heads) + " |", "| --- " * (len(heads) + 1) + "|"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in TUNERS + (() if args.quick else DEAR):
            lines.append(row(name, counts))
            print(lines[-1], file=sys.stderr)
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
