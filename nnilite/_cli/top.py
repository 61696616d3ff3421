"""Watch the running experiments of this machine; Ctrl-C ends only this display."""

from __future__ import annotations

import argparse
import time

from nnilite import _registry
from nnilite._cli import arguments, progress_text, screen
from nnilite._registry import RegistryEntry
from nnilite._running import managers
from nnilite.errors import NniliteError

COLUMNS = ("ID", "NAME", "STATE", "DONE", "RUNNING", "WAITING", "FAILED", "BEST", "TIME", "URL")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t", "--time", type=arguments.positive, default=3, metavar="SECONDS", help="time between updates (default 3)"
    )
    arguments.json_argument(parser, "print JSON, once")
    parser.set_defaults(command=top)


def top(options: argparse.Namespace) -> None:
    if options.json:
        screen.show_json([_as_json(entry) for entry in _registry.entries() if entry.alive])
        return
    if not screen.on_terminal():
        _show()
        return
    try:
        while True:
            print("\033[H\033[2J", end="")
            _show()
            time.sleep(options.time)
    except KeyboardInterrupt:
        return


def _show() -> None:
    rows = [_row(entry) for entry in _registry.everything() if entry.alive]
    screen.show_table(COLUMNS, rows, "No experiment is running.", spare=("TIME", "WAITING", "NAME", "BEST", "FAILED"))


def _as_json(entry: RegistryEntry) -> dict[str, object]:
    """What a manager says of its experiment, or why it says nothing."""
    try:
        with managers.connect(entry) as manager:
            profile = manager.profile()
    except NniliteError as error:
        return {"id": entry.id, "name": entry.name, "state": entry.state, "url": entry.url, "error": str(error)}
    wanted = ("id", "name", "state", "reason", "counts", "limits", "best", "objectives", "duration", "waiting", "url")
    return {name: profile.get(name) for name in wanted}


def _row(entry: RegistryEntry) -> tuple[object, ...]:
    try:
        with managers.connect(entry) as manager:
            profile = manager.profile()
    except NniliteError as error:
        return (entry.id, entry.name, entry.state, "", "", "", "", str(error), "", entry.url)
    counts = profile["counts"]
    numbers = tuple(counts.get(state, 0) for state in ("RUNNING", "WAITING", "FAILED"))
    span = screen.span(profile["duration"])
    return (
        entry.id,
        entry.name,
        profile["state"],
        progress_text.done(profile),
        *numbers,
        progress_text.best(profile),
        span,
        entry.url,
    )
