"""Runs the manager of one experiment as the first process of a container.

The first start creates the experiment, and later starts resume it.

    manager.py CONFIG
    manager.py --probe    exit code 0 if the manager answers

What happens depends on the folder of experiments (NNILITE_HOME), which outlives the container:

- It is empty: the experiment is created.
- The experiment in it has not ended: it is resumed.
- It has ended, or somebody has stopped it: it is shown, and nothing runs. `nnictl resume` in the container, or the
  button of the web page, lets it go on.

SIGTERM, which a container gets before its end, ends the manager at once and leaves the experiment as it is: trials that
run on a cluster go on, and the next container collects what they report meanwhile. `nnictl stop` would cancel them.
The manager listens on all addresses at NNILITE_LISTEN_PORT (8080). The exit code is 0 after SIGTERM or when the manager
has ended by itself, else that of the command that failed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NoReturn

from nnilite.services.module_command import module_command

NNICTL = module_command("nnilite._cli")  # the container's folder is a volume, to which others may write modules
OVER = ("DONE", "STOPPED", "ERROR", "VIEWED")
_PROBE_S = 5.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


def main(config: str) -> int:
    """Start the manager and wait for its end. Returns the exit code."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))  # first the manager has to be there
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the manager cannot become a child of this process")
    known = _experiments()
    if len(known) > 1:
        return _told(f"{os.environ['NNILITE_HOME']} has {len(known)} experiments; a container is for one.")
    if known and _never_ran(known[0]):
        subprocess.run([*NNICTL, "experiment", "delete", known[0]["id"], "--yes"], check=True)
        known = []
    command = _command(known[0] if known else None, config)
    print("nnictl", *command, flush=True)
    started = subprocess.run([*NNICTL, *command, *_address()])
    if started.returncode:
        return started.returncode
    manager = _experiments()[0]["pid"]
    if manager is None:
        return _told("the manager has ended again; its log may tell why.")
    signal.signal(signal.SIGTERM, lambda number, frame: _end(manager))
    if asked:
        _end(manager)
    return _watch(manager)


def _command(known: dict[str, Any] | None, config: str) -> list[str]:
    """The command by which the experiment begins or goes on."""
    if known is None:
        return ["create", "--config", config]
    return ["view" if _last_state(known) in OVER else "resume", known["id"]]


def _last_state(known: dict[str, Any]) -> str | None:
    """The state that the last manager has written; `nnictl` calls a killed manager STOPPED. None: it wrote nothing."""
    try:
        found: dict[str, Any] = json.loads(Path(known["directory"], "manager.json").read_bytes())
    except FileNotFoundError:
        return None
    return str(found["state"])


def _never_ran(known: dict[str, Any]) -> bool:
    """Whether the container ended in the middle of `create`, so that there is nothing with which to go on."""
    return not Path(known["directory"], "nnilite.sqlite").exists()


def probe() -> int:
    """Whether the manager answers at all: without a token it refuses, and that is an answer, too."""
    with closing(
        HTTPConnection("127.0.0.1", int(os.environ.get("NNILITE_LISTEN_PORT", "8080")), timeout=_PROBE_S)
    ) as server:
        try:
            server.request("GET", "/")
            return int(server.getresponse().status >= 500)
        except (OSError, HTTPException) as error:
            return _told(f"the manager does not answer (yet): {error}")


def _address() -> list[str]:
    return ["--host", "0.0.0.0", "--port", _port()]  # reached through its Service


def _port() -> str:
    return os.environ.get("NNILITE_LISTEN_PORT", "8080")


def _experiments() -> list[dict[str, Any]]:
    listed = subprocess.run([*NNICTL, "experiment", "list", "--all", "--json"], stdout=subprocess.PIPE, check=True)
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return found


def _watch(manager: int) -> int:
    """Wait for the manager's end, and for that of all other processes that nobody else waits for."""
    while True:
        process, status = os.wait()
        if process == manager:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end(manager: int) -> NoReturn:
    """End at once. The experiment is kept on the disk at any moment, and is not stopped by this."""
    os.kill(manager, signal.SIGKILL)
    with suppress(ChildProcessError):  # it had ended just now
        os.waitpid(manager, 0)
    os._exit(0)


def _told(sentence: str) -> int:
    print(f"ERROR: {sentence}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        sys.exit(probe())
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.exit(_told("usage: manager.py CONFIG, a file that is there"))
    sys.exit(main(sys.argv[1]))
