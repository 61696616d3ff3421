"""Starts the manager of an experiment as a process of its own, and waits until it is ready or says why not."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import string
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nnilite._experiments import registry, search_folder
from nnilite._experiments.documents import is_folder, write_json
from nnilite._experiments.experiment_token import read_token
from nnilite._experiments.manager_options import ManagerOptions as ManagerOptions
from nnilite._experiments.new_folders import make_own_folder
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import manager_process
from nnilite._running.manager_process import ManagerProcess
from nnilite.errors import ConfigError, Conflict, NniliteError, Place, explain_missing_package

if TYPE_CHECKING:
    from nnilite.codedir import Progress
    from nnilite.config import CheckedConfig

_LOG_TAIL_BYTES = 2000


def create(
    config: CheckedConfig,
    *,
    options: ManagerOptions | None = None,
    detach: bool = True,
    experiment: str | None = None,
    packing: Progress | None = None,
    process: ManagerProcess | None = None,
    fill: Callable[[Path], None] | None = None,
) -> RegistryEntry:
    """Begin a new experiment. Without `detach` it is stopped when this process ends.

    `packing` is called with how many bytes of the code were read to pack it, and how many are to be read in all.
    `process` stands by to become the manager; without one it is started now. `fill` writes what else the experiment's
    folder is to have.

    Raises: NniliteError with the manager's own sentence if it cannot start. Then nothing is left behind. The same holds
    for what a signal handler raises, such as KeyboardInterrupt, unless the experiment runs already.
    """
    checked = config.checked()
    experiment = experiment or new_id()
    if not registry.is_id(experiment):
        raise ConfigError(f"an experiment cannot have the id {experiment!r}; use letters, digits, - and _")
    directory = Path(checked.experiment_working_directory) / experiment
    _check_is_new(experiment, directory)
    try:
        with hold_interrupts():
            _make(checked, experiment, directory)
            if fill is not None:
                fill(directory)
        return _start(experiment, directory, "create", options or ManagerOptions(), detach, packing, process)
    except FileExistsError:  # another program was faster
        raise _explain_not_new(experiment, directory) from None
    except BaseException as error:
        with hold_interrupts(again=not isinstance(error, KeyboardInterrupt)):
            # If the manager runs already, an interruption came too late to undo the start.
            if not registry.is_alive(directory):
                _forget(experiment, directory)
        if isinstance(error, ConfigError):
            raise checked.located(error) from None
        if type(error) is NniliteError:
            raise NniliteError(checked.spell(str(error))) from None
        raise


def _check_is_new(experiment: str, directory: Path) -> None:
    """Check that no experiment has this id, in whichever folder: it would be forgotten. Raises: Conflict."""
    if os.path.lexists(directory):
        raise _explain_not_new(experiment, directory)
    known = registry.entry(experiment)
    if known is not None and is_folder(known.directory):
        raise _explain_not_new(experiment, known.directory)


def _explain_not_new(experiment: str, directory: Path) -> Conflict:
    cure = f"resume it (`nnictl resume {experiment}`, or run_or_resume() in Python), or choose another id"
    return Conflict(f"Experiment {experiment} exists already, in {directory}; {cure}.")


def _forget(experiment: str, directory: Path) -> None:
    registry.remove(experiment)
    shutil.rmtree(directory, ignore_errors=True)


def _make(config: CheckedConfig, experiment: str, directory: Path) -> None:
    from nnilite.config import stored

    make_folder(directory)
    write_json(directory / "config.json", stored(config))
    platform = ",".join(dict.fromkeys(platform for _, platform, _ in config.services))
    registry.add(experiment, config.experiment_name or "", directory, platform, time.time())


def make_folder(directory: Path) -> None:
    """Make the folder of an experiment, and those above it. Raises: ConfigError; FileExistsError."""
    try:
        make_own_folder(directory, exist_ok=False)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(
            f"the folder {str(directory)!r} cannot be made ({error.strerror}); give a folder that you may write to",
            Place(field="experimentWorkingDirectory"),
        ) from error


@contextlib.contextmanager
def hold_interrupts(again: bool = True) -> Iterator[None]:
    """Hold signal handlers back until the block's end, so that nothing is left half done.

    They may raise anything, as that of Ctrl-C and those of time limits do. Without `again`, Ctrl-C is then dropped.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers only run in the main thread
        return
    came: dict[int, None] = {}
    with contextlib.ExitStack() as handlers:
        for number in signal.valid_signals():
            before = signal.getsignal(number)
            if callable(before):
                handlers.callback(signal.signal, number, before)
                signal.signal(number, lambda number, frame: came.setdefault(number))
        yield
    if not again:
        came.pop(signal.SIGINT, None)
    with contextlib.ExitStack() as held:  # a handler that raises does not keep the others from being called
        for missed in came:
            held.callback(signal.raise_signal, missed)


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
        raise Conflict(registry.explain_no_resume(entry.id))
    if entry.search:
        raise Conflict(search_folder.explain_no_resume_of_search(entry.id, entry.directory))
    return _start(entry.id, entry.directory, "resume", options or ManagerOptions(), detach, packing)


def view(entry: RegistryEntry, *, options: ManagerOptions | None = None, detach: bool = True) -> RegistryEntry:
    """Serve an experiment read-only, also one of NNI. Raises: NniliteError if it has a manager or cannot start."""
    if entry.origin is not None and not entry.alive:
        from nnilite._nni import nni_import

        nni_import.prepare(entry.origin, entry.directory)
    return _start(entry.id, entry.directory, "view", options or ManagerOptions(), detach)


def token(entry: RegistryEntry) -> str | None:
    """Return the token for the experiment's REST interface, if there is one that this user may read.

    Raises: DamagedFile, UnreadableFile.
    """
    try:
        return read_token(entry.directory) if os.access(entry.directory / "token", os.R_OK) else None
    except FileNotFoundError:
        return None


def new_id() -> str:
    """Return 8 characters of [a-z0-9], beginning with a letter."""
    letters = string.ascii_lowercase
    return secrets.choice(letters) + "".join(secrets.choice(letters + string.digits) for _ in range(7))


def _start(
    experiment: str,
    directory: Path,
    mode: str,
    options: ManagerOptions,
    detach: bool,
    packing: Progress | None = None,
    process: ManagerProcess | None = None,
) -> RegistryEntry:
    _refuse_archive()
    if directory.is_dir() and not os.access(directory, os.W_OK):
        raise Conflict(
            f"a manager of experiment {experiment} has to write to {directory}, and you may not; commands that only "
            f"read work, such as `nnictl trial ls {experiment}`. Else copy that folder into one of yours, and set "
            "NNILITE_HOME to the latter"
        )
    registry.make_folders(directory)
    log_path = directory / "log" / "manager.log"
    words = ["--directory", str(directory), "--mode", mode, "--log", str(log_path), *options.words()]
    words += ["--detach"] if detach else ["--with-parent"]
    is_alive = partial(registry.is_alive, directory)
    with contextlib.ExitStack() as kept:
        with hold_interrupts():
            process = kept.enter_context(process or manager_process.start_standby())
        try:
            process.begin(words, detach=detach)
            answer = process.answer(packing)
        except BaseException as error:
            with hold_interrupts(again=not isinstance(error, KeyboardInterrupt)):
                if not process.is_ready():
                    process.end(is_alive)
            raise
        if answer is None:
            process.end(is_alive)
            answer = {
                "error": f"the manager was not ready after {manager_process.READY_TIMEOUT_S:.0f} s without a message",
                "tail": "yes",
            }
        if "error" in answer:
            process.reap()
            raise _refusal(answer, _content(log_path) or process.early_words())
        process.keep()
    # Where the disk did not take the manager's address, its file has none yet, or that of the manager before.
    return replace(registry.find(experiment), url=answer["url"], port=urlsplit(answer["url"]).port)


def _refuse_archive() -> None:
    """Raise an error if this package is in an archive: workers get copies of its files. Raises: NniliteError."""
    package = Path(__file__).parents[1]
    if not package.is_dir():
        archive = next(folder for folder in package.parents if folder.exists())
        cure = "install nnilite into a virtual environment, such as by pipx or `uv tool install`, and run it from there"
        raise NniliteError(f"nnilite cannot run experiments from within the archive {archive}; {cure}")


def _content(log_path: Path) -> bytes:
    try:
        return log_path.read_bytes()
    except OSError:
        return b""


def _refusal(answer: dict[str, str], output: bytes) -> NniliteError:
    text = answer["error"]
    if "tail" in answer and output:
        tail = output[-_LOG_TAIL_BYTES:].decode(errors="replace")
        text += f"; its last output:\n{tail}{explain_missing_package(tail)}"
    if "field" in answer:
        return ConfigError(text, Place(field=answer["field"]))
    return Conflict(text) if answer.get("kind") == "conflict" else NniliteError(text)
