"""`python -m benchmarks.search_crowds`: Auto with many trials at once, of which some die, beside one at a time.

Needs the extra `bench`. Each run is a number of trials at once on one published table with one seed, until so many have
results. Finished runs are kept in `crowds.jsonl` of the output folder, so that a later call continues.

    --development     the tables on which the tuner was changed; if not given, the held-out ones
    --tuner LABEL     another one than Auto, such as `optuna liar`: what many at once cost it; not with --write
    --seeds 10        of each row and table: five minutes of processor time for ten, of the six development tables
    --results 50      end after so many; 100 if not given, which takes three times as long as 50
    --out FOLDER      where `crowds.jsonl` is written
    --write           write the report page of the documentation; its notes on the run stay, and may need a new look
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import search_tables
from benchmarks.search_published import alone, crowded
from benchmarks.search_shares import RESULTS, read_runs, share, write_page

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TUNER = "nnilite Auto"
CROWDS = (1, 4, 16)  # trials at once, of which one in five dies
LAGS = (3, 15)  # results that 4 and 16 at once do not have yet when a trial is proposed
PAGE = Path(__file__).parents[1] / "docs/reference/tuners/quality/at-once.md"
Job = tuple[str, int, str, str, int]  # tuner, trials at once (0: one, and none dies), collection, table, seed
ABOUT = """\
# Many trials at once

This page compares [Auto](../auto.md) running several trials at once (one in five dies at random) with Auto
running one at a time without failures, on published tables of real trainings with noisy results. The regret is that of
the parameters with the smallest loss so far, measured by the mean of all their trainings: 0 for the best parameters of
the table, 1 for the median ones. A share is the ratio of the mean regrets of two runs, after adding 0.001 to each,
averaged over the tables (geometric mean), with a 95 % interval from resampling tables and seeds.

To repeat it: `pip install 'nnilite[bench]'`, then in a checkout `python -m benchmarks.search_crowds {options}--write`.
[The default tuner](default.md) has fewer seeds of the held-out tables, and Optuna's sampler.

With 16 trials at once, 15 have no result yet when the next one is proposed. The last rows show what that alone costs:
the regret of one trial at a time after that many fewer results.
"""


def regrets(job: Job, most: int) -> list[float]:
    """Return the regret after each of the first `most` results."""
    tuner, at_once, collection, name, seed = job
    table = search_tables.table(collection, name)
    loss = table.objective(seed)
    results = crowded(tuner, table.space, seed, loss, at_once) if at_once else alone(tuner, table.space, seed, loss)
    smallest, found = math.inf, [math.nan]
    for parameters, value in islice(results, most):
        if value < smallest:
            smallest, regret = value, float(table.worth[table.row(parameters)])
        found.append(regret)
    return found[1:]


def report(runs: dict[Job, list[float]], names: list[tuple[str, str]], kind: str, counts: list[int]) -> str:
    """Return the tables of regrets after `counts` results, of one tuner and the seeds that all of its rows have."""
    import numpy as np

    (tuner,) = {job[0] for job in runs}
    seeds = [
        seed
        for seed in sorted({job[-1] for job in runs})
        if all((tuner, crowd, *name, seed) in runs for crowd in (0, *CROWDS) for name in names)
    ]

    def found(crowd: int) -> NDArray[np.float64]:  # table x seed x result
        return np.array([[runs[(tuner, crowd, *name, seed)][: counts[-1]] for seed in seeds] for name in names])

    one = found(0)
    lines = [f"{len(names)} tables ({kind}), {len(seeds)} seeds. Less is better, 1 is level.", ""]
    lines += ["| | " + " | ".join(f"{count} results" for count in counts) + " |", "| --- " * (len(counts) + 1) + "|"]
    for crowd in CROWDS:
        shares = [share(found(crowd)[:, :, count - 1], one[:, :, count - 1]) for count in counts]
        lines.append(f"| {crowd} at once, one in five dies | " + " | ".join(shares) + " |")
    for lag in LAGS:
        shares = [share(one[:, :, count - 1 - lag], one[:, :, count - 1]) for count in counts]
        lines.append(f"| one at a time, {lag} results less | " + " | ".join(shares) + " |")
    lines += ["", f"| mean regret after {counts[-1]} results | one | {' | '.join(f'{c} at once' for c in CROWDS)} |"]
    lines.append("| --- " * (len(CROWDS) + 2) + "|")
    means = [found(crowd)[:, :, -1].mean(axis=1) for crowd in (0, *CROWDS)]
    for row, name in enumerate(names):
        lines.append(f"| {' '.join(name)} | " + " | ".join(f"{mean[row]:.4f}" for mean in means) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_crowds")
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--tuner", default=TUNER)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--results", type=int, default=RESULTS[-1], choices=RESULTS)
    parser.add_argument("--out", type=Path, default=Path("build/search_crowds"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    if args.write and args.tuner != TUNER:
        parser.error(f"the report page is about {TUNER}: leave out --write, or --tuner")
    names = search_tables.prepare(held_out=not args.development)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "crowds.jsonl"
    runs: dict[Job, list[float]] = read_runs(file)
    jobs = [(args.tuner, crowd, *name, seed) for seed in range(args.seeds) for name in names for crowd in (0, *CROWDS)]
    with file.open("a", encoding="utf-8") as kept:
        for job in jobs:
            if len(runs.get(job, [])) < args.results:
                runs[job] = regrets(job, args.results)
                kept.write(json.dumps([job, runs[job]]) + "\n")
                kept.flush()
    runs = {job: found for job, found in runs.items() if job[0] == args.tuner and len(found) >= args.results}
    counts = [count for count in RESULTS if count <= args.results]
    text = report(runs, names, "development" if args.development else "held out", counts)
    print(text)
    if args.write:
        options = "--development " if args.development else ""
        options += f"--results {args.results} " if args.results < RESULTS[-1] else ""
        write_page(PAGE, ABOUT.format(options=options), text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
