"""What `import nnicli` finds, the client of NNI 1: what to write in its place."""

raise ModuleNotFoundError(
    "nnicli was the client of NNI 1. Write `from nni.experiment import Experiment, ExperimentConfig`: "
    "Experiment(ExperimentConfig.load(FILE)).start(port) starts an experiment, Experiment.connect(port) finds one that "
    "runs, and its methods are get_status(), list_trial_jobs(), export_data() and stop().",
    name="nnicli",
)
