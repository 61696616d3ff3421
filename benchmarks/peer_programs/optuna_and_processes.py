"""Optuna's search, each trial a process that it starts."""

import pathlib
import subprocess
import sys

import optuna

trial_script = pathlib.Path(__file__).with_name("trial.py")


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    subprocess.run([sys.executable, str(trial_script), str(x), sys.argv[2] + "/results"], check=True)
    return x


optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
study.optimize(objective, n_trials=int(sys.argv[1]), n_jobs=2)
