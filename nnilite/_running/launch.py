"""Starts the manager of an experiment as a process of its own, and waits until it is ready or says why not."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nnilite import _registry, _search_folder
from nnilite._documents import write_json
from nnilite._registry import RegistryEntry
from nnilite.errors import ConfigError, Conflict, NniliteError

if TYPE_CHECKING:
    from nnilite.codedir import Progress
    from nnilite.config import ExperimentConfig

_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 15.0
_KILLED_TIMEOUT_S = 5.0
_POLL_S = 0.02
_LOG_TAIL_BYTES = 2000


@dataclass(frozen=True)
class ManagerOptions:
    """How a manager can be reached. `url_prefix`: the path under which a proxy serves it.

    Port 0 means any free one; None 8080 or, where that is taken, the next free one.
    """

    port: int | None = None
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
    packing: Progress | None = None,
) -> RegistryEntry:
    """Begin a new experiment. Without `detach` it is stopped when this process ends.

    `packing` is called with how many bytes of the code were read to pack it, and how many are to be read in all.

    Raises: NniliteError with the manager's own sentence if it cannot start. Then nothing is left behind. The same holds
    for KeyboardInterrupt, unless the experiment runs already.
    """
    checked = config.checked()
    experiment = experiment or new_id()
    if not _registry.is_id(experiment):
        raise ConfigError(f"an experiment cannot have the id {experiment!r}; letters, digits, - and _ will do")
    directory = Path(checked.experiment_working_directory) / experiment
    try:
        with interrupts_held():
            _make(checked, experiment, directory)
        return _start(experiment, directory, "create", options or ManagerOptions(), detach, packing)
    except KeyboardInterrupt:
        with interrupts_held(again=False):
            # If the manager runs already, the interruption came too late to undo the start.
            if not _registry.is_alive(directory):
                _forget(experiment, directory)
        raise
    except FileExistsError:
        raise Conflict(f"{directory} exists already; choose another experiment id.") from None
    except (NniliteError, OSError):
        with interrupts_held():
            _forget(experiment, directory)
        raise


def _forget(experiment: str, directory: Path) -> None:
    _registry.remove(experiment)
    shutil.rmtree(directory, ignore_errors=True)


def _make(config: ExperimentConfig, experiment: str, directory: Path) -> None:
    directory.mkdir(parents=True)
    directory.chmod(0o700)
    write_json(directory / "config.json", config.json(secrets=True))
    platform = ",".join(platform for _, platform, _ in config.services)
    _registry.add(experiment, config.experiment_name or "", directory, platform, time.time())


@contextlib.contextmanager
def interrupts_held(again: bool = True) -> Iterator[None]:
    """Hold Ctrl-C back until the block's end, so that nothing is left half done. Without `again` it is then dropped."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # Ctrl-C is ignored here anyway, or only goes to another thread
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and again:
        signal.raise_signal(signal.SIGINT)


def resume(
    entry: RegistryEntry,
    *,
    options: ManagerOptions | None = None,
    detach: bool = True,
    packing: Progress | None = None,
) -> RegistryEntry:
    """Resume an experiment that has no manager. `packing`: see `create`.

    Raises: NniliteError if it has one or cannot start.
    """
    if entry.origin is not None:
        raise Conflict(_registry.cannot_go_on(entry.id))
    if entry.search:
        raise Conflict(_search_folder.cannot_be_resumed(entry.id, entry.directory))
    return _start(entry.id, entry.directory, "resume", options or ManagerOptions(), detach, packing)


def view(entry: RegistryEntry, *, options: ManagerOptions | None = None, detach: bool = True) -> RegistryEntry:
    """Serve an experiment read-only, also one of NNI. Raises: NniliteError if it has a manager or cannot start."""
    if entry.origin is not None and not entry.alive:
        from nnilite._manager import nni_taken

        nni_taken.prepare(entry.origin, entry.directory)
    return _start(entry.id, entry.directory, "view", options or ManagerOptions(), detach)


def token(entry: RegistryEntry) -> str | None:
    """The token for the experiment's REST interface, if there is one that this user may read.

    Raises: DamagedFile, UnreadableFile.
    """
    try:
        return _registry.read_token(entry.directory) if os.access(entry.directory / "token", os.R_OK) else None
    except FileNotFoundError:
        return None


def new_id() -> str:
    """8 characters of [a-z0-9], beginning with a letter."""
    letters = string.ascii_lowercase
    return secrets.choice(letters) + "".join(secrets.choice(letters + string.digits) for _ in range(7))


def _start(
    experiment: str,
    directory: Path,
    mode: str,
    options: ManagerOptions,
    detach: bool,
    packing: Progress | None = None,
) -> RegistryEntry:
    _registry.make_folders(directory)
    ready_read, ready_write = os.pipe()
    command = [sys.executable, "-m", "nnilite._manager", "--directory", str(directory), "--mode", mode]
    command += ["--host", options.host, "--ready-fd", str(ready_write)]
    command += ["--port", str(options.port)] if options.port is not None else []
    command += ["--url-prefix", options.url_prefix] if options.url_prefix else []
    command += ["--tls-cert", str(options.tls_cert)] if options.tls_cert else []
    command += ["--tls-key", str(options.tls_key)] if options.tls_key else []
    command += ["--debug"] if options.debug else []
    command += ["--detach"] if detach else ["--with-parent"]
    log_path = directory / "log" / "manager.log"
    process = None
    with log_path.open("ab") as out, os.fdopen(ready_read, "rb", buffering=0) as ready:
        try:
            with interrupts_held():
                process = _spawn(command, out, ready_write, detach)
            answer = _wait(process, ready, directory, packing)
        except KeyboardInterrupt:
            with interrupts_held(again=False):
                if process is not None and not _is_ready(ready):
                    _end(process, ready, directory)
            raise
    if "error" in answer:
        raise _refusal(answer, process, log_path)
    threading.Thread(target=_reap, args=(process,), daemon=True).start()
    return _registry.find(experiment)


def _spawn(command: list[str], out: BinaryIO, ready_write: int, detach: bool) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command,
        # Without `detach` the manager stops when this pipe closes, that is, when this process ends.
        stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
        stdout=out,
        stderr=out,
        pass_fds=[ready_write],
        start_new_session=True,
    )
    os.close(ready_write)
    return process


def _end(process: subprocess.Popen[bytes], ready: RawIOBase, directory: Path) -> None:
    """End a manager that is not ready yet, and its children: in good order if possible, else at once.

    The started process may have ended already; the detached one is in its group. The end of the pipe means that all
    processes which could report are gone. But a manager that gets ready just now closes the pipe before it obeys: it
    holds its lock until it has ended.
    """
    for number, patience_s in ((signal.SIGTERM, _END_TIMEOUT_S), (signal.SIGKILL, _KILLED_TIMEOUT_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + patience_s
        while select.select([ready], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if ready.read(4096):
                continue
            if not _registry.is_alive(directory):
                return
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)


def _is_ready(ready: RawIOBase) -> bool:
    """Whether the manager has reported by now that it is ready."""
    while select.select([ready], [], [], 0)[0]:
        line = ready.readline()
        if not line or b'"ready"' in line:
            return bool(line)
    return False


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Keep a process until it has ended, and with it the pipe whose closing would stop it."""
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _wait(
    process: subprocess.Popen[bytes], ready: RawIOBase, directory: Path, packing: Progress | None
) -> dict[str, str]:
    """The manager's last word on its start. While it packs the code, however long, it says so."""
    while select.select([ready], [], [], _READY_TIMEOUT_S)[0]:
        line = ready.readline()
        if not line:
            return {"error": f"the manager ended at its start with exit code {process.wait()}", "tail": "yes"}
        answer: dict[str, Any] = json.loads(line)
        if "packed" not in answer:
            return answer
        if packing is not None:
            packing(*answer["packed"])
    _end(process, ready, directory)
    return {"error": f"the manager said nothing for {_READY_TIMEOUT_S:.0f} s and was not ready", "tail": "yes"}


def _refusal(answer: dict[str, str], process: subprocess.Popen[bytes], log_path: Path) -> NniliteError:
    _reap(process)
    text = answer["error"]
    if "tail" in answer:
        text += f"; the end of its log:\n{log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors='replace')}"
    return Conflict(text) if answer.get("kind") == "conflict" else NniliteError(text)
