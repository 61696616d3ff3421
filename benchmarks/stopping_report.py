"""The report of `stopping`: what each method needs, as a share of what another one needs on the same tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOOR = 0.005  # added to times and regrets: half of a whole trial, below which differences are chance
RESAMPLES = 2000
FIGURES = ("time to 5 %", "time to 1 %", "mean regret")
WHOLE_OF = {"nnilite ASHA": "nnilite Random", "nnilite Hyperband": "nnilite Random", "nnilite BOHB": "nnilite TPE"}
ABOUT = """\
# Early stopping

What early stopping saves, in simulated time, on learning curves of real trainings: all combinations of a few parameters
of scikit-learn's `MLP`, `SGD` and gradient boosting, on data that comes with it or is generated, 300 of each for 81
epochs, with the processor time of an epoch. To repeat it: `pip install 'nnilite[bench]'`, then in a checkout
`python -m benchmarks.stopping`. `python -m benchmarks.learning_record` trains the curves again.

So many workers train at once, until together they have spent the time of 100 whole trials. The start of a trial takes
as long as an average epoch. The regret is that of the smallest loss seen so far: 0 for the smallest of the table, 1 for
the median of what its combinations reach; time to 5 % is the time until the regret is 0.05, or all of it if that is
never so. A share is the geometric mean over the tables of the ratio of means over seeds, with a 95 % interval from
drawing tables and seeds again: less than 1 is better. Tuners and assessors run as in a search, without a manager. ASHA
continues from checkpoints unless its row says otherwise; Hyperband and BOHB start again with each budget. The
same tuner with whole trials is Random for ASHA and Hyperband, and TPE for BOHB. The last column has the table on which
stopping did worst, with the mean regret as a share of that with whole trials.

PBT is not here: a recorded curve cannot tell what a training becomes whose parameters change on its way.
"""
Runs = Mapping[Any, Any]


def report(runs: Runs, tables: Sequence[str], kind: str) -> str:
    """The whole page."""
    lines = [ABOUT, f"{len(tables)} tables ({kind}): {', '.join(tables)}."]
    for workers in sorted({job.workers for job in runs}):
        part = {job: runs[job] for job in runs if job.workers == workers and job.table in tables}
        lines += ["", f"## {workers} at once", "", *_list_shares(part, tables)]
    return "\n".join(lines) + "\n"


ABOUT_SAFETY = """\
# Is the assessor Auto safe

The regret over the whole time with the [assessor](../assessors.md) `Auto`, as a share of that of the same tuner with
whole trials, on each table of [learning curves](early-stopping.md) by itself: 0.95 is 5 % less. It is the ratio of
means over seeds, with a 95 % interval from drawing seeds again, and the number of seeds. Safe means: 1.05 at most on
every table. The assessor was changed on the first five tables alone.

To repeat it: `pip install 'nnilite[bench]'`, then in a checkout `python -m benchmarks.stopping --safety`; `--methods`,
`--workers` and `--seeds` choose a part, and a later call adds to it.
"""
GUARDED = ", Auto"  # the methods with the assessor


def report_safety(runs: Runs, tables: Sequence[str]) -> str:
    """The page on the assessor Auto: a row for each tuner and table, a column for each number of workers."""
    crowds = sorted({job.workers for job in runs})
    lines = [ABOUT_SAFETY, "| tuner | table | " + " | ".join(f"{crowd} at once" for crowd in crowds) + " |"]
    lines.append("| --- " * (len(crowds) + 2) + "|")
    for method in dict.fromkeys(job.method for job in runs if job.method.endswith(GUARDED)):
        tuner = method.removesuffix(GUARDED)
        for table in tables:
            cells = [_judge(runs, method, tuner, table, crowd) for crowd in crowds]
            lines.append(f"| {tuner} | {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


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
    found = {method: values for method, values in found.items() if values is not None}
    heads = [
        f"{figure} of {other}" for other in ("the same tuner, whole trials", "optuna TPE") for figure in FIGURES[:1]
    ]
    heads += [f"{figure} of optuna TPE" for figure in FIGURES[1:]]
    lines = [
        "| method | seeds | trials, stopped | " + " | ".join(heads) + " | worst table |",
        "| --- " * (len(heads) + 4) + "|",
    ]
    for method, values in found.items():
        whole = found.get(find_whole(method))
        peer = found.get("optuna TPE")
        cells = [f"{values.shape[1]}", f"{values[:, :, 3].mean():.0f}, {values[:, :, 4].mean():.0f}"]
        cells.append("" if whole is None or whole is values else share(values[:, :, 0], whole[:, :, 0]))
        for figure in range(len(FIGURES)):
            cells.append("" if peer is None or peer is values else share(values[:, :, figure], peer[:, :, figure]))
        cells.append("" if whole is None or whole is values else _find_worst(values, whole, tables))
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def find_whole(method: str) -> str:
    """Return the method that runs whole trials, with which this one is compared."""
    tuner = method.partition(",")[0]
    return WHOLE_OF.get(tuner, tuner)


def _collect(runs: Runs, method: str, tables: Sequence[str]) -> NDArray[np.float64] | None:
    """The outcomes by table and seed, of the seeds that all tables have; None without any."""
    import numpy as np

    known = {(job.table, job.seed): outcome for job, outcome in runs.items() if job.method == method}
    seeds = sorted({seed for _, seed in known})
    seeds = [seed for seed in seeds if all((table, seed) in known for table in tables)]
    return np.array([[known[table, seed] for seed in seeds] for table in tables], float) if seeds else None


def share(one: NDArray[np.float64], other: NDArray[np.float64]) -> str:
    """The geometric mean over tables (rows) of ratios of means over seeds, with its bootstrapped 95 % interval."""
    import numpy as np

    luck, shares = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        tables = luck.integers(len(one), size=len(one))
        drawn = [
            np.take_along_axis(which, luck.integers(which.shape[1], size=which.shape), axis=1)[tables].mean(axis=1)
            for which in (one, other)
        ]
        shares.append(_average_ratio(*drawn))
    low, high = np.quantile(shares, (0.025, 0.975))
    return f"{_average_ratio(one.mean(axis=1), other.mean(axis=1)):.2f} [{low:.2f}, {high:.2f}]"


def _average_ratio(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    import numpy as np

    return math.exp(float(np.log((one + FLOOR) / (other + FLOOR)).mean()))


def _find_worst(values: NDArray[np.float64], whole: NDArray[np.float64], tables: Sequence[str]) -> str:
    ratios = (values[:, :, 2].mean(axis=1) + FLOOR) / (whole[:, :, 2].mean(axis=1) + FLOOR)
    row = int(ratios.argmax())
    return f"{ratios[row]:.2f}, {tables[row]}"
