"""The report of `stopping`: what each method needs, as a share of what another one needs on the same tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.search_shares import share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOOR = 0.005  # added to times and regrets: half of a whole trial, below which differences are chance
RESAMPLES = 2000
FIGURES = ("time to 5 %", "time to 1 %", "mean regret")
WHOLE_OF = {"nnilite ASHA": "nnilite Random", "nnilite Hyperband": "nnilite Random", "nnilite BOHB": "nnilite TPE"}
ABOUT = """\
# Early stopping

This page shows what early stopping saves, in simulated time, on learning curves of real trainings. They come from
scikit-learn's `MLP`, `SGD` and gradient boosting, on data that ships with it or is generated: 300 combinations of a few
parameters each, trained for 81 epochs, with the processor time of each epoch. To repeat it, run
`pip install 'nnilite[bench]'`, then `python -m benchmarks.stopping` in a checkout.
`python -m benchmarks.learning_record` trains the curves again.

The given number of workers train at once, until together they have spent the time of 100 whole trials. Starting a trial
takes as long as an average epoch. The regret is that of the smallest loss so far: 0 for the smallest loss in the table,
1 for the median of the best losses of all combinations. *Time to 5 %* is the time until the regret is 0.05, or the
whole time if that is never reached. A share is the ratio of means over the seeds that both methods have, averaged over
the tables (geometric mean), with a 95 % interval from resampling tables and seeds, the same ones for both: less than 1
is better. Tuners and assessors run as in a search, without a manager. ASHA continues from checkpoints unless its row
says otherwise; Hyperband and BOHB start again with each budget unless their rows say otherwise. *The same tuner, whole
trials* is Random for ASHA and Hyperband, and TPE for BOHB. The last column names the table on which stopping did worst,
with the mean regret as a share of that with whole trials.

PBT is missing here: it changes parameters during a training, and recorded curves cannot show what becomes of that.
"""
Runs = Mapping[Any, Any]
Outcomes = dict[int, "NDArray[np.float64]"]  # by seed: table x figure
Pair = tuple["NDArray[np.float64]", "NDArray[np.float64]"]  # table x seed x figure


def report(runs: Runs, tables: Sequence[str], kind: str) -> str:
    """Return the shares with each number of workers."""
    lines = [f"{len(tables)} tables ({kind}): {', '.join(tables)}."]
    for workers in sorted({job.workers for job in runs}):
        part = {job: runs[job] for job in runs if job.workers == workers and job.table in tables}
        lines += ["", f"### {workers} at once", "", *_list_shares(part, tables)]
    return "\n".join(lines)


ABOUT_SAFETY = """\
# How safe the assessor Auto is

This page shows the mean regret over the whole time with the [assessor](../assessors.md) `Auto`, as a share of the
regret of the same tuner with whole trials, separately for each table of [learning curves](early-stopping.md): 0.95
means 5 % less. Each cell has the ratio of means over seeds, its 95 % interval from resampling seeds, and the number of
seeds. *Safe* means at most 1.05 on every table. The assessor was developed on the first five tables only.

To repeat it, run `pip install 'nnilite[bench]'`, then `python -m benchmarks.stopping --safety` in a checkout.
`--methods`, `--workers` and `--seeds` choose a part; a later call adds to the page.
"""
GUARDED = ", Auto"  # the methods with the assessor


def report_safety(runs: Runs, tables: Sequence[str]) -> str:
    """Return the shares with the assessor Auto: a row for each tuner and table, a column for each number of workers."""
    crowds = sorted({job.workers for job in runs})
    lines = ["| tuner | table | " + " | ".join(f"{crowd} at once" for crowd in crowds) + " |"]
    lines.append("| --- " * (len(crowds) + 2) + "|")
    for method in dict.fromkeys(job.method for job in runs if job.method.endswith(GUARDED)):
        tuner = method.removesuffix(GUARDED)
        for table in tables:
            cells = [_judge(runs, method, tuner, table, crowd) for crowd in crowds]
            lines.append(f"| {tuner} | {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _judge(runs: Runs, method: str, whole: str, table: str, workers: int) -> str:
    """The share of the mean regret, of one table."""
    parts = {job: run for job, run in runs.items() if job.table == table and job.workers == workers}
    found = {name: {job.seed: run.area for job, run in parts.items() if job.method == name} for name in (method, whole)}
    seeds = sorted(found[method].keys() & found[whole].keys())
    if not seeds:
        return ""
    import numpy as np

    pairs = np.array([[found[name][seed] for seed in seeds] for name in (method, whole)]) + FLOOR
    drawn = pairs[:, np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))].mean(axis=2)
    low, high = np.quantile(drawn[0] / drawn[1], (0.025, 0.975))
    share = pairs[0].mean() / pairs[1].mean()
    return f"{share:.2f} [{low:.2f}, {high:.2f}], {len(seeds)}"


def _list_shares(runs: Runs, tables: Sequence[str]) -> list[str]:
    found = {method: _collect(runs, method, tables) for method in dict.fromkeys(job.method for job in runs)}
    found = {method: seeds for method, seeds in found.items() if seeds}
    heads = [
        f"{figure} of {other}" for other in ("the same tuner, whole trials", "optuna TPE") for figure in FIGURES[:1]
    ]
    heads += [f"{figure} of optuna TPE" for figure in FIGURES[1:]]
    lines = [
        "| method | seeds | trials, stopped | " + " | ".join(heads) + " | worst table |",
        "| --- " * (len(heads) + 4) + "|",
    ]
    for method in found:
        trials, stopped = (sum(run[:, k].mean() for run in found[method].values()) for k in (3, 4))
        cells = [f"{len(found[method])}", ", ".join(f"{part / len(found[method]):.0f}" for part in (trials, stopped))]
        whole, peer = _pair(found, method, find_whole(method)), _pair(found, method, "optuna TPE")
        cells.append(_compare(whole, 0))
        cells += [_compare(peer, figure) for figure in range(len(FIGURES))]
        cells.append("" if whole is None else _find_worst(*whole, tables))
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def find_whole(method: str) -> str:
    """Return the method that runs whole trials, with which this one is compared."""
    tuner = method.partition(",")[0]
    return WHOLE_OF.get(tuner, tuner)


def _collect(runs: Runs, method: str, tables: Sequence[str]) -> Outcomes:
    """Return the outcomes of the seeds that all tables have."""
    import numpy as np

    known = {(job.table, job.seed): outcome for job, outcome in runs.items() if job.method == method}
    seeds = sorted({seed for _, seed in known})
    seeds = [seed for seed in seeds if all((table, seed) in known for table in tables)]
    return {seed: np.array([known[table, seed] for table in tables], float) for seed in seeds}


def _pair(found: Mapping[str, Outcomes], method: str, other: str) -> Pair | None:
    """Return the outcomes of both, by table, seed and figure, of the seeds that both have; None without any.

    With the same seed, both often train the same parameters, so that one is lucky where the other one is.
    """
    import numpy as np

    seeds = sorted(found[method].keys() & found.get(other, {}).keys())
    if not seeds or method == other:
        return None
    one, two = (np.stack([found[name][seed] for seed in seeds], axis=1) for name in (method, other))
    return one, two


def _compare(pair: Pair | None, figure: int) -> str:
    return "" if pair is None else share(pair[0][:, :, figure], pair[1][:, :, figure], FLOOR)


def _find_worst(values: NDArray[np.float64], whole: NDArray[np.float64], tables: Sequence[str]) -> str:
    ratios = (values[:, :, 2].mean(axis=1) + FLOOR) / (whole[:, :, 2].mean(axis=1) + FLOOR)
    row = int(ratios.argmax())
    return f"{ratios[row]:.2f}, {tables[row]}"
