"""`python -m benchmarks.search_published`: tuners on published tables of real training runs.

Needs the extra `bench`. Each run is one solver on one table with one seed, one trial at a time. What counts is the
worth of the parameters that the solver would hand over: those of its smallest loss, by the mean of all their trainings.

    --held-out        the tables that nobody looks at while a tuner is changed; the others if not given
    --solvers LABELS  separated by commas; the first one is what the others are compared with. `nnilite TPE@4` has four
                      trials at once, of which one in five dies, and as many results as the others
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from benchmarks import search_solvers, search_tables

if TYPE_CHECKING:
    import numpy as np

SOLVERS = "nnilite Random,nnilite Evolution,nnilite TPE,optuna TPE"
RESAMPLES = 2000
DYING = 0.2  # of the trials that run beside others
Objective = Callable[[dict[str, Any]], float]
Job = tuple[str, str, str, int, int]


def worth(job: Job) -> float:
    """Return how good the found parameters are: 0 is the best of the table, 1 its median."""
    label, collection, name, seed, trials = job
    table = search_tables.table(collection, name)
    loss = table.objective(seed)
    one, _, at_once = label.partition("@")
    results = crowded(one, table.space, seed, loss, int(at_once)) if at_once else alone(one, table.space, seed, loss)
    smallest, found = math.inf, math.nan
    for parameters, value in islice(results, trials):
        if value < smallest:
            smallest, found = value, float(table.worth[table.row(parameters)])
    return found


def alone(label: str, space: dict[str, Any], seed: int, loss: Objective) -> Iterator[tuple[dict[str, Any], float]]:
    """Results of one trial after the other."""
    solver = search_solvers.make(label, space, seed, None)
    try:
        while (parameters := solver.ask()) is not None:
            value = loss(parameters)
            solver.tell(parameters, value)
            yield parameters, value
    finally:
        solver.close()


def crowded(
    label: str, space: dict[str, Any], seed: int, loss: Objective, at_once: int
) -> Iterator[tuple[dict[str, Any], float]]:
    """Results of a solver where several trials run at once, end in any order, and may die."""
    solver = search_solvers.make_crowded(label, space, seed)
    luck, running = random.Random(seed), []
    try:
        while (parameters := solver.ask()) is not None:
            running.append((solver.asked, parameters))
            if len(running) < at_once:
                continue
            asked, parameters = running.pop(luck.randrange(at_once))
            if luck.random() < DYING:
                solver.give_up(asked)
                continue
            value = loss(parameters)
            solver.tell(parameters, value, asked)
            yield parameters, value
    finally:
        solver.close()


def interval(one: np.ndarray, other: np.ndarray) -> str:
    """The difference of mean worths, of tables in rows and seeds in columns, with its bootstrapped 95 % interval.

    The seeds of each table are drawn again, the tables stay: it speaks of these tables only.
    """
    import numpy as np

    gaps = one - other
    luck = np.random.default_rng(0)
    picks = luck.integers(gaps.shape[1], size=(RESAMPLES, *gaps.shape))
    means = np.take_along_axis(np.broadcast_to(gaps, picks.shape), picks, axis=2).mean(axis=(1, 2))
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{gaps.mean():+.4f} ({low:+.4f} to {high:+.4f})"


def report(labels: list[str], names: list[tuple[str, str]], args: argparse.Namespace) -> str:
    import numpy as np

    jobs = [(label, *name, seed, args.trials) for label in labels for name in names for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.processes) as pool:
        found = np.array(list(pool.map(worth, jobs))).reshape(len(labels), len(names), args.seeds)
    heads = ["solver", *(name for _, name in names), "mean", f"less {labels[0]}, 95 % interval"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for label, worths in zip(labels, found, strict=True):
        cells = [label, *(f"{mean:.3f}" for mean in worths.mean(axis=1)), f"{worths.mean():.3f}"]
        cells.append("" if label == labels[0] else interval(worths, found[0]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_published")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--solvers", default=SOLVERS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(arguments)
    names = search_tables.prepare(held_out=args.held_out)
    print(report(args.solvers.split(","), names, args))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
