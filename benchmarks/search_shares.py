"""`python -m benchmarks.search_shares`: the default tuner's regret as a share of optuna's, on tables of real trainings.

Needs the extra `bench`. A run is one solver on one table with one seed. The regret is that of the parameters that the
solver would hand over, those of its smallest loss, by the mean of all their trainings: 0 for the best of the table, 1
for its median. Finished runs are kept in `runs.jsonl` of the output folder, so that a later call continues.

    --development     the tables on which the tuner was changed; if not given, the held-out ones
    --solvers LABELS  separated by commas; all of SOLVERS if not given
    --seeds 10        of each solver and table; 100 results each: three hours of processor time for ten seeds
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
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import search_tables
from benchmarks.search_published import alone, crowded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BASELINE = "optuna default"
AUTO = "nnilite Auto"
RANDOM = "nnilite Random"
AUTO_SAMPLER = "optuna AutoSampler"  # needs torch, and is left out where there is none
ALL = "every combination"  # trained once each: what noise leaves of the regret, however well a solver searches
CROWDS = (4, 16)  # trials at once
SOLVERS = (
    BASELINE,
    AUTO,
    AUTO_SAMPLER,
    *(f"{one}@{crowd}" for crowd in CROWDS for one in (AUTO, BASELINE, "optuna liar")),
    "nnilite TPE",
    RANDOM,
    ALL,
)
RESULTS = (25, 50, 100)
FLOOR = 1e-3  # added to regrets: where both solvers find the best one, they are level
RESAMPLES = 4000
PAGES = Path(__file__).parents[1] / "docs/reference/tuners/quality"
PAGE = PAGES / "default.md"
ABOUT_HELD_OUT = "the report page is about the held-out tables: leave out --write, or --development"
ABOUT = """\
# The default tuner against Optuna's

This page compares [Auto](../auto.md) with the default sampler of Optuna 5 (`TPESampler()`) on tables of real trainings
with noisy results. All tables were held out while the tuner was developed: nine are published ones, and fourteen are
from models of scikit-learn, cross-validated on data that ships with scikit-learn or river. The latter have three to six
parameters, in three tables with nested choices. Their list was fixed before any tuner ran on them.

A tuner chooses the parameters with the smallest loss that it has seen. Their regret follows from the mean of all their
trainings: 0 for the best parameters of the table, 1 for the median ones. A share is the ratio of the mean regrets of
two tuners, after adding 0.001 to each, averaged over the tables (geometric mean), with a 95 % interval from resampling
tables and seeds.

To repeat it, run `pip install 'nnilite[bench]'`, then `python -m benchmarks.search_shares --write` in a checkout. Ten
seeds take three hours of processor time. `python -m benchmarks.model_record` trains the models again. With `@4` and
`@16`, 4 or 16 trials run at once, and one in five dies. Solvers may have different numbers of seeds, so compare
their shares, not their mean regrets.

`every combination` does not search: it trains each combination of the table once, and takes the one with the smallest
loss. Its regret comes from noise alone.
"""
ABOUT_SEEN = """\
The search alone, without the choice by noisy losses. Here the regret is that of the smallest loss itself: 0 for the
smallest loss in the table as trained with this seed, 1 for the median.
"""
Job = tuple[str, str, str, int]
Name = tuple[str, str]


@cache
def train_all(collection: str, name: str, seed: int) -> NDArray[np.float64]:
    """Return the loss of each combination with this seed: the function that a solver sees."""
    import numpy as np

    table = search_tables.table(collection, name)
    return np.array([table.train(row, seed) for row in range(len(table.worth))])


def regrets(job: Job) -> list[float]:
    """Return the regrets after RESULTS results and, for solvers, then those by the losses that they saw."""
    import numpy as np

    label, collection, name, seed = job
    table, losses = search_tables.table(collection, name), train_all(collection, name, seed)
    if label == ALL:
        return [float(table.worth[losses.argmin()])] * len(RESULTS)
    one, _, at_once = label.partition("@")
    loss = table.objective(seed)
    results = crowded(one, table.space, seed, loss, int(at_once)) if at_once else alone(one, table.space, seed, loss)
    lowest, width = float(losses.min()), float(np.median(losses) - losses.min())
    smallest, regret, found, seen = math.inf, math.nan, [], []
    for count, (parameters, value) in enumerate(islice(results, RESULTS[-1]), 1):
        if value < smallest:
            smallest, regret = value, float(table.worth[table.row(parameters)])
        if count in RESULTS:
            found.append(regret)
            seen.append((smallest - lowest) / width)
    return found + seen


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
        drawn = [np.take_along_axis(which, seeds, axis=1)[tables].mean(axis=1) for which in (one, other)]
        shares.append(divide_means(drawn[0], drawn[1], floor))
    low, high = np.quantile(shares, (0.025, 0.975))
    whole = divide_means(one.mean(axis=1), other.mean(axis=1), floor)
    return f"{whole:.2f} [{low:.2f}, {high:.2f}]"


def divide_means(one: NDArray[np.float64], other: NDArray[np.float64], floor: float) -> float:
    """Return the geometric mean of the ratios."""
    import numpy as np

    return math.exp(float(np.log((one + floor) / (other + floor)).mean()))


class Found:
    """The regrets of runs, by solver and table."""

    def __init__(self, runs: dict[Job, list[float]]) -> None:
        self._runs = runs
        self._known = sorted({job[3] for job in runs})

    def seeds(self, names: list[Name], *labels: str) -> list[int]:
        """Return the seeds that all of these solvers have of all tables."""
        jobs = [(label, *name) for label in labels for name in names]
        return [seed for seed in self._known if all((*job, seed) in self._runs for job in jobs)]

    def regrets(self, names: list[Name], label: str, seeds: list[int]) -> NDArray[np.float64]:
        """Return a solver's regrets by table, seed and number of results."""
        import numpy as np

        return np.array([[self._runs[(label, *name, seed)] for seed in seeds] for name in names])


def report(runs: dict[Job, list[float]], groups: dict[str, list[Name]]) -> str:
    """The shares on each group of tables, of each family and the regrets. Compared are the seeds in common."""
    count = len(RESULTS)
    true = Found({job: one[:count] for job, one in runs.items()})
    seen = Found({job: one[count:] for job, one in runs.items() if len(one) > count})
    names = next(iter(groups.values()))
    lines = [
        *compare_groups(true, groups, "regret"),
        *compare_families(true, names, "regret"),
        *list_regrets(true, names),
    ]
    if seen.seeds(names, AUTO, BASELINE):
        lines += [
            ABOUT_SEEN,
            *compare_groups(seen, groups, "regret seen"),
            *compare_families(seen, names, "regret seen"),
        ]
    return "\n".join(lines).rstrip("\n")


def compare_groups(found: Found, groups: dict[str, list[Name]], what: str) -> list[str]:
    lines = []
    for title, names in groups.items():
        lines += [f"{title}, {RESULTS[-1]} results each. Less is better.", "", *compare_all(found, names, what), ""]
    return lines


def compare_all(found: Found, names: list[Name], what: str) -> list[str]:
    """The table of shares."""
    lines = [
        f"| {what} | as a share of that of | seeds | " + " | ".join(f"{count} results" for count in RESULTS) + " |",
        "| --- " * (len(RESULTS) + 3) + "|",
    ]
    for label, other in list_pairs([label for label in SOLVERS if found.seeds(names, label, BASELINE)]):
        seeds = found.seeds(names, label, other)
        if seeds:
            one, two = (found.regrets(names, which, seeds) for which in (label, other))
            shares = [share(one[:, :, k], two[:, :, k]) for k in range(len(RESULTS))]
            lines.append(f"| {label} | {other} | {len(seeds)} | " + " | ".join(shares) + " |")
    return lines


def list_pairs(labels: list[str]) -> list[tuple[str, str]]:
    """Return which solver is compared with which."""
    pairs = [(label, BASELINE) for label in labels if label != BASELINE]
    for label in labels:
        one, _, crowd = label.partition("@")
        if label == AUTO:
            pairs += [(label, rival) for rival in (AUTO_SAMPLER, RANDOM) if rival in labels]
        if one == AUTO and crowd:
            rivals = (AUTO, f"optuna default@{crowd}", f"optuna liar@{crowd}")
            pairs += [(label, rival) for rival in rivals if rival in labels]
    return pairs


def compare_families(found: Found, names: list[Name], what: str) -> list[str]:
    """Auto's shares on the tables of each collection or model."""
    rivals = [label for label in (BASELINE, RANDOM) if found.seeds(names, AUTO, label)]
    heads = [f"of {label}, {count} results" for label in rivals for count in RESULTS]
    lines = [f"| {AUTO}'s share of {what} | tables | " + " | ".join(heads) + " |", "| --- " * (len(heads) + 2) + "|"]
    for family in dict.fromkeys(family for family, _ in names):
        members = [name for name in names if name[0] == family]
        cells = []
        for label in rivals:
            seeds = found.seeds(members, AUTO, label)
            one, two = (found.regrets(members, which, seeds).mean(axis=1) for which in (AUTO, label))
            cells += [f"{divide_means(one[:, k], two[:, k], FLOOR):.2f}" for k in range(len(RESULTS))]
        lines.append(f"| {family} | {len(members)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def list_regrets(found: Found, names: list[Name]) -> list[str]:
    """The mean regret of each solver on each table."""
    labels = [label for label in SOLVERS if found.seeds(names, label, BASELINE)]
    lines = [f"| mean regret after {RESULTS[-1]} results | " + " | ".join(labels) + " |"]
    lines.append("| --- " * (len(labels) + 1) + "|")
    columns = [found.regrets(names, one, found.seeds(names, one))[:, :, -1].mean(axis=1) for one in labels]
    for row, name in enumerate(names):
        lines.append(f"| {' '.join(name)} | " + " | ".join(f"{column[row]:.4f}" for column in columns) + " |")
    return [*lines, ""]


def group_tables(*, development: bool) -> dict[str, list[Name]]:
    """Return the tables under their titles; the first group has all of them."""
    published = search_tables.prepare(held_out=not development)
    if development:
        return {f"{len(published)} tables (development)": published}
    models = search_tables.list_models()
    return {
        f"All {len(published) + len(models)} tables (held out)": published + models,
        f"{len(published)} published ones": published,
        f"{len(models)} of scikit-learn's models": models,
    }


def write_page(page: Path, about: str, figures: str) -> None:
    """Write a report page. What a person wrote about the run stays above the figures, and may need a new look."""
    _, mark, rest = page.read_text("utf-8").partition("\n## What this run shows\n")
    notes = mark + rest.partition("\n## Figures\n")[0]
    page.write_text(f"{about}{notes}\n## Figures\n\n{figures}\n", "utf-8")


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
        parser.error(ABOUT_HELD_OUT)
    groups = group_tables(development=args.development)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "runs.jsonl"
    runs: dict[Job, list[float]] = read_runs(file)
    labels = [one for one in args.solvers.split(",") if one != AUTO_SAMPLER or importlib.util.find_spec("torch")]
    jobs = [
        (label, *name, seed) for seed in range(args.seeds) for name in next(iter(groups.values())) for label in labels
    ]
    with ProcessPoolExecutor(args.processes) as pool, file.open("a", encoding="utf-8") as kept:
        waiting = {pool.submit(regrets, job): job for job in jobs if job not in runs}
        for future in as_completed(waiting):
            job = waiting[future]
            runs[job] = future.result()
            kept.write(json.dumps([job, runs[job]]) + "\n")
            kept.flush()
    text = report(runs, groups)
    (args.out / "shares.md").write_text(text + "\n", "utf-8")
    if args.write:
        write_page(PAGE, ABOUT, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
