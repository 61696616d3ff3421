"""Optuna's search, and two processes that run trials as functions: none is started for a trial."""

import sys
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

import optuna


def objective(x):
    return x


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    with ProcessPoolExecutor(2) as pool:
        running, left = {}, int(sys.argv[1])
        while left or running:
            while left and len(running) < 2:
                trial = study.ask()
                running[pool.submit(objective, trial.suggest_float("x", 0, 1))] = trial
                left -= 1
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                study.tell(running.pop(done), done.result())
