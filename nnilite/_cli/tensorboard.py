"""Open TensorBoard on an experiment.

It shows the runs of the config's `trackers: [{name: tensorboard}]`; without such a tracker, the event files that trials
on this machine have written to their output folders ($NNI_OUTPUT_DIR). It runs until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nnilite._cli import access, arguments, screen
from nnilite.errors import NotFound

if TYPE_CHECKING:
    from nnilite._experiments.registry import RegistryEntry


_OF_NNI = {
    "start": "`nnictl tensorboard ID` opens it on all trials of an experiment",
    "stop": "Ctrl-C ends it",
}
"""Commands of NNI 2: what there is for them."""


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_experiment_argument(parser)
    parser.add_argument(
        "-p", "--port", type=arguments.port, default=6006, help="port (default 6006; 0 picks a free one)"
    )
    arguments.add_json_argument(parser, "print the folder as JSON")
    parser.set_defaults(command=show)


def show(options: argparse.Namespace) -> None:
    if options.id in _OF_NNI:
        raise NotFound(f"There is no `nnictl tensorboard {options.id}`; {_OF_NNI[options.id]}.")
    folder = find_event_folder(access.find(options))
    program = shutil.which("tensorboard")
    if program is None:
        raise NotFound("TensorBoard is not installed; `pip install tensorboard`.")
    if options.json:
        screen.show_json({"folder": str(folder)})
    else:
        print(f"Event files: {folder}")
        print("Open the address that TensorBoard prints: its secret part keeps other users of this machine out.")
    # `execv` would drop what is still in Python's buffer.
    sys.stdout.flush()
    # From here on, this process is TensorBoard: signals and exit code are its own.
    words = ["--logdir", str(folder), "--port", str(options.port), f"--flagfile={_hand_over_secret_path()}"]
    os.execv(program, [program, *words])


def _hand_over_secret_path() -> str:
    """Return the name of a file with an option of TensorBoard: all of it is below a path that others do not know.

    TensorBoard itself needs no key, and other users can read command lines.
    """
    taken, given = os.pipe()
    os.write(given, f"--path_prefix=/{secrets.token_urlsafe(16)}\n".encode())
    os.close(given)
    os.set_inheritable(taken, True)
    return f"/dev/fd/{taken}"


def find_event_folder(entry: RegistryEntry) -> Path:
    """Return the folder with the experiment's event files. Raises: NotFound if there are none yet, NniliteError."""
    from nnilite.config import load_stored

    config = load_stored(entry.directory, paths=False)
    tracker = next((one for one in config.trackers if one.name == "tensorboard"), None)
    if tracker is None:
        folder = entry.directory / "trials"
        if not has_event_files(folder):
            raise NotFound(
                f"Experiment {entry.id} has no tracker `tensorboard`, and no trial has written event files to its "
                "$NNI_OUTPUT_DIR; add `trackers: [{name: tensorboard}]` to the config of the next one."
            )
        return folder
    return Path(tracker.directory or entry.directory / "trackers" / "tensorboard")


# `os.walk` passes over folders that a trial removes meanwhile; `rglob` raises.
def has_event_files(folder: Path) -> bool:
    """Return whether there are event files anywhere below a folder."""
    return any(".tfevents." in name for _, _, names in os.walk(folder) for name in names)
