"""A search of Syne Tune with its local backend. It looks after its trials every 0.05 s; by itself, every 5 s."""

import logging
import os
import pathlib
import sys

os.environ["SYNETUNE_FOLDER"] = sys.argv[2]

from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import LocalBackend
from syne_tune.config_space import uniform
from syne_tune.optimizer.baselines import RandomSearch

logging.getLogger().setLevel(logging.ERROR)
Tuner(
    trial_backend=LocalBackend(entry_point=str(pathlib.Path(__file__).with_name("syne_tune_trial.py"))),
    scheduler=RandomSearch({"x": uniform(0, 1)}, metrics=["y"]),
    stop_criterion=StoppingCriterion(max_num_trials_finished=int(sys.argv[1])),
    n_workers=2,
    sleep_time=0.05,
    save_tuner=False,
).run()
