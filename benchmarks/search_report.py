"""From runs to ranks, paired comparisons and plots."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.search_problems import Problem, problems

Run = dict[str, Any]
Cell = tuple[str, int]  # problem and seed
Runs = dict[str, dict[Cell, Run]]  # by solver

_LINES = {"nnilite": "-", "optuna": "--", "NNI": ":"}
_COLORS = ("TPE", "GP", "CMA", "Evolution", "Anneal", "QMC", "Metis", "Random", "SMAC", "DNGO")
_FLOOR = 1e-8  # a smaller regret is none
_ENOUGH = 0.8  # of the most seeds, to be in the same table
_PAIRS = (
    ("nnilite TPE", "optuna TPE"),
    ("nnilite CMAES", "optuna CMA-ES"),
    ("nnilite GP", "optuna GP"),
    ("nnilite TPE", "NNI TPE"),
    ("nnilite Evolution", "NNI Evolution"),
)
_ABOUT = """\
# Search quality

This page shows how good a point each tuner finds, and in how many trials. It compares nnilite's tuners, plain optuna
with the same samplers, and NNI 3.0's own tuners ({versions}).

To repeat it, run `pip install 'nnilite[bench]'`, install torch if optuna's GP is to take part and a Python with NNI
3.0, and run `python -m benchmarks.search_quality --model-seeds 20 --nni-python PYTHON` in a checkout. It takes hours.
If you interrupt it, run it again to continue.

- There are {count} problems: nine functions of the BBOB suite with five numbers (100 trials each), two synthetic ones
  with mixed types and nested choices (100 trials), and three models of scikit-learn on data that ships with it (50
  trials).
- Trials run one at a time. All problems are minimized. Each seed has another instance of a BBOB function.
- Solvers are ranked by the best value after all trials, for each problem and seed: 1 is best, and equal values share a
  rank. A table has only problems that all its solvers accept, and seeds that all of them ran.
"""


def write(runs: list[Run], out: Path, absent: dict[str, str]) -> None:
    """`report.md`, and a plot of regrets for each family of problems."""
    by_solver: Runs = defaultdict(dict)
    for run in runs:
        if run.get("losses"):
            by_solver[run["solver"]][run["problem"], run["seed"]] = run
    best = _best_values(by_solver)
    lines = [_ABOUT.format(versions=", ".join(_versions()), count=len(problems())), "## Ranks"]
    seen: list[set[str]] = []
    for title, taken in _GROUPS:
        members = [p for p in problems() if taken(p)]
        before: set[str] = set()
        for solvers in _levels(by_solver, members):
            if solvers not in seen:
                more = f", with {', '.join(sorted(solvers - before))}" if before else ""
                lines += _table({solver: by_solver[solver] for solver in solvers}, title + more, members)
            seen.append(solvers)
            before = solvers
    lines += [f"Left out: {name}, because {reason}.\n" for name, reason in absent.items()]
    lines += ["## Pairs", "", _ABOUT_PAIRS, *_pairs(by_solver, best), ""]
    lines += ["## Regret", "", _ABOUT_REGRET, ""]
    for family in dict.fromkeys(p.family for p in problems()):
        name = _plot(by_solver, best, family, out)
        lines += [f"![{family}]({name})", ""] if name else []
    (out / "report.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _versions() -> Iterable[str]:
    for package in ("optuna", "cmaes", "scikit-learn"):
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


# ------------------------------------------------------------ ranks

_GROUPS: tuple[tuple[str, Callable[[Problem], bool]], ...] = (
    ("Every search space", lambda problem: True),
    ("Search spaces without nested choices", lambda problem: not problem.nested),
    ("Five numbers", lambda problem: problem.family.startswith("BBOB")),
)


def _levels(by_solver: Runs, members: list[Problem]) -> list[set[str]]:
    """The solvers that take all members: those with about the most seeds, then also those with fewer, and so on."""
    seeds = {solver: len(_seeds([cells], members)) for solver, cells in by_solver.items()}
    levels: list[set[str]] = []
    least = max(seeds.values(), default=0)
    while least:
        levels.append({solver for solver, count in seeds.items() if count and count >= _ENOUGH * least})
        least = max((count for solver, count in seeds.items() if solver not in levels[-1]), default=0)
    return levels


def _seeds(runs: Iterable[dict[Cell, Run]], members: list[Problem]) -> set[int]:
    """Return the seeds with which all solvers ran all members."""
    return set.intersection(*({seed for name, seed in cells if name == p.name} for cells in runs for p in members))


def _table(by_solver: Runs, title: str, members: list[Problem]) -> list[str]:
    family = {p.name: p.family for p in members}
    seeds = _seeds(by_solver.values(), members)
    cells = [(name, seed) for name in family for seed in sorted(seeds)]
    found: dict[str, dict[str, list[float]]] = {solver: defaultdict(list) for solver in by_solver}
    for cell in cells:
        values = {solver: min(runs[cell]["losses"]) for solver, runs in by_solver.items()}
        for solver, value in values.items():
            better = sum(other < value for other in values.values())
            equal = sum(other == value for other in values.values())
            for name in ("all", family[cell[0]]):
                found[solver][name].append(better + (equal + 1) / 2)
    columns = ["all", *dict.fromkeys(family.values())] if len(set(family.values())) > 1 else ["all"]
    return [
        f"\n### {title}\n\n{len(family)} problems, {len(seeds)} seeds, {len(by_solver)} solvers.\n",
        "| mean rank of | " + " | ".join(columns) + " |",
        "| --- " * (len(columns) + 1) + "|",
        *(
            f"| {solver} | " + " | ".join(f"{statistics.fmean(found[solver][name]):.2f}" for name in columns) + " |"
            for solver in sorted(found, key=lambda s: statistics.fmean(found[s]["all"]))
        ),
        "",
    ]


# ------------------------------------------------------------ pairs

_ABOUT_PAIRS = """\
Each row compares two solvers on the same problems and seeds. The ratio is the geometric mean of the first one's regret
over the other's, with its 95 % confidence interval: below 1 the first is better. p is from Wilcoxon's signed-rank test
on the logarithms: the probability of such a difference by chance. TPE and CMA-ES are the same algorithms on both sides;
nnilite's GP is built on scikit-learn, optuna's on torch.

| the first | the other | pairs | better, equal, worse | ratio of regrets | p | |
| --- | --- | --- | --- | --- | --- | --- |"""


def _pairs(by_solver: Runs, best: dict[Cell, float]) -> list[str]:
    from scipy import stats

    lines = []
    for one, other in _PAIRS:
        cells = sorted(by_solver.get(one, {}).keys() & by_solver.get(other, {}).keys())
        if len(cells) < 10:
            continue
        gaps = [_log_regret(by_solver[one][c], best[c]) - _log_regret(by_solver[other][c], best[c]) for c in cells]
        counts = ", ".join(
            str(count) for count in (sum(g < 0 for g in gaps), gaps.count(0.0), sum(g > 0 for g in gaps))
        )
        mean, error = statistics.fmean(gaps), 1.96 * statistics.stdev(gaps) / math.sqrt(len(gaps))
        p = float(stats.wilcoxon(gaps).pvalue) if any(gaps) else 1.0
        low, high = 10 ** (mean - error), 10 ** (mean + error)
        word = "no difference seen" if low <= 1 <= high or p > 0.05 else "better" if high < 1 else "worse"
        ratio = f"{10**mean:.2f} ({low:.2f} to {high:.2f})"
        chance = "< 0.0001" if p < 1e-4 else f"{p:.2g}"
        lines.append(f"| {one} | {other} | {len(cells)} | {counts} | {ratio} | {chance} | {word} |")
    return lines


def _best_values(by_solver: Runs) -> dict[Cell, float]:
    """The smallest value of each cell's function: the known one, or that found by anybody in the problem."""
    found: dict[str, float] = {}
    for runs in by_solver.values():
        for (problem, _), run in runs.items():
            found[problem] = min(found.get(problem, math.inf), *run["losses"])
    return {
        cell: found[cell[0]] if run["best"] is None else run["best"]
        for runs in by_solver.values()
        for cell, run in runs.items()
    }


def _log_regret(run: Run, best: float) -> float:
    return math.log10(max(min(run["losses"]) - best, _FLOOR))


# ------------------------------------------------------------ plots

_ABOUT_REGRET = """\
The median distance to the smallest value (known, or found by any solver with any seed), over the seeds of a solver."""


def _plot(by_solver: Runs, best: dict[Cell, float], family: str, out: Path) -> str | None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    members = [p for p in problems() if p.family == family]
    members = [p for p in members if any(cell[0] == p.name for runs in by_solver.values() for cell in runs)]
    if not members:
        return None
    columns = min(3, len(members))
    rows = -(-len(members) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.6 * rows), squeeze=False)
    handles = {}
    for panel, problem in zip(axes.flat, members, strict=False):
        for solver in sorted(by_solver, key=lambda solver: solver.split()[1]):
            curve = _median_regret(by_solver[solver], best, problem.name)
            if curve:
                (handles[solver],) = panel.plot(range(1, len(curve) + 1), curve, **_style(solver))
        panel.set_title(problem.name)
        panel.set_yscale("log")
        panel.set_xlabel("trials")
    for panel in list(axes.flat)[len(members) :]:
        panel.axis("off")
    axes[0][0].set_ylabel("median regret")
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=5, fontsize="small")
    figure.tight_layout(rect=(0, 0.06 + 0.08 / rows, 1, 1))
    name = f"regret_{family.split()[0].strip(',').lower()}.png"
    figure.savefig(out / name, dpi=80)
    pyplot.close(figure)
    return name


def _style(solver: str) -> dict[str, Any]:
    """Return a solver's line: its colour shows the algorithm, its dashes the library; the default tuner's is thick."""
    house, algorithm = solver.split()
    color = next((f"C{k}" for k, name in enumerate(_COLORS) if algorithm.startswith(name)), "k")
    return {"color": color, "linestyle": _LINES[house], "linewidth": 2.2 if algorithm == "TPE" else 1.1}


def _median_regret(runs: dict[Cell, Run], best: dict[Cell, float], problem: str) -> list[float]:
    curves = []
    for cell, run in runs.items():
        if cell[0] == problem:
            so_far, curve = math.inf, []
            for loss in run["losses"]:
                so_far = min(so_far, loss)
                curve.append(max(so_far - best[cell], _FLOOR))
            curves.append(curve)
    length = max(map(len, curves), default=0)
    padded = [curve + [curve[-1]] * (length - len(curve)) for curve in curves]
    return [statistics.median(values) for values in zip(*padded, strict=True)]
