"""The process that feeds one tracker: `python -m nnilite._trackers DIRECTORY NUMBER`.

It ends when its standard input does, after everything that was stored by then has been handed over.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from nnilite._side_processes.quick_end import run_program
from nnilite._side_processes.side_process import is_alone, is_over, prepared
from nnilite._store.database_file import FILE_NAME
from nnilite._trackers.feed import FOLDER, Feed, find_position_file
from nnilite._trackers.runs import Runs
from nnilite.config import CheckedConfig, TrackerConfig

log = logging.getLogger("nnilite.tracker")


def make_runs(tracker: TrackerConfig, config: CheckedConfig, directory: Path) -> Runs:
    """Return the tracker that a config describes.

    Raises: ImportError if its library is missing, and what that raises.
    """
    project = tracker.project or config.experiment_name or "nnilite"
    folder = Path(tracker.directory or directory / FOLDER / tracker.name)
    if tracker.name == "mlflow":
        from nnilite._trackers.mlflow_runs import MlflowRuns

        return MlflowRuns(tracker.uri or "", project)
    if tracker.name == "wandb":
        from nnilite._trackers.wandb_runs import WandbRuns

        return WandbRuns(folder, project, tracker.mode)
    from nnilite._trackers.tensorboard_runs import TensorBoardRuns

    return TensorBoardRuns(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nnilite._trackers")
    parser.add_argument("directory", type=Path)
    parser.add_argument("number", type=int)
    options = parser.parse_args()
    directory = options.directory.absolute()
    config = prepared(directory)
    tracker = config.trackers[options.number]
    (directory / FOLDER).mkdir(exist_ok=True)
    position = find_position_file(directory, options.number, tracker.name)
    if not is_alone(position.with_suffix(".lock")):
        return 0
    if tracker.name == "wandb":
        # A settings file in the current folder, perhaps another person's, could redirect the runs and the key.
        os.chdir("/")
    runs = make_runs(tracker, config, directory)
    feed = Feed(directory / FILE_NAME, position, directory.name, runs)
    feed.open()
    log.info("sending trials to %s", tracker.name)
    while not is_over():
        feed.step()
    feed.step()
    feed.close()
    return 0


if __name__ == "__main__":
    run_program(main)
