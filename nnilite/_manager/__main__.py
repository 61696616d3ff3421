"""The manager's program: `python -m nnilite._manager --directory DIR --mode create|resume|view ...`.

`nnilite._running.manager_process` starts it with `--stand-by FD`, and sends these words later to its standard input. It
writes JSON lines to FD, in which `ready_pipe` reports the progress of the start.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from dataclasses import fields
from pathlib import Path

from nnilite._experiments import registry, search_folder
from nnilite._experiments.locking import ManagerLock
from nnilite._experiments.manager_options import ManagerOptions
from nnilite._keeper.command_start import find_cure
from nnilite._keeper.niceness import raise_priority
from nnilite._logging.secret_filter import SecretFilter
from nnilite._logging.terminal_text import LogFormatter
from nnilite._manager import standby
from nnilite._manager.manager_run import manage
from nnilite._manager.ready_pipe import ReadyPipe
from nnilite._manager.served_experiment import ServedExperiment
from nnilite._manager.tuner_copy import TunerCopy, copy_for_tuner
from nnilite._manager.viewing import view, view_nni
from nnilite._nni import nni_import
from nnilite._plugins import lookup
from nnilite._side_processes.quick_end import run_program
from nnilite._store.database_file import FILE_NAME, refuse_newer_database
from nnilite.errors import ConfigError, Conflict, NniliteError, explain_os_error

log = logging.getLogger("nnilite.manager")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nnilite._manager")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--mode", choices=["create", "resume", "view"], required=True)
    parser.add_argument("--port", type=int, help="default: 8080, or the next free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--url-prefix", default="")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--log", type=Path, help="where all output goes")
    parser.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    parser.add_argument(
        "--detach", action="store_true", help="continue in the background, independent of the parent process"
    )
    parser.add_argument("--debug", action="store_true")
    return parser.parse_args(arguments)


async def serve(
    options: argparse.Namespace, ready_pipe: ReadyPipe, lock: ManagerLock, copy: TunerCopy | None = None
) -> list[str]:
    """Run or show an experiment until this process is stopped. Raises: NniliteError.

    Return the command line with which this process continues, [] if it ends.
    """
    directory, mode = options.directory, options.mode
    reached = ManagerOptions(**{field.name: getattr(options, field.name) for field in fields(ManagerOptions)})
    served = ServedExperiment(directory, mode, reached, ready_pipe, with_parent=options.with_parent)
    if nni_import.is_copy(directory):
        if mode != "view":
            raise Conflict(registry.explain_no_resume(directory.name))
        return await view_nni(served)
    if mode == "resume" and search_folder.is_search(directory):
        raise Conflict(search_folder.explain_no_resume_of_search(directory.name, directory))
    registry.make_folders(directory)
    refuse_newer_database(directory / FILE_NAME)
    if mode == "view":
        return await view(served)
    await manage(served, lock, copy)
    return []


def configure_logging(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(SecretFilter())
    handler.setFormatter(LogFormatter("[%(asctime)s] %(levelname)s (%(name)s) %(message)s", "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])


async def main(options: argparse.Namespace, copy: TunerCopy | None = None) -> int:
    ready_pipe = ReadyPipe(options.ready_fd)
    try:
        with registry.lock(options.directory) as lock:
            next_command = await serve(options, ready_pipe, lock, copy)
    except (NniliteError, OSError) as error:
        log.error("%s", error)
        ready_pipe.answer(_refusal(error))
        return 1
    except RuntimeError as error:
        cure = find_cure(error)
        if not cure:
            raise
        sentence = f"the manager cannot start a thread on this machine{cure}"
        log.error("%s", sentence)
        ready_pipe.answer({"error": sentence, "kind": "other"})
        return 1
    if next_command:
        log.info("resuming the experiment")
        os.execv(sys.executable, next_command)
    return 0


def _refusal(error: NniliteError | OSError) -> dict[str, str]:
    """Return the answer to the process that started this one. It may know the line of a field in the config's file."""
    if isinstance(error, ConfigError) and error.place.field and not error.place.file:
        return {"error": error.message, "kind": "other", "field": error.place.field}
    sentence = explain_os_error(error) if isinstance(error, OSError) else str(error)
    return {"error": sentence, "kind": "conflict" if isinstance(error, Conflict) else "other"}


def begin(words: list[str]) -> int:
    """Become the manager that a command line describes. Return the exit code."""
    if words[:1] == ["--stand-by"]:
        lookup.installed()  # to find them takes a while, too
        arguments = standby.await_arguments()
        if not arguments:
            return 0
        words = [*arguments, "--ready-fd", words[1]]
    options = parse(words)
    if options.log is not None:
        try:
            standby.write_to(options.log)
        except OSError as error:
            ReadyPipe(options.ready_fd).answer({"error": f"{options.log}: {error.strerror}", "kind": "other"})
            return 1
    configure_logging(options.debug)
    raise_priority()  # a detached process does not lead its session any more
    if options.detach:
        standby.hear_nothing()
        if os.fork():
            os._exit(0)
    copy = None if options.mode == "view" else copy_for_tuner(options.directory)
    # The event loop and the store's thread wait for each other all the time, by default up to 5 ms.
    sys.setswitchinterval(0.0005)
    return asyncio.run(main(options, copy))


if __name__ == "__main__":
    run_program(lambda: begin(sys.argv[1:]))
