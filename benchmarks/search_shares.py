"""`python -m benchmarks.search_shares`: the default tuner's regret as a share of optuna's, on published tables.

Needs the extra `bench`. A run is one solver on one table with one seed. The regret is that of the parameters that the
solver would hand over, those of its smallest loss, by the mean of all their trainings: 0 for the best of the table, 1
for its median. Finished runs are kept in `runs.jsonl` of the output folder, so that a later call continues.

    --development     the tables on which the tuner was changed; if not given, those that were kept apart
    --solvers LABELS  separated by commas; all of SOLVERS if not given
    --seeds 10        of each solver and table; 100 results each: an hour of processor time for ten seeds
    --out FOLDER      where `runs.jsonl` and `shares.md` are written
    --write           write the report page of the documentation; its notes on the run stay, and may need a new look
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import search_tables
from benchmarks.search_published import alone, crowded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BASELINE = "optuna default"
AUTO_SAMPLER = "optuna AutoSampler"  # needs torch, and is left out where there is none
CROWDS = (4, 16)  # trials at once
SOLVERS = (
    BASELINE,
    "nnilite Auto",
    AUTO_SAMPLER,
    *(f"{one}@{crowd}" for crowd in CROWDS for one in ("nnilite Auto", "optuna default", "optuna liar")),
    "nnilite TPE",
    "nnilite Random",
)
RESULTS = (25, 50, 100)
FLOOR = 1e-3  # added to regrets: where both solvers find the best one, they are level
RESAMPLES = 4000
PAGES = Path(__file__).parents[1] / "docs/reference/tuners/quality"
PAGE = PAGES / "default.md"
ABOUT_KEPT_APART = "the report page is about the tables that were kept apart: leave out --write, or --development"
ABOUT = """\
# The default tuner against Optuna's

[Auto](../auto.md) and the default sampler of Optuna 5 (`TPESampler()`) on published tables of real trainings, with
noisy results. The regret is that of the parameters with the smallest loss, by the mean of all their trainings: 0 for
the best parameters of the table, 1 for its median. A share is the geometric mean over the tables of the ratio of mean
regrets (to each, 0.001 is added), with a 95 % interval from drawing tables and seeds again.

To repeat it: `pip install 'nnilite[bench]'`, then in a checkout `python -m benchmarks.search_shares --write`: an hour
of processor time for ten seeds. `@4` and `@16` have so many trials at once; one in five dies. Solvers may have
different numbers of seeds, so compare means by the first table.

"""
Job = tuple[str, str, str, int]


def regrets(job: Job) -> list[float]:
    """After each of RESULTS results."""
    label, collection, name, seed = job
    table = search_tables.table(collection, name)
    one, _, at_once = label.partition("@")
    loss = table.objective(seed)
    results = crowded(one, table.space, seed, loss, int(at_once)) if at_once else alone(one, table.space, seed, loss)
    smallest, regret, found = math.inf, math.nan, []
    for count, (parameters, value) in enumerate(islice(results, RESULTS[-1]), 1):
        if value < smallest:
            smallest, regret = value, float(table.worth[table.row(parameters)])
        if count in RESULTS:
            found.append(regret)
    return found


def share(one: NDArray[np.float64], other: NDArray[np.float64], floor: float = FLOOR) -> str:
    """The geometric mean over tables (rows) of the ratio of means over seeds, with its bootstrapped 95 % interval.

    Tables are drawn again, and seeds (columns) of each, of both the same ones. `floor` is added to each mean.
    """
    import numpy as np

    luck = np.random.default_rng(0)
    shares = []
    for _ in range(RESAMPLES):
        tables = luck.integers(len(one), size=len(one))
        seeds = luck.integers(one.shape[1], size=one.shape)
        drawn = [np.take_along_axis(which, seeds, axis=1)[tables].mean(axis=1) + floor for which in (one, other)]
        shares.append(math.exp(float(np.log(drawn[0] / drawn[1]).mean())))
    low, high = np.quantile(shares, (0.025, 0.975))
    whole = math.exp(float(np.log((one.mean(axis=1) + floor) / (other.mean(axis=1) + floor)).mean()))
    return f"{whole:.2f} [{low:.2f}, {high:.2f}]"


def report(runs: dict[Job, list[float]], names: list[tuple[str, str]], kind: str) -> str:
    """The table of shares, and that of regrets. Compared are the seeds that two solvers have in common."""
    import numpy as np

    def seeds(*labels: str) -> list[int]:
        known = sorted({job[3] for job in runs})
        return [seed for seed in known if all((label, *name, seed) in runs for label in labels for name in names)]

    def found(label: str, chosen: list[int]) -> NDArray[np.float64]:
        return np.array([[runs[(label, *name, seed)] for seed in chosen] for name in names])

    lines = [
        f"{len(names)} tables ({kind}), {RESULTS[-1]} results each. Less is better.",
        "",
        "| regret | as a share of that of | seeds | " + " | ".join(f"{count} results" for count in RESULTS) + " |",
        "| --- " * (len(RESULTS) + 3) + "|",
    ]
    labels = [label for label in SOLVERS if seeds(label, BASELINE)]
    pairs = [(label, BASELINE) for label in labels if label != BASELINE]
    for label in labels:
        one, _, crowd = label.partition("@")
        if label == "nnilite Auto" and AUTO_SAMPLER in labels:
            pairs.append((label, AUTO_SAMPLER))
        if one == "nnilite Auto" and crowd:
            rivals = ("nnilite Auto", f"optuna default@{crowd}", f"optuna liar@{crowd}")
            pairs += [(label, rival) for rival in rivals if rival in labels]
    for label, other in pairs:
        chosen = seeds(label, other)
        one, two = found(label, chosen), found(other, chosen)
        shares = [share(one[:, :, k], two[:, :, k]) for k in range(len(RESULTS))]
        lines.append(f"| {label} | {other} | {len(chosen)} | " + " | ".join(shares) + " |")
    lines += ["", f"| mean regret after {RESULTS[-1]} results | " + " | ".join(labels) + " |"]
    lines.append("| --- " * (len(labels) + 1) + "|")
    means = {label: found(label, seeds(label))[:, :, -1].mean(axis=1) for label in labels}
    for row, name in enumerate(names):
        lines.append(f"| {' '.join(name)} | " + " | ".join(f"{means[label][row]:.4f}" for label in labels) + " |")
    return "\n".join(lines)


def find_notes(page: Path) -> str:
    """Return what a person has written at the end of a report page about the run, so that a new run keeps it."""
    _, mark, notes = page.read_text("utf-8").partition("\nWhat this run shows")
    return mark + notes


def read_runs(file: Path) -> dict[Any, list[float]]:
    """Return what an earlier call of this command has found, by job: each line is a job and its figures."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {tuple(job): found for job, found in map(json.loads, lines)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_shares")
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/search_shares"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    if args.write and args.development:
        parser.error(ABOUT_KEPT_APART)
    names = search_tables.prepare(held_out=not args.development)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "runs.jsonl"
    runs: dict[Job, list[float]] = read_runs(file)
    labels = [one for one in args.solvers.split(",") if one != AUTO_SAMPLER or importlib.util.find_spec("torch")]
    jobs = [(label, *name, seed) for seed in range(args.seeds) for name in names for label in labels]
    with ProcessPoolExecutor(args.processes) as pool, file.open("a", encoding="utf-8") as kept:
        waiting = {pool.submit(regrets, job): job for job in jobs if job not in runs}
        for future in as_completed(waiting):
            job = waiting[future]
            runs[job] = future.result()
            kept.write(json.dumps([job, runs[job]]) + "\n")
            kept.flush()
    text = report(runs, names, "development" if args.development else "kept apart")
    (args.out / "shares.md").write_text(text + "\n", "utf-8")
    if args.write:
        PAGE.write_text(ABOUT + text + "\n" + find_notes(PAGE), "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
