"""`python -m benchmarks.search_limits`: constraints on results, on published problems, beside optuna's TPE.

A run is one solver on one problem with one seed. The regret is that of the best feasible result so far: 0 for the best
feasible one of the problem, 1 for the median of feasible random ones, and 2 while there is none.

    --seeds 10        of each solver and problem: five minutes of processor time for ten
    --solvers LABELS  separated by commas; all of SOLVERS if not given
    --write           write the report page of the documentation
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search_shares import share, write_page
from nnilite import Search

BASELINE = "optuna TPE"
SOLVERS = (BASELINE, "nnilite Auto", "nnilite TPE", "nnilite Evolution", "nnilite Random")
RESULTS = (20, 40)
NONE_FEASIBLE = 2.0  # regret
SAMPLES = 200_000  # random points by which regrets are scaled, and the best feasible one is found
PAGE = Path(__file__).parents[1] / "docs/reference/tuners/quality/constraints.md"
Result = dict[str, float]


@dataclass(frozen=True)
class Problem:
    """A function to be minimised, where each further number `c...` of its result must not be above 0."""

    name: str
    source: str
    ranges: tuple[tuple[float, float], ...]
    limits: int
    best: float  # the smallest feasible value, by a local search from the best of many random points
    function: Callable[..., tuple[Any, ...]]  # of arrays, too
    is_developed: bool = True  # whether it was looked at while the tuner was changed

    @property
    def space(self) -> dict[str, Any]:
        return {f"x{k}": {"_type": "uniform", "_value": list(ends)} for k, ends in enumerate(self.ranges)}

    @property
    def texts(self) -> list[str]:
        return [f"c{k} <= 0" for k in range(self.limits)]

    def result(self, parameters: dict[str, float]) -> Result:
        value, *limits = self.function(*(parameters[f"x{k}"] for k in range(len(self.ranges))))
        return {"default": float(value), **{f"c{k}": float(limit) for k, limit in enumerate(limits)}}

    def median(self) -> tuple[float, float]:
        """Return the median of feasible random values, and the share of random points that is feasible."""
        luck = np.random.default_rng(0)
        rows = [luck.uniform(*ends, size=SAMPLES) for ends in self.ranges]
        value, *limits = self.function(*rows)
        good = np.all(np.array(limits) <= 0.0, axis=0)
        return float(np.median(value[good])), float(good.mean())


def waves(x: Any, y: Any) -> tuple[Any, ...]:
    return np.cos(2 * x) * np.cos(y) + np.sin(x), np.cos(x) * np.cos(y) - np.sin(x) * np.sin(y) - 0.5


def islands(x: Any, y: Any) -> tuple[Any, ...]:
    return np.sin(x) + y, np.sin(x) * np.sin(y) + 0.95


def branin(x: Any, y: Any) -> tuple[Any, ...]:
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    value = bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(x) + 10
    return value, (x - 2.5) ** 2 + (y - 7.5) ** 2 - 50


def toy(x: Any, y: Any) -> tuple[Any, ...]:
    wave = 1.5 - x - 2 * y - 0.5 * np.sin(2 * math.pi * (x * x - 2 * y))
    return x + y, wave, x * x + y * y - 1.5


def spring(wire: Any, coil: Any, turns: Any) -> tuple[Any, ...]:
    """Return the weight of a spring under tension and compression, and its four limits."""
    bend = (4 * coil**2 - wire * coil) / (12566 * (coil * wire**3 - wire**4)) + 1 / (5108 * wire**2) - 1
    return (
        (turns + 2) * coil * wire**2,
        1 - coil**3 * turns / (71785 * wire**4),
        bend,
        1 - 140.45 * wire / (coil**2 * turns),
        (wire + coil) / 1.5 - 1,
    )


def vessel(shell: Any, head: Any, radius: Any, length: Any) -> tuple[Any, ...]:
    """Return the cost of a pressure vessel, and its limits. That of its length is its range."""
    weld = 3.1661 * shell**2 * length + 19.84 * shell**2 * radius
    volume = math.pi * radius**2 * length + 4 / 3 * math.pi * radius**3
    cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2 + weld
    return cost, 0.0193 * radius - shell, 0.00954 * radius - head, 1_296_000 - volume


def townsend(x: Any, y: Any) -> tuple[Any, ...]:
    angle = np.arctan2(x, y)
    wide = 2 * np.cos(angle) - np.cos(2 * angle) / 2 - np.cos(3 * angle) / 4 - np.cos(4 * angle) / 8
    value = -(np.cos((x - 0.1) * y) ** 2) - x * np.sin(3 * x + y)
    return value, x * x + y * y - wide**2 - (2 * np.sin(angle)) ** 2


def bird(x: Any, y: Any) -> tuple[Any, ...]:
    value = np.sin(y) * np.exp((1 - np.cos(x)) ** 2) + np.cos(x) * np.exp((1 - np.sin(y)) ** 2) + (x - y) ** 2
    return value, (x + 5) ** 2 + (y + 5) ** 2 - 25


GARDNER = "Gardner et al., 2014"
COELLO = "Coello and Mezura-Montes, 2002"
PROBLEMS = (
    Problem("simulation 1", GARDNER, ((0, 6), (0, 6)), 1, -2.0, waves),
    Problem("simulation 2", GARDNER, ((0, 6), (0, 6)), 1, 0.2532, islands),
    Problem("Branin in a disk", "Gelbart et al., 2014", ((-5, 10), (0, 15)), 1, 0.3979, branin),
    Problem("toy", "Gramacy et al., 2016", ((0, 1), (0, 1)), 2, 0.5998, toy),
    Problem("spring", COELLO, ((0.05, 2), (0.25, 1.3), (2, 15)), 4, 0.012665, spring),
    Problem(
        "pressure vessel", COELLO, ((0.0625, 6.1875), (0.0625, 6.1875), (10, 200), (10, 240)), 3, 5804.4, vessel, False
    ),
    Problem("Townsend", "Townsend, 2014", ((-2.25, 2.25), (-2.5, 1.75)), 1, -2.024, townsend, False),
    Problem("bird in a disk", "Mishra, 2006", ((-10, 0), (-6.5, 0)), 1, -106.7645, bird, False),
)


def results(label: str, problem: Problem, seed: int) -> Iterator[Result]:
    family, name = label.split(" ", 1)
    if family == "optuna":
        yield from _results_of_optuna(problem, seed)
        return
    search = Search(problem.space, name, "minimize", seed, result_constraints=problem.texts)
    for trial in search.run(problem.result, trials=RESULTS[-1]):
        yield trial.value


def _results_of_optuna(problem: Problem, seed: int) -> Iterator[Result]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(RESULTS[-1]):
        trial = study.ask()
        result = problem.result({f"x{k}": trial.suggest_float(f"x{k}", *e) for k, e in enumerate(problem.ranges)})
        for name in sorted(result.keys() - {"default"}):
            trial.set_constraint(name, result[name])
        study.tell(trial, result["default"])
        yield result


def regrets(label: str, problem: Problem, seed: int, median: float) -> list[float]:
    """Return the regret after each of RESULTS results."""
    best, found = NONE_FEASIBLE, []
    for count, result in enumerate(results(label, problem, seed), 1):
        if all(value <= 0.0 for name, value in result.items() if name != "default"):
            best = min(best, max(result["default"] - problem.best, 0.0) / (median - problem.best))
        if count in RESULTS:
            found.append(best)
    return found


def report(found: dict[str, NDArray[np.float64]], scales: list[tuple[float, float]], seeds: int) -> str:
    """Return both tables. `found`: by solver, problem x seed x number of results."""
    head = " | ".join(f"{count} results" for count in RESULTS)
    lines = [f"{len(PROBLEMS)} problems, {seeds} seeds. Less is better.", ""]
    lines += [f"| regret as a share of that of {BASELINE} | problems | {head} |", "| --- " * (len(RESULTS) + 2) + "|"]
    apart = [row for row, problem in enumerate(PROBLEMS) if not problem.is_developed]
    for kind, rows in (("all", list(range(len(PROBLEMS)))), ("held out", apart)):
        for label in (one for one in found if one != BASELINE):
            shares = [share(found[label][rows, :, k], found[BASELINE][rows, :, k]) for k in range(len(RESULTS))]
            lines.append(f"| {label} | {kind} | " + " | ".join(shares) + " |")
    lines += ["", f"| mean regret after {RESULTS[-1]} results | feasible | limits | " + " | ".join(found) + " |"]
    lines.append("| --- " * (len(found) + 3) + "|")
    for row, (problem, (_, feasible)) in enumerate(zip(PROBLEMS, scales, strict=True)):
        means = " | ".join(f"{found[label][row, :, -1].mean():.3f}" for label in found)
        lines.append(f"| {problem.name} ({problem.source}) | {100 * feasible:.2g} % | {problem.limits} | {means} |")
    return "\n".join(lines)


ABOUT = f"""# Constraints on results

This page uses published benchmark problems for [constraints on results](../../result-constraints.md), with
{RESULTS[-1]} results each, one trial at a time. The regret is that of the best feasible result so far: 0 for the best
feasible result of the problem, 1 for the median of feasible random ones, 2 while nothing is feasible. A share is the
ratio of the mean regrets of two tuners, after adding 0.001 to each, averaged over the problems (geometric mean), with a
95 % interval from resampling problems and seeds. `optuna TPE` is Optuna 5's `TPESampler(seed=...)` with
`trial.set_constraint`.

The last three problems of the second table were held out: they were not looked at while the tuner was developed.

To repeat it, run `python -m benchmarks.search_limits --write` in a checkout. It uses one process.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_limits")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    scales = [problem.median() for problem in PROBLEMS]
    labels, found = options.solvers.split(","), {}
    random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label in labels:
            pairs = zip(PROBLEMS, scales, strict=True)
            found[label] = np.array(
                [[regrets(label, one, seed, scale[0]) for seed in range(options.seeds)] for one, scale in pairs]
            )
            print(label, found[label].mean(axis=1).round(4).tolist(), file=sys.stderr)
    text = report(found, scales, options.seeds)
    print(text)
    if options.write:
        write_page(PAGE, ABOUT, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
