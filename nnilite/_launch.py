"""Start the manager of an experiment as a process of its own, and wait until it is ready or says why not."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import string
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nnilite import _registry
from nnilite._registry import Entry
from nnilite.errors import Conflict, NniliteError

if TYPE_CHECKING:
    from nnilite.config import ExperimentConfig

_READY_TIMEOUT_S = 60.0
_LOG_TAIL_BYTES = 2000


@dataclass(frozen=True)
class ManagerOptions:
    """How a manager is to be reached. Port 0: any free one. `url_prefix`: path under which a proxy serves it."""

    port: int = 8080
    host: str = "127.0.0.1"
    url_prefix: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    debug: bool = False


def create(
    config: ExperimentConfig,
    *,
    options: ManagerOptions | None = None,
    detach: bool = True,
    experiment: str | None = None,
) -> Entry:
    """Begin a new experiment. `detach` False: it is stopped when this process ends.

    Raises: NniliteError with the manager's own sentence if it cannot start; nothing is left behind then.
    """
    checked = config.checked()
    experiment = experiment or new_id()
    directory = Path(checked.experiment_working_directory) / experiment
    if directory.exists():
        raise Conflict(f"{directory} exists already; choose another experiment id.")
    for folder in ("log", "trials", "code", "checkpoint"):
        (directory / folder).mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    _registry.write_json(directory / "config.json", checked.json(secrets=True))
    platform = ",".join(platform for _, platform, _ in checked.services)
    _registry.add(experiment, checked.experiment_name or "", directory, platform, time.time())
    try:
        return _start(experiment, directory, "create", options or ManagerOptions(), detach)
    except NniliteError:
        _registry.remove(experiment)
        shutil.rmtree(directory, ignore_errors=True)
        raise


def resume(entry: Entry, *, options: ManagerOptions | None = None, detach: bool = True) -> Entry:
    """Go on with an experiment that has no manager. Raises: NniliteError if it has one or cannot start."""
    return _start(entry.id, entry.directory, "resume", options or ManagerOptions(), detach)


def view(entry: Entry, *, options: ManagerOptions | None = None, detach: bool = True) -> Entry:
    """Serve an experiment read-only. Raises: NniliteError if it has a manager or cannot start."""
    return _start(entry.id, entry.directory, "view", options or ManagerOptions(), detach)


def token(entry: Entry) -> str | None:
    """The token by which the experiment's REST interface is used, if this user may read it."""
    try:
        return (entry.directory / "token").read_text("ascii").strip()
    except OSError:
        return None


def new_id() -> str:
    """8 characters of [a-z0-9], a letter first."""
    letters = string.ascii_lowercase
    return secrets.choice(letters) + "".join(secrets.choice(letters + string.digits) for _ in range(7))


def _start(experiment: str, directory: Path, mode: str, options: ManagerOptions, detach: bool) -> Entry:
    ready_read, ready_write = os.pipe()
    command = [sys.executable, "-m", "nnilite._manager", "--directory", str(directory), "--mode", mode]
    command += ["--port", str(options.port), "--host", options.host, "--ready-fd", str(ready_write)]
    command += ["--url-prefix", options.url_prefix] if options.url_prefix else []
    command += ["--tls-cert", str(options.tls_cert)] if options.tls_cert else []
    command += ["--tls-key", str(options.tls_key)] if options.tls_key else []
    command += ["--debug"] if options.debug else []
    command += ["--detach"] if detach else ["--with-parent"]
    log_path = directory / "log" / "manager.log"
    with log_path.open("ab") as out, os.fdopen(ready_read, "rb") as ready:
        process = subprocess.Popen(
            command,
            # without detach: the manager stops when this pipe closes, that is when this process ends
            stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
            stdout=out,
            stderr=out,
            pass_fds=[ready_write],
            start_new_session=True,
        )
        os.close(ready_write)
        answer = _wait(process, ready)
    if "error" in answer:
        raise _refusal(answer, process, log_path)
    threading.Thread(target=_reap, args=(process,), daemon=True).start()
    return _registry.find(experiment)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Hold on to a process, and with it to the pipe whose end stops it, until it has ended."""
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _wait(process: subprocess.Popen[bytes], ready: BinaryIO) -> dict[str, str]:
    spoke, _, _ = select.select([ready], [], [], _READY_TIMEOUT_S)
    line = ready.readline() if spoke else b""
    if line:
        answer: dict[str, str] = json.loads(line)
        return answer
    if not spoke:
        process.kill()
        return {"error": f"the manager was not ready within {_READY_TIMEOUT_S:.0f} s", "tail": "yes"}
    return {"error": f"the manager ended at its start with exit code {process.wait()}", "tail": "yes"}


def _refusal(answer: dict[str, str], process: subprocess.Popen[bytes], log_path: Path) -> NniliteError:
    _reap(process)
    text = answer["error"]
    if "tail" in answer:
        text += f"; the end of its log:\n{log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors='replace')}"
    return NniliteError(text)
