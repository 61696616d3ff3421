"""`python -m benchmarks.search_fronts`: several objectives, on published problems, beside optuna's samplers.

A run is one solver on one problem with one seed. What counts is the share of the hypervolume of the true front that is
missing after so many results: 0 if the front is reached, 1 if nothing is better than the reference point, which is the
worst of 1,000 random points in each objective. Finished runs are kept in `fronts.jsonl` of the output folder, so that a
later call continues, and the report has all of them. optuna's GP needs torch, and is not run where there is none.

    --seeds 3         of each solver and problem: 15 minutes of processor time for three, without optuna's GP
    --gp-seeds 1      of optuna's GP: five minutes of processor time for each
    --solvers LABELS  separated by commas; all of SOLVERS if not given
    --out FOLDER      where `fronts.jsonl` is written
    --write           write the report page of the documentation
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.search_front_problems import BY_NAME, PROBLEMS, Problem, Values, goal, hypervolume
from benchmarks.search_shares import read_runs, share, write_page
from nnilite import Search

BASELINE = "optuna NSGAII"
OURS = "nnilite Auto"
OPTUNA_GP = "optuna GP"
SOLVERS = (BASELINE, "optuna NSGAIII", "optuna TPE", OPTUNA_GP, OURS, "nnilite NSGA2", "random draws")
MOST_OF_GP = 50  # results: a proposal takes half a second
RESULTS = (25, 50, 100)
PAGE = Path(__file__).parents[1] / "docs/reference/tuners/quality/objectives.md"
DEVELOPED = tuple(problem.name for problem in PROBLEMS if not problem.held_out)
HELD_OUT = tuple(problem.name for problem in PROBLEMS if problem.held_out)
Job = tuple[str, str, int]


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
    most = MOST_OF_GP if label == OPTUNA_GP else RESULTS[-1]
    found = np.array(list(results(label, BY_NAME[name], seed, most)))
    return [max(1.0 - hypervolume(found[:count], reference) / whole, 0.0) for count in RESULTS if count <= most]


def report(runs: dict[Job, list[float]]) -> str:
    """Return the tables of all solvers that have run. Compared are the seeds that two have in common."""
    parts = [("Problems on which Auto was developed", DEVELOPED), ("Held-out problems", HELD_OUT)]
    return "\n\n".join(f"### {title}\n\n" + "\n".join(report_part(runs, names)) for title, names in parts)


def report_part(runs: dict[Job, list[float]], names: Sequence[str]) -> list[str]:
    ran = [label for label in SOLVERS if label != OPTUNA_GP and find_seeds(runs, names, label)]
    head = " | ".join(f"{count} results" for count in RESULTS)
    lines = [f"{len(names)} problems, one trial at a time. Less is better.", ""]
    lines += [f"| missing share, compared with {BASELINE} | seeds | {head} |", "| --- " * (len(RESULTS) + 2) + "|"]
    for label in (one for one in ran if one != BASELINE):
        seeds = find_seeds(runs, names, label, BASELINE)
        cells = compare(runs, names, label, BASELINE, range(len(RESULTS)))
        lines.append(f"| {label} | {len(seeds)} | " + " | ".join(cells) + " |")
    for place, count in enumerate(RESULTS[1:], 1):
        means = {label: average(runs, names, label, find_seeds(runs, names, label), place) for label in ran}
        lines += ["", *tabulate(f"mean missing share after {count} results", names, means)]
    return lines + report_gp(runs, names)


def report_gp(runs: dict[Job, list[float]], names: Sequence[str]) -> list[str]:
    """Return a section on optuna's GP, with its seeds alone; nothing if it has not run."""
    seeds = find_seeds(runs, names, OURS, OPTUNA_GP)
    if not seeds:
        return []
    places = [place for place, count in enumerate(RESULTS) if count <= MOST_OF_GP]
    shares = compare(runs, names, OURS, OPTUNA_GP, places)
    means = {
        f"{label}, {RESULTS[place]} results": average(runs, names, label, seeds, place)
        for place in places
        for label in (OPTUNA_GP, OURS)
    }
    last = [average(runs, names, label, seeds, places[-1]) for label in (OPTUNA_GP, OURS)]
    found = ", ".join(f"{share} after {RESULTS[place]} results" for share, place in zip(shares, places, strict=True))
    sentence = f"Auto's missing share, compared with that of Optuna's GP: {found} (seeds: {len(seeds)})."
    return [
        "",
        sentence,
        f"GP is ahead on {int(np.sum(last[0] < last[1]))} of {len(names)} problems at the end.",
        "",
        *tabulate("missing share", names, means),
    ]


def compare(
    runs: dict[Job, list[float]], names: Sequence[str], label: str, rival: str, places: Sequence[int]
) -> list[str]:
    seeds = find_seeds(runs, names, label, rival)
    return [
        share(gather(runs, names, label, seeds, place), gather(runs, names, rival, seeds, place)) for place in places
    ]


def find_seeds(runs: dict[Job, list[float]], names: Sequence[str], *labels: str) -> list[int]:
    """Return the seeds with which all of these solvers have run on all of these problems."""
    known = sorted({job[2] for job in runs})
    return [seed for seed in known if all((label, name, seed) in runs for label in labels for name in names)]


def gather(runs: dict[Job, list[float]], names: Sequence[str], label: str, seeds: list[int], place: int) -> Values:
    return np.array([[runs[label, name, seed][place] for seed in seeds] for name in names])


def average(runs: dict[Job, list[float]], names: Sequence[str], label: str, seeds: list[int], place: int) -> Values:
    """Return the mean over seeds of each problem."""
    return np.asarray(gather(runs, names, label, seeds, place).mean(axis=1))


def tabulate(title: str, names: Sequence[str], means: dict[str, Values]) -> list[str]:
    """Return the lines of a table with a row for each problem."""
    lines = [f"| {title} | " + " | ".join(means) + " |", "| --- " * (len(means) + 1) + "|"]
    for row, name in enumerate(names):
        lines.append(f"| {name} | " + " | ".join(f"{mean[row]:.4f}" for mean in means.values()) + " |")
    return lines


ABOUT = """# Several objectives

This page compares [Auto](../auto.md) and [NSGA2](../nsga2.md) with Optuna 5's samplers, which have their default
arguments, on published problems with several objectives: ZDT1, 2, 3, 4 and 6 (Zitzler, Deb, Thiele, 2000); DTLZ1, 2, 5
and 7 with three objectives (Deb, Thiele, Laumanns, Zitzler, 2002), each with six parameters; Branin against Currin with
two parameters; and Fonseca and Fleming's problem (1995) with three. The measure is the share of the true front's
hypervolume that is still missing: 0 if the front is reached. The reference point is the worst of 1,000 random points in
each objective. The first table of each part compares mean missing shares, after adding 0.001 to each, by the geometric
mean of their ratios over the problems, with a 95 % interval from resampling problems and seeds.

To repeat it, run `python -m benchmarks.search_fronts --write` in a checkout. It uses one process, and takes a quarter
of an hour of processor time for three seeds. `optuna TPE` is Optuna's multi-objective TPE. `optuna GP` needs
`pip install torch`; it takes five more minutes for each seed (`--gp-seeds`), and therefore has 50 results only.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_fronts")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gp-seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/search_fronts"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "fronts.jsonl"
    runs: dict[Job, list[float]] = read_runs(file)
    with warnings.catch_warnings(), file.open("a", encoding="utf-8") as kept:
        warnings.simplefilter("ignore")
        for job in list_jobs(options):
            if job not in runs:
                runs[job] = missing(job)
                kept.write(json.dumps([job, runs[job]]) + "\n")
                kept.flush()
    text = report(runs)
    print(text)
    if options.write:
        write_page(PAGE, ABOUT, text)
    return 0


def list_jobs(options: argparse.Namespace) -> list[Job]:
    seeds = dict.fromkeys(options.solvers.split(","), options.seeds)
    if OPTUNA_GP in seeds:
        seeds[OPTUNA_GP] = options.gp_seeds if importlib.util.find_spec("torch") else 0
    jobs = [(label, name, seed) for label, count in seeds.items() for seed in range(count) for name in BY_NAME]
    return sorted(jobs, key=lambda job: job[2])  # a seed of all solvers before the next


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
