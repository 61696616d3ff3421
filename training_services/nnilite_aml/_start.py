"""Run on each node of a job: start the keeper, and put the trial's files where Azure looks.

Its text is uploaded with the snapshot, so it needs Python 3.8 and the standard library alone. Its arguments are a JSON
list, the words of the command that becomes the keeper, and the folder that Azure has mounted for checkpoints, if there
is one.

Azure starts a job again within the same job when its node was taken away. nnilite retries trials instead, since it can
tell the attempts apart, so a second start ends at once.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Mapping, Optional, Sequence

EVENT = "NNILITE_EVENT "
AGAIN = "Azure took the job's node away and started the job again; nnilite retries the trial itself"
RANK = "NNILITE_RANK"
WORK = "nnilite-trial"
OUTPUTS = "outputs"
_KEPT_BACK = ("code",)


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the keeper to its end; return the exit code."""
    command, mount = list(json.loads(words[0])), words[1] if len(words) > 1 else ""
    number = rank(environment)
    if mount and number == "0":
        if not is_first(mount, environment.get("AZUREML_RUN_ID") or "job"):
            end = {"type": "exit", "time": time.time(), "code": None, "message": AGAIN, "cause": "interrupted"}
            sys.stdout.write(EVENT + json.dumps(end) + "\n")
            sys.stdout.flush()
            return 1
        command += ["--checkpoints", os.path.join(mount, "checkpoints")]
    # Otherwise a signal to this process group would reach the keeper twice, and a second one ends its wait.
    child = subprocess.Popen(command, env=dict(environment, **{RANK: number}), start_new_session=True)

    def forward(signal_number: int, frame: Optional[FrameType]) -> None:
        try:
            child.send_signal(signal.SIGTERM)
        except OSError:  # it has ended meanwhile
            pass

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    code = child.wait()
    if number == "0":
        hand_over(WORK, OUTPUTS)
    return code if code >= 0 else 128 - code


def rank(environment: Mapping[str, str]) -> str:
    """Return the number of this process among those of the job, "0" for the one that reports.

    PyTorch and MPI have variables for it. TensorFlow has roles: there the chief reports, and worker 0 without a chief.
    """
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if environment.get(name):
            return environment[name]
    try:
        found = json.loads(environment.get("TF_CONFIG") or "{}")
        role, index = str(found["task"]["type"]), int(found["task"]["index"])
        chief = any(name in found["cluster"] for name in ("chief", "master"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "0"
    reports = role in ("chief", "master") or (role == "worker" and index == 0 and not chief)
    return "0" if reports else "{}-{}".format(role, index)


def is_first(mount: str, job: str) -> bool:
    """Return whether this job has never been started before, by a mark next to the checkpoints."""
    folder = os.path.join(mount, "attempts")
    try:
        os.makedirs(folder, exist_ok=True)
        os.makedirs(os.path.join(mount, "checkpoints"), exist_ok=True)
        mark = os.path.join(folder, job)
        if os.path.exists(mark):
            return False
        with open(mark, "w", encoding="ascii") as file:
            file.write("started\n")
    except OSError as error:
        _say("cannot write to the mount for checkpoints: {}".format(error))
    return True


def hand_over(work: str, outputs: str) -> None:
    """Move the trial's files to the folder that Azure keeps: all but the copy of the code and hidden files."""
    try:
        os.makedirs(outputs, exist_ok=True)
        names = [name for name in os.listdir(work) if name not in _KEPT_BACK and not name.startswith(".")]
    except OSError as error:
        _say("the trial's files cannot be kept: {}".format(error))
        return
    for name in names:
        try:
            _move(os.path.join(work, name), os.path.join(outputs, name))
        except OSError as error:
            _say("some of the trial's files cannot be kept: {}".format(error))


def _move(path: str, target: str) -> None:
    """Move a file or folder, also to another file system. Raises: OSError."""
    try:
        os.replace(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(path, target)


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
