"""Launch an experiment from Python, wait for it, and read its results.

    python3 examples/python_api/experiment.py

Each trial is a process of its own, run by a manager with a web page, and everything is kept.
"""

import sys
import time
from pathlib import Path

from nnilite import Experiment


def main():
    experiment = Experiment("local")
    config = experiment.config
    config.experiment_name = "python-api"
    config.trial_command = f"{sys.executable} trial.py"
    config.trial_code_directory = Path(__file__).parent
    config.search_space = {
        "x": {"_type": "uniform", "_value": [-2, 2]},
        "y": {"_type": "uniform", "_value": [-1, 3]},
    }
    config.tuner.class_args = {"optimize_mode": "minimize", "seed": 3}
    config.trial_concurrency = 2
    config.max_trial_number = 12
    with experiment:  # stopped at the end of the block, whatever happens in it
        succeeded = experiment.run(port=0)
        print("done" if succeeded else "ended with an error", experiment.get_job_statistics())
        best = min(experiment.export_data(), key=lambda trial: trial.value)
        print("best", best.value, best.parameter)
        experiment.update_max_trial_number(16)  # a few more
        while experiment.get_status() != "DONE":
            time.sleep(0.1)
        print("now", experiment.get_job_statistics())


if __name__ == "__main__":
    main()
