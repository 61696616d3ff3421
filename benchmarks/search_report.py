"""From runs to ranks and plots."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.search_problems import problems

Run = dict[str, Any]
Cell = tuple[str, int]  # problem and seed

_COLORS = {"nnilite": "tab:blue", "optuna": "tab:orange", "NNI": "tab:red"}
_FLOOR = 1e-8


def write(runs: list[Run], out: Path, absent: dict[str, str]) -> None:
    """`report.md`, a plot of regrets for each family of problems, and one of the ranks."""
    by_solver: dict[str, dict[Cell, Run]] = defaultdict(dict)
    for run in runs:
        if run.get("losses"):
            by_solver[run["solver"]][run["problem"], run["seed"]] = run
    seeds = {solver: len({seed for _, seed in cells}) for solver, cells in by_solver.items()}
    most = max(seeds.values(), default=0)
    many = {s: c for s, c in by_solver.items() if seeds[s] >= 0.8 * most}
    lines = [
        "# Search quality",
        "",
        "Made by `python -m benchmarks.search_quality`. One trial at a time; all minimise. The mean rank is over",
        "problems and seeds, by the best value after all trials (1 is best; equal values share a rank), among the",
        "solvers that take the problem's search space.",
        "",
        *_ranks(many, "Solvers with most seeds"),
    ]
    if len(many) < len(by_solver):
        lines += ["", *_ranks(by_solver, "All solvers, where all were run")]
    for name, reason in absent.items():
        lines += ["", f"Left out: {name}, because {reason}."]
    lines += ["", "## Regret", "", "Median distance to the best value (known, or found by anybody).", ""]
    for family in dict.fromkeys(p.family for p in problems()):
        name = _plot(by_solver, family, out)
        lines += [f"![{family}]({name})", ""] if name else []
    (out / "report.md").write_text("\n".join(lines), encoding="utf-8")


def _ranks(by_solver: dict[str, dict[Cell, Run]], title: str) -> list[str]:
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    family = {p.name: p.family for p in problems()}
    complete = _complete(by_solver)
    for cell in complete:
        values = {s: min(cells[cell]["losses"]) for s, cells in by_solver.items() if cell in cells}
        for solver, value in values.items():
            better = sum(other < value for other in values.values())
            equal = sum(other == value for other in values.values())
            found[solver][family[cell[0]]].append(better + (equal + 1) / 2)
            found[solver]["all"].append(better + (equal + 1) / 2)
    families = [f for f in dict.fromkeys(family.values()) if any(f in ranks for ranks in found.values())]
    lines = [
        f"## {title} ({len(complete)} pairs of problem and seed)",
        "",
        "| solver | mean rank | " + " | ".join(families) + " | tuner, ms a trial |",
    ]
    lines.append("| --- | --- | " + "--- | " * len(families) + "--- |")
    for solver in sorted(found, key=lambda s: statistics.fmean(found[s]["all"])):
        ranks = [found[solver].get(f) for f in families]
        cells = " | ".join(f"{statistics.fmean(r):.2f}" if r else "-" for r in ranks)
        times = [r["tuner_s"] / len(r["losses"]) * 1000 for r in by_solver[solver].values()]
        mean = statistics.fmean(found[solver]["all"])
        lines.append(f"| {solver} | {mean:.2f} | {cells} | {statistics.median(times):.1f} |")
    return lines


def _complete(by_solver: dict[str, dict[Cell, Run]]) -> list[Cell]:
    """The problems and seeds that all solvers ran which can take the problem."""
    can: dict[str, set[str]] = defaultdict(set)
    did: dict[Cell, set[str]] = defaultdict(set)
    for solver, cells in by_solver.items():
        for problem, seed in cells:
            can[problem].add(solver)
            did[problem, seed].add(solver)
    numbers = [p.name for p in problems() if p.family.startswith("BBOB")]  # which all solvers can take
    everybody = set(by_solver)
    return sorted(c for c, who in did.items() if who == (everybody if c[0] in numbers else can[c[0]]))


def _plot(by_solver: dict[str, dict[Cell, Run]], family: str, out: Path) -> str | None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    members = [p for p in problems() if p.family == family]
    members = [p for p in members if any(cell[0] == p.name for c in by_solver.values() for cell in c)]
    if not members:
        return None
    columns = min(3, len(members))
    rows = -(-len(members) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.6 * rows), squeeze=False)
    for panel, problem in zip(axes.flat, members, strict=False):
        for number, solver in enumerate(sorted(by_solver)):
            curve = _median_regret([r for cell, r in by_solver[solver].items() if cell[0] == problem.name], by_solver)
            if curve:
                style = ("-", "--", ":", "-.")[number % 4]
                color = _COLORS[solver.split()[0]] if solver.endswith("TPE") else None
                width = 2.2 if solver.endswith("TPE") else 1.0
                panel.plot(range(1, len(curve) + 1), curve, style, label=solver, color=color, linewidth=width)
        panel.set_title(problem.name)
        panel.set_yscale("log")
        panel.set_xlabel("trials")
    for panel in list(axes.flat)[len(members) :]:
        panel.axis("off")
    axes[0][0].set_ylabel("median regret")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, fontsize="small")
    figure.tight_layout(rect=(0, 0.06 + 0.06 / rows, 1, 1))
    name = f"regret_{family.split()[0].strip(',').lower()}.png"
    figure.savefig(out / name, dpi=90)
    pyplot.close(figure)
    return name


def _median_regret(runs: list[Run], by_solver: dict[str, dict[Cell, Run]]) -> list[float]:
    curves = []
    for run in runs:
        best = run["best"]
        if best is None:
            same = [cells.get((run["problem"], run["seed"])) for cells in by_solver.values()]
            best = min(min(r["losses"]) for r in same if r)
        curve, so_far = [], float("inf")
        for loss in run["losses"]:
            so_far = min(so_far, loss)
            curve.append(max(so_far - best, _FLOOR))
        curves.append(curve)
    length = max(map(len, curves), default=0)
    padded = [curve + [curve[-1]] * (length - len(curve)) for curve in curves]
    return [statistics.median(values) for values in zip(*padded, strict=True)]
