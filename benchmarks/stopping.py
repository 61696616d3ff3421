"""`python -m benchmarks.stopping`: what early stopping saves, in simulated time, on recorded learning curves.

Needs numpy, scipy, scikit-learn and optuna. A run is one method on one table with so many workers and one seed, until
the workers have spent the time of 100 whole trials together. Finished runs are kept in `runs.jsonl` of the output
folder, so that a later call continues; those for --safety in `safety.jsonl`, as they end where the best loss is found.

    --development     the tables on which the assessor was changed; if not given, the held-out ones
    --safety          all tables, and of the methods those with the assessor Auto and the same without; another page
    --methods LABELS  separated by semicolons; all of METHODS if not given
    --workers 1,4,16  how many trials run at once
    --seeds A-B       0-2 if not given
    --jobs N          processes; as many as processors if not given
    --minutes M       begin no run after so many
    --out FOLDER      where the runs and `early-stopping.md` are written, with --safety `stopping-safely.md`
    --write           write the report page of the documentation; its notes on the run stay, and may need a new look
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from benchmarks import learning_tables
from benchmarks.learning_tables import LearningTable
from benchmarks.search_shares import ABOUT_HELD_OUT, PAGES, write_page
from benchmarks.stopping_report import ABOUT, ABOUT_SAFETY, GUARDED, find_whole, report, report_safety
from benchmarks.stopping_trials import METHODS, SimulatedTrial, Source

WHOLE_TRIALS = 100
START_EPOCHS = 1.0  # what the start of a trial takes, in average epochs of the table
NEAR = (0.05, 0.01)  # regrets that count as near the best
WORST_REGRET = 1.0
WORKERS = (1, 4, 16)


class Job(NamedTuple):
    method: str
    table: str
    workers: int
    seed: int


class Outcome(NamedTuple):
    """Times are shares of the run's whole time; what was not reached has 1."""

    near: float
    nearest: float
    area: float  # the mean regret over the time
    trials: int
    stopped: int


def run(job: Job, *, to_best: bool = False) -> Outcome:
    """`to_best`: it ends when the best loss of the table is seen, as the regrets of later times are 0."""
    table = learning_tables.load(job.table)
    horizon_s = WHOLE_TRIALS * table.whole_s / job.workers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        simulation = Simulation(table, METHODS[job.method](table, job.seed, job.workers), job.workers, horizon_s)
        simulation.run(-math.inf if not to_best else float(table.losses.min()))
    return summarize(simulation, table, horizon_s)


class Simulation:
    """Workers that train, epoch by epoch. `found`: when the best loss so far was seen, and that loss."""

    def __init__(self, table: LearningTable, source: Source, workers: int, horizon_s: float) -> None:
        self._table, self._source, self._workers, self._horizon_s = table, source, workers, horizon_s
        self._ends: list[tuple[float, int, SimulatedTrial]] = []  # of the epochs that run
        self._idle = workers
        self.found: list[tuple[float, float]] = []
        self.trials = self.stopped = 0

    def run(self, goal: float = -math.inf) -> None:
        """It ends before its time where this loss is reached."""
        self._fill(0.0)
        while self._ends and self._ends[0][0] <= self._horizon_s:
            now_s, _, trial = heapq.heappop(self._ends)
            loss = float(self._table.losses[trial.row, len(trial.losses)])
            trial.losses.append(loss)
            if not self.found or loss < self.found[-1][1]:
                self.found.append((now_s, loss))
                if loss <= goal:
                    return
            goes_on = self._source.goes_on(trial)
            if goes_on and len(trial.losses) < trial.until:
                self._begin_epoch(now_s, trial)
                continue
            stopped = not goes_on and len(trial.losses) < trial.until
            self._source.end(trial, stopped)
            self.stopped += stopped
            self._idle += 1
            self._fill(now_s)

    def _fill(self, now_s: float) -> None:
        while self._idle and (trial := self._source.begin()) is not None:
            self._idle -= 1
            self.trials += 1
            start_s = START_EPOCHS * self._table.whole_s / learning_tables.EPOCHS
            self._begin_epoch(now_s + start_s, trial)

    def _begin_epoch(self, now_s: float, trial: SimulatedTrial) -> None:
        heapq.heappush(self._ends, (now_s + float(self._table.seconds[trial.row]), trial.number, trial))


def summarize(simulation: Simulation, table: LearningTable, horizon_s: float) -> Outcome:
    times = dict.fromkeys(NEAR, 1.0)
    area, before_s, regret = 0.0, 0.0, WORST_REGRET
    for now_s, loss in simulation.found:
        area += regret * (now_s - before_s)
        before_s, regret = now_s, min(table.regret(loss), WORST_REGRET)
        for near in NEAR:
            if regret <= near and times[near] == 1.0:
                times[near] = now_s / horizon_s
    area += regret * (horizon_s - before_s)
    return Outcome(*(times[near] for near in NEAR), area / horizon_s, simulation.trials, simulation.stopped)


def main(arguments: list[str]) -> int:
    args = _options(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # the processes are what runs in parallel
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / ("safety.jsonl" if args.safety else "runs.jsonl")
    tables: tuple[str, ...] = learning_tables.HELD_OUT
    if args.development:
        tables = learning_tables.DEVELOPMENT
    methods = args.methods
    if args.safety:
        tables = learning_tables.NAMES
        guarded = {method for method in methods if method.endswith(GUARDED)}
        methods = [method for method in methods if method in guarded | {find_whole(one) for one in guarded}]
    runs = _read(file)
    jobs = [
        Job(method, table, workers, seed)
        for seed in args.seeds
        for workers in args.workers
        for table in tables
        for method in methods
    ]
    _work([job for job in jobs if job not in runs], runs, file, args)
    if args.safety:
        about, text, name = ABOUT_SAFETY, report_safety(runs, tables), "stopping-safely.md"
    else:
        kind = "development" if args.development else "held out"
        about, text, name = ABOUT, report(runs, tables, kind), "early-stopping.md"
    (args.out / name).write_text(text + "\n", "utf-8")
    if args.write:
        write_page(PAGES / name, about, text)
    print(text)
    return 0


def _work(waiting: list[Job], runs: dict[Job, Outcome], file: Path, args: argparse.Namespace) -> None:
    deadline = time.monotonic() + args.minutes * 60
    with ProcessPoolExecutor(args.jobs) as pool, file.open("a", encoding="utf-8") as kept:
        futures = {pool.submit(run, job, to_best=args.safety): job for job in waiting}
        for count, future in enumerate(as_completed(futures), 1):
            job = futures[future]
            runs[job] = future.result()
            kept.write(json.dumps([job, runs[job]]) + "\n")
            kept.flush()
            if count % 100 == 0:
                print(f"{count} of {len(waiting)} runs", file=sys.stderr, flush=True)
            if time.monotonic() > deadline:
                print("the time is up; call it again to go on", file=sys.stderr)
                pool.shutdown(wait=False, cancel_futures=True)
                return


def _read(file: Path) -> dict[Job, Outcome]:
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {Job(*job): Outcome(*outcome) for job, outcome in map(json.loads, lines)}


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopping")
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--safety", action="store_true")
    parser.add_argument("--methods", default=list(METHODS), type=lambda text: text.split(";"))
    parser.add_argument("--workers", default=WORKERS, type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--seeds", default=range(3), type=_read_seeds, metavar="A-B")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=Path("build/stopping"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    if args.write and args.development and not args.safety:
        parser.error(ABOUT_HELD_OUT)
    return args


def _read_seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
