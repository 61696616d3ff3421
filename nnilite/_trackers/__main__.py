"""The process that feeds one tracker: `python -m nnilite._trackers DIRECTORY NUMBER`.

It ends when its standard input does, after everything that was stored by then has been handed over.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import select
import signal
import sys
from pathlib import Path
from typing import IO

from nnilite._documents import read_document
from nnilite._rest import SecretFilter
from nnilite._store.writer import FILE_NAME
from nnilite._trackers.feed import Feed
from nnilite._trackers.runs import Runs
from nnilite.config import ExperimentConfig, TrackerConfig, from_dict

log = logging.getLogger("nnilite.tracker")

FOLDER = "trackers"
_EVERY_S = 1.0
_LAST_S = 60


def runs_of(tracker: TrackerConfig, config: ExperimentConfig, directory: Path) -> Runs:
    """The tracker that a config describes. Raises: ImportError if its library is missing, and what that raises."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the manager, which ends this process in good order
    stored = read_document(options.directory / "config.json", "restore it from a copy")
    config = from_dict(stored.fields, options.directory).checked(paths=False)
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s (%(name)s) %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(SecretFilter([*config.secrets]))
    tracker = config.trackers[options.number]
    (options.directory / FOLDER).mkdir(exist_ok=True)
    position = options.directory / FOLDER / f"{options.number}-{tracker.name}.json"
    lock = position.with_suffix(".lock").open("w")
    while not _is_taken(lock):
        if _is_over():
            return 0
    runs = runs_of(tracker, config, options.directory)
    feed = Feed(options.directory / FILE_NAME, position, options.directory.name, runs)
    feed.open()
    log.info("%s is fed", tracker.name)
    while not _is_over():
        feed.step()
    # A manager that lives ends this process sooner; one that was killed cannot, and the next one waits for the lock.
    signal.alarm(_LAST_S)
    feed.step()
    feed.close()
    return 0


def _is_taken(lock: IO[str]) -> bool:
    """Whether this process has the lock now: that of a killed manager may still be sending its rest."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("waiting for the process of an earlier manager to end")
        return False
    return True


def _is_over() -> bool:
    """Wait a moment; whether the manager has closed this process's standard input meanwhile."""
    readable, _, _ = select.select([0], [], [], _EVERY_S)
    return bool(readable) and not os.read(0, 4096)


if __name__ == "__main__":
    sys.exit(main())
