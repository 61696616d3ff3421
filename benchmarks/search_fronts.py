"""`python -m benchmarks.search_fronts`: several objectives, on published problems, beside optuna's samplers.

A run is one solver on one problem with one seed. What counts is the share of the hypervolume of the true front that is
missing after so many results: 0 if the front is reached, 1 if nothing is better than the reference point, which is the
worst of 1,000 random points in each objective. Finished runs are kept in `fronts.jsonl` of the output folder, so that a
later call continues. optuna's GP needs torch, and is left out where there is none.

    --seeds 3         of each solver and problem: ten minutes of processor time for three, without optuna's GP
    --solvers LABELS  separated by commas; all of SOLVERS if not given
    --out FOLDER      where `fronts.jsonl` is written
    --write           write the report page of the documentation
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search_shares import read_runs, share
from nnilite import Search

BASELINE = "optuna NSGAII"
SOLVERS = (BASELINE, "optuna NSGAIII", "optuna TPE", "optuna GP", "nnilite Auto", "nnilite NSGA2", "random draws")
SLOW = {"optuna GP": 50}  # results: a proposal takes half a second
RESULTS = (25, 50, 100)
PAGE = Path(__file__).parents[1] / "docs/reference/tuners/quality/objectives.md"
Values = NDArray[np.float64]
Job = tuple[str, str, int]


@dataclass(frozen=True)
class Problem:
    """Objectives to be minimised, of `width` numbers between 0 and 1; `front(n)` gives about n points of the front."""

    name: str
    width: int
    function: Callable[[Values], Values]
    front: Callable[[int], Values]

    @property
    def space(self) -> dict[str, Any]:
        return {f"x{k}": {"_type": "uniform", "_value": [0, 1]} for k in range(self.width)}

    def result(self, parameters: dict[str, float]) -> list[float]:
        return self.function(np.array([parameters[f"x{k}"] for k in range(self.width)])).tolist()


def zdt(number: int, x: Values) -> Values:
    """Zitzler, Deb, Thiele, 2000, "Comparison of Multiobjective Evolutionary Algorithms: Empirical Results"."""
    first = x[0]
    far = 1.0 + 9.0 * float(np.mean(x[1:]))
    if number == 6:
        first = 1.0 - math.exp(-4.0 * first) * math.sin(6.0 * math.pi * first) ** 6
        far = 1.0 + 9.0 * float(np.mean(x[1:])) ** 0.25
    ratio = first / far
    bend = {1: 1.0 - math.sqrt(ratio), 2: 1.0 - ratio**2, 6: 1.0 - ratio**2}.get(number)
    if bend is None:
        bend = 1.0 - math.sqrt(ratio) - ratio * math.sin(10.0 * math.pi * first)
    return np.array([first, far * bend])


def zdt_front(number: int, count: int) -> Values:
    first = np.linspace(0.2807753191 if number == 6 else 0.0, 1.0, count)
    second = {1: 1.0 - np.sqrt(first), 2: 1.0 - first**2, 6: 1.0 - first**2}.get(number)
    if second is None:
        second = 1.0 - np.sqrt(first) - first * np.sin(10.0 * math.pi * first)
    return np.column_stack([first, second])


def dtlz2(x: Values) -> Values:
    """Deb, Thiele, Laumanns, Zitzler, 2002, "Scalable multi-objective optimization test problems"; three objectives."""
    far = 1.0 + float(np.sum(np.square(x[2:] - 0.5)))
    one, other = x[0] * math.pi / 2, x[1] * math.pi / 2
    return far * np.array([math.cos(one) * math.cos(other), math.cos(one) * math.sin(other), math.sin(one)])


def dtlz2_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, math.isqrt(count))
    return np.array([dtlz2(np.array([a, b, 0.5])) for a in side for b in side])


def dtlz7(x: Values) -> Values:
    far = 2.0 + 9.0 * float(np.mean(x[2:]))
    height = 3.0 - sum(float(one) / far * (1.0 + math.sin(3.0 * math.pi * one)) for one in x[:2])
    return np.array([x[0], x[1], far * height])


def dtlz7_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, math.isqrt(count))
    return np.array([dtlz7(np.array([a, b, 0.0])) for a in side for b in side])


def branin_currin(x: Values) -> Values:
    """Belakaria, Deshwal, Doppa, 2019, "Max-value Entropy Search for Multi-Objective Bayesian Optimization"."""
    a, b = 15.0 * x[0] - 5.0, 15.0 * x[1]
    bowl = b - 5.1 / (4.0 * math.pi**2) * a * a + 5.0 / math.pi * a - 6.0
    branin = bowl**2 + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(a) + 10.0
    fall = 1.0 - math.exp(-1.0 / (2.0 * x[1])) if x[1] > 0.0 else 1.0
    high = 2300.0 * x[0] ** 3 + 1900.0 * x[0] ** 2 + 2092.0 * x[0] + 60.0
    return np.array([branin, fall * high / (100.0 * x[0] ** 3 + 500.0 * x[0] ** 2 + 4.0 * x[0] + 20.0)])


def branin_currin_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, 300)
    return np.array([branin_currin(np.array([a, b])) for a in side for b in side])


PROBLEMS = (
    *(
        Problem(f"ZDT{k}", 6, lambda x, k=k: zdt(k, x), lambda count, k=k: zdt_front(k, count))  # type: ignore[misc]
        for k in (1, 2, 3, 6)
    ),
    Problem("DTLZ2", 6, dtlz2, dtlz2_front),
    Problem("DTLZ7", 6, dtlz7, dtlz7_front),
    Problem("Branin and Currin", 2, branin_currin, branin_currin_front),
)
BY_NAME = {problem.name: problem for problem in PROBLEMS}


def hypervolume(points: Values, reference: Values) -> float:
    """Return the volume between points and the reference, by slices of the last objective."""
    points = points[np.all(points < reference, axis=1)]
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    points = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        lowest = np.concatenate([[reference[0]], np.minimum.accumulate(points[:, 0])])
        falls = np.maximum(lowest[:-1] - points[:, 0], 0.0)
        return float(np.sum(falls * (reference[1] - points[:, 1])))
    ends = np.append(points[1:, -1], reference[-1])
    slices = [(k, end - point[-1]) for k, (point, end) in enumerate(zip(points, ends, strict=True))]
    return sum(thick * hypervolume(points[: k + 1, :-1], reference[:-1]) for k, thick in slices if thick > 0.0)


@cache
def goal(name: str) -> tuple[Values, float]:
    """Return the reference point of a problem, and the hypervolume of its true front."""
    problem = BY_NAME[name]
    luck = np.random.default_rng(0)
    reference = np.array([problem.function(luck.random(problem.width)) for _ in range(1000)]).max(axis=0)
    return reference, hypervolume(problem.front(2500), reference)


def results(label: str, problem: Problem, seed: int, count: int) -> Iterator[list[float]]:
    family, name = label.split(" ", 1)
    objectives = len(goal(problem.name)[0])
    if family == "optuna":
        yield from _results_of_optuna(name, problem, seed, count, objectives)
        return
    if family == "random":
        luck = np.random.default_rng(seed)
        yield from (problem.function(luck.random(problem.width)).tolist() for _ in range(count))
        return
    names = [f"f{k}" for k in range(objectives)]
    search = Search(problem.space, name, dict.fromkeys(names, "minimize"), seed)
    for _ in range(count):
        trial = search.ask()
        values = problem.result(trial.parameters)
        search.tell(trial, dict(zip(names, values, strict=True)))
        yield values


def _results_of_optuna(name: str, problem: Problem, seed: int, count: int, objectives: int) -> Iterator[list[float]]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kinds = {"NSGAII": "NSGAIISampler", "NSGAIII": "NSGAIIISampler", "TPE": "TPESampler", "GP": "GPSampler"}
    sampler = getattr(optuna.samplers, kinds[name])(seed=seed)
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * objectives)
    for _ in range(count):
        trial = study.ask()
        values = problem.result({f"x{k}": trial.suggest_float(f"x{k}", 0.0, 1.0) for k in range(problem.width)})
        study.tell(trial, values)
        yield values


def missing(job: Job) -> list[float]:
    """Return the missing share of the hypervolume after each of RESULTS results, as far as the solver goes."""
    label, name, seed = job
    reference, whole = goal(name)
    most = SLOW.get(label, RESULTS[-1])
    found = np.array(list(results(label, BY_NAME[name], seed, most)))
    return [max(1.0 - hypervolume(found[:count], reference) / whole, 0.0) for count in RESULTS if count <= most]


def report(runs: dict[Job, list[float]], labels: list[str]) -> str:
    """Return both tables. Compared are the seeds that two solvers have in common."""
    names = list(BY_NAME)

    def seeds(*wanted: str) -> list[int]:
        known = sorted({job[2] for job in runs})
        return [seed for seed in known if all((label, name, seed) in runs for label in wanted for name in names)]

    def found(label: str, chosen: list[int], place: int) -> Values:
        return np.array([[runs[label, name, seed][place] for seed in chosen] for name in names])

    head = " | ".join(f"{count} results" for count in RESULTS)
    lines = [f"{len(names)} problems, one trial at a time. Less is better.", ""]
    lines += [f"| missing share, compared with {BASELINE} | seeds | {head} |", "| --- " * (len(RESULTS) + 2) + "|"]
    for label in (one for one in labels if one != BASELINE):
        both = seeds(label, BASELINE)
        places = [k for k, count in enumerate(RESULTS) if count <= SLOW.get(label, RESULTS[-1])]
        cells = [share(found(label, both, k), found(BASELINE, both, k)) for k in places]
        lines.append(f"| {label} | {len(both)} | " + " | ".join(cells + [""] * (len(RESULTS) - len(cells))) + " |")
    for place, count in enumerate(RESULTS[1:], 1):
        shown = [label for label in labels if count <= SLOW.get(label, RESULTS[-1])]
        lines += ["", f"| mean missing share after {count} results | " + " | ".join(shown) + " |"]
        lines.append("| --- " * (len(shown) + 1) + "|")
        means = {label: found(label, seeds(label), place).mean(axis=1) for label in shown}
        for row, name in enumerate(names):
            lines.append(f"| {name} | " + " | ".join(f"{means[label][row]:.4f}" for label in shown) + " |")
    return "\n".join(lines)


INTRODUCTION = """# Several objectives

[Auto](../auto.md) and [NSGA2](../nsga2.md) with several objectives, and Optuna 5's samplers with their default
arguments, on published problems: ZDT1, 2, 3 and 6 (Zitzler, Deb, Thiele, 2000) and DTLZ2 and 7 with three objectives
(Deb, Thiele, Laumanns, Zitzler, 2002), each with six parameters, and Branin against Currin with two. Measured is the
share of the hypervolume of the true front that is missing, as seen from the worst of 1,000 random points in each
objective: 0 if the front is reached. The first table has the geometric mean over the problems of the ratio of mean
missing shares (to each, 0.001 is added), with a 95 % interval from drawing problems and seeds again.

To repeat it: `python -m benchmarks.search_fronts --write` in a checkout, by one process: ten minutes of processor time
for three seeds. `optuna TPE` is its multi-objective TPE. `optuna GP` needs `pip install torch`, takes more than as long
again, and is in the tables only if it was run. Auto was developed on one seed of these problems; none was kept apart.

"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_fronts")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/search_fronts"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    labels = [one for one in options.solvers.split(",") if one != "optuna GP" or importlib.util.find_spec("torch")]
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "fronts.jsonl"
    runs: dict[Job, list[float]] = read_runs(file)
    with warnings.catch_warnings(), file.open("a", encoding="utf-8") as kept:
        warnings.simplefilter("ignore")
        for job in ((label, name, seed) for seed in range(options.seeds) for label in labels for name in BY_NAME):
            if job not in runs:
                runs[job] = missing(job)
                kept.write(json.dumps([job, runs[job]]) + "\n")
                kept.flush()
    text = report(runs, labels)
    print(text)
    if options.write:
        PAGE.write_text(INTRODUCTION + text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
