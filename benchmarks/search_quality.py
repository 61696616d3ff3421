"""`python -m benchmarks.search_quality`: which tuner finds how good a point, in how many trials.

Each run is one solver on one problem with one seed, one trial at a time. Finished runs are kept in `runs.jsonl` of the
output folder, so that an interrupted benchmark continues where it stopped. Then `report.md` and its plots are made.

    --quick            few problems, 3 seeds: a look in a few minutes
    --seeds 20         of the quick solvers; --model-seeds 5 of those that take a second a trial
    --nni-python PATH  a Python that has NNI 3.0 (made in the output folder if not given; left out if that fails)
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import search_report, search_solvers
from benchmarks.search_problems import problems
from nnilite.errors import SpaceError


@dataclass(frozen=True)
class Task:
    problem: str
    solver: str
    seed: int
    nni_python: str | None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.problem, self.solver, self.seed


def run(task: Task) -> dict[str, Any]:
    """The losses of one run, in order, and its seconds; `refused` if the solver cannot take the space."""
    problem = next(p for p in problems() if p.name == task.problem)
    objective, best = problem.objective(task.seed)
    record = {"problem": task.problem, "solver": task.solver, "seed": task.seed, "best": best}
    python = Path(task.nni_python) if task.nni_python else None
    try:
        solver = search_solvers.make(task.solver, problem.space, task.seed, python)
    except SpaceError as error:
        return {**record, "refused": str(error)}
    losses, spent = [], 0.0
    try:
        for _ in range(problem.trials):
            start = time.perf_counter()
            parameters = solver.ask()
            spent += time.perf_counter() - start
            if parameters is None:
                break
            losses.append(objective(parameters))
            start = time.perf_counter()
            solver.tell(parameters, losses[-1])
            spent += time.perf_counter() - start
    except RuntimeError as error:
        return {**record, "refused": str(error)}
    finally:
        solver.close()
    return {**record, "losses": losses, "tuner_s": spent}


def solvers(nni_python: str | None) -> tuple[list[str], list[str]]:
    """Labels of the quick solvers and of those with a dear model."""
    quick = [f"nnilite {name}" for name in search_solvers.OURS]
    quick += [f"optuna {name}" for name in search_solvers.PLAIN]
    quick += [f"NNI {name}" for name in search_solvers.NNI] if nni_python else []
    dear = [f"nnilite {name}" for name in search_solvers.OURS_WITH_MODEL]
    dear += [f"optuna {name}" for name in search_solvers.PLAIN_WITH_MODEL] if importlib.util.find_spec("torch") else []
    return quick, dear


def nni_python(given: str | None, out: Path) -> tuple[str | None, str]:
    """A Python with NNI 3.0, and why there is none."""
    if given:
        return given, ""
    python = out / "nni" / "bin" / "python"
    if not python.exists():
        commands = (
            [sys.executable, "-m", "venv", str(out / "nni")],
            [str(python), "-m", "pip", "install", "-q", "nni==3.0", "numpy<2", "setuptools<70"],
        )
        for command in commands:
            if subprocess.run(command, check=False, capture_output=True, timeout=900).returncode:
                return None, f"`{' '.join(command[1:])}` failed"
    works = subprocess.run([str(python), "-c", "import nni"], check=False, capture_output=True, timeout=120)
    return (str(python), "") if works.returncode == 0 else (None, "it does not import")


def tasks(args: argparse.Namespace, python: str | None) -> Iterator[Task]:
    quick, dear = solvers(python)
    for seeds, labels in ((args.seeds, quick), (args.model_seeds, dear)):
        for seed in range(seeds):
            for problem in problems(args.quick):
                if args.problems and not any(part in problem.name for part in args.problems.split(",")):
                    continue
                for label in labels:
                    if not args.solvers or label in args.solvers.split(","):
                        yield Task(problem.name, label, seed, python)


def main(arguments: list[str]) -> None:
    args = options(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # the processes are what runs in parallel
    args.out.mkdir(parents=True, exist_ok=True)
    runs = args.out / "runs.jsonl"
    absent = {} if args.report_only else add_runs(args, runs)
    search_report.write(read(runs), args.out, absent)
    print(args.out / "report.md")


def add_runs(args: argparse.Namespace, runs: Path) -> dict[str, str]:
    """Do what is not in the file yet; returns which solvers are left out, and why."""
    python, reason = nni_python(args.nni_python, args.out)
    absent = {} if python else {"NNI": reason}
    if not importlib.util.find_spec("torch"):
        absent["optuna GP"] = "it needs torch, which is not installed"
    for name, why in absent.items():
        print(f"without {name}: {why}", file=sys.stderr)
    known = {(r["problem"], r["solver"], r["seed"]) for r in read(runs)}
    waiting = [task for task in tasks(args, python) if task.key not in known]
    work(waiting, runs, args.processes, time.monotonic() + args.minutes * 60)
    return absent


def work(waiting: list[Task], runs: Path, processes: int, deadline: float) -> None:
    with ProcessPoolExecutor(processes) as pool, runs.open("a", encoding="utf-8") as file:
        futures = [pool.submit(run, task) for task in waiting]
        for count, future in enumerate(as_completed(futures), 1):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            if count % 50 == 0:
                print(f"{count} of {len(futures)} runs", file=sys.stderr)
            if time.monotonic() > deadline:
                print("the time is up; run it again to go on", file=sys.stderr)
                pool.shutdown(wait=True, cancel_futures=True)
                return


def read(runs: Path) -> list[dict[str, Any]]:
    if not runs.exists():
        return []
    return [json.loads(line) for line in runs.read_text(encoding="utf-8").splitlines()]


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_quality")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--model-seeds", type=int)
    parser.add_argument("--solvers", default="", help="labels, separated by commas; all if not given")
    parser.add_argument("--problems", default="", help="parts of names, separated by commas; all if not given")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no run after so many")
    parser.add_argument("--nni-python")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/search_quality"))
    args = parser.parse_args(arguments)
    args.seeds = args.seeds if args.seeds is not None else (3 if args.quick else 20)
    args.model_seeds = args.model_seeds if args.model_seeds is not None else (1 if args.quick else 5)
    return args


if __name__ == "__main__":
    main(sys.argv[1:])
