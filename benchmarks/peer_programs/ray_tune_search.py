"""A search of Ray Tune, each trial an actor."""

import sys

import ray
from ray import tune


def objective(config):
    tune.report({"y": config["x"]})


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
tune.Tuner(
    objective,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(num_samples=int(sys.argv[1]), max_concurrent_trials=2, metric="y", mode="max"),
    run_config=tune.RunConfig(verbose=0, storage_path=sys.argv[2]),
).fit()
ray.shutdown()
