"""The checkpoints of earlier attempts on this machine, and those that come from another one.

<root>/<experiment>/checkpoints/<trial>/        the trial's own
<root>/<experiment>/checkpoints/<trial>.from    the attempt that wrote what was copied here
<root>/<experiment>/checkpoints/<trial>.attempt  the keeper's note on who writes there, if there is a shared storage
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from nnilite.services.worker_side import (
    WRITER_SUFFIX,
    AttemptFiles,
    DamagedTar,
    end_state,
    is_folder_there,
    unpack_checkpoint,
    write_private,
)
from nnilite_remote._worker.processes import WorkerRefusal, make_folder


def trace(folder: str, trial: str) -> dict[str, Any]:
    """Return what is here of a trial: its last attempt, whether that was lost, and the last attempt with checkpoints.

    An attempt that this machine could not start counts as lost: the next one goes elsewhere if it can. Missing values
    are null. Raises: OSError.
    """
    place, brought = _place(folder, trial), _read_brought(folder, trial)
    trials = os.path.join(folder, "trials", trial)
    there = os.listdir(trials) if is_folder_there(trials) else []
    # Attempts of further nodes are named "0.1"; only those of first nodes have saved checkpoints.
    numbers = {name: int(head) for name in there if (head := name.partition(".")[0]).isdecimal()}
    attempt = max(numbers.values(), default=None)
    firsts = [number for name, number in numbers.items() if name.isdecimal()]
    known = [*firsts, *([] if brought is None else [brought])]
    saved = bool(known) and is_folder_there(place) and bool(os.listdir(place))
    return {
        "attempt": attempt,
        "lost": any(_was_lost(os.path.join(trials, name)) for name, number in numbers.items() if number == attempt),
        "checkpoint": max(known) if saved else None,
        "directory": place,
    }


def restore(folder: str, trial: str, attempt: int, archive: str) -> None:
    """Replace the checkpoints here with those in `archive`. Raises: WorkerRefusal, OSError."""
    place = _place(folder, trial)
    draft = place + ".new"
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)
    try:
        unpack_checkpoint(archive, draft)
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place + WRITER_SUFFIX)  # it tells of what was here
        os.replace(draft, place)
        write_private(place + ".from", str(attempt))
    except DamagedTar as error:
        raise WorkerRefusal("the checkpoints were damaged on their way: %s" % error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(archive)


def tidy_up(place: str, keep: bool) -> None:
    """Remove the experiment's folder of checkpoints."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if not os.path.isdir(path):
            os.unlink(path)
        elif not (keep and os.listdir(path)):
            shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(place)


def _was_lost(directory: str) -> bool:
    """Return whether an attempt left no record of its end here, or ended because of this machine."""
    try:
        exited = AttemptFiles(directory).exited()
    except OSError:
        return True
    return exited is None or end_state(exited) == "LOST"


def _place(folder: str, trial: str) -> str:
    return os.path.join(folder, "checkpoints", trial)


def _read_brought(folder: str, trial: str) -> int | None:
    try:
        with open(_place(folder, trial) + ".from", encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None
