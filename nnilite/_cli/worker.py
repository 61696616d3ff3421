"""Offer this machine to a pool of workers, and run its trials here; or see who has joined.

    nnictl worker --redis rediss://host:6379/0 --processors 2 --labels gpu=a100
    nnictl worker list --redis rediss://host:6379/0

The password is read from the environment variable NNILITE_REDIS_PASSWORD, or from a file (--password-file). After a
first SIGTERM or Ctrl-C, a worker accepts no more trials and ends when its running trials have ended. After a second
one, it ends them, too.
"""

from __future__ import annotations

import argparse
import logging

from nnilite._cli import arguments, screen
from nnilite._logging.terminal_text import TerminalFormatter
from nnilite._plugins import lookup
from nnilite._plugins.lookup import WorkerProgram
from nnilite.errors import PluginError
from nnilite.records import Host

_COLUMNS = ("WORKER", "STATE", "TRIALS", "PROCESSORS", "GPUS", "LABELS", "LAST ERROR")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", choices=("run", "list"), default="run", help="run: join (default); list: who has joined"
    )
    arguments.add_json_argument(parser, "with list: print JSON")
    programs = list(lookup.find_worker_programs().values())
    if len(programs) != 1:
        raise PluginError(f"there are {len(programs)} worker programs installed, where one is needed")
    programs[0].add(parser)
    parser.set_defaults(command=lambda options: carry_out(programs[0], options))


def carry_out(program: WorkerProgram, options: argparse.Namespace) -> int:
    """Join, or list. Return the exit code."""
    if options.what == "run":
        handler = logging.StreamHandler()
        handler.setFormatter(TerminalFormatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        return program.work(options)
    hosts = program.workers(options)
    if options.json:
        screen.show_json([_as_json(host) for host in hosts])
        return 0
    screen.show_table(_COLUMNS, [_row(host) for host in hosts], "No worker has joined.")
    waiting = next((host.details["queue"] for host in hosts if "queue" in host.details), None)
    if waiting is not None:
        print(f"{waiting} {'trial waits' if waiting == 1 else 'trials wait'} in the queue.")
    return 0


def _row(host: Host) -> tuple[object, ...]:
    details = host.details
    labels = ", ".join(map(str, details.get("labels") or ()))
    return host.name, host.state, host.running, details.get("processors"), details.get("gpus"), labels, host.reason


def _as_json(host: Host) -> dict[str, object]:
    facts = {"name": host.name, "state": host.state, "reason": host.reason, "running": host.running}
    return {**facts, "details": dict(host.details)}
