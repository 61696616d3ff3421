"""An experiment of nnilite, each trial a process with a keeper beside it."""

import pathlib
import sys

from nnilite.experiment import Experiment

folder = pathlib.Path(sys.argv[2])
(folder / "trial.py").write_text("import nnilite\nnnilite.report_final_result(nnilite.get_next_parameter()['x'])\n")
experiment = Experiment("local")
experiment.config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
experiment.config.trial_command = f"{sys.executable} trial.py"
experiment.config.trial_code_directory = folder
experiment.config.trial_concurrency = 2
experiment.config.max_trial_number = int(sys.argv[1])
experiment.config.tuner.name = "Random"
experiment.config.experiment_working_directory = folder / "experiments"
experiment.run(port=None)
