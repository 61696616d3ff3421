"""Copies an experiment into the trackers that its config names: each attempt of a trial becomes a run there.

A tracker is fed by a process of its own, which only reads the experiment's database. So it can hold up nothing, and
what it could not send while its server was away is sent later: the database has it.

feed              the loop: what is new in the database since the position that was reached
runs              what every tracker can do, and what a run and a point of its curves are
mlflow_runs       MLflow
tensorboard_runs  TensorBoard
wandb_runs        Weights & Biases
side_process      what such a process shares with those of `nnilite/_webhooks`: config, log, lock and end
keeping           the manager's side: starts the processes of both and keeps them running
"""
