"""Watch the running experiments of this machine; Ctrl-C ends only this display."""

from __future__ import annotations

import argparse
import time
from typing import Any

from nnilite._cli import arguments, progress_text, screen, summary
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import managers
from nnilite.errors import NniliteError

COLUMNS = ("ID", "NAME", "STATE", "DONE", "RUNNING", "WAITING", "FAILED", "BEST", "TIME", "URL")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t", "--time", type=arguments.positive, default=3, metavar="SECONDS", help="time between updates (default 3)"
    )
    arguments.add_json_argument(parser, "print JSON, once")
    parser.set_defaults(command=top)


def top(options: argparse.Namespace) -> None:
    if options.json:
        screen.show_json([_as_json(entry) for entry in registry.entries() if entry.alive])
        return
    if not screen.is_terminal():
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
    asked = [(entry, _profile(entry)) for entry in registry.list_all() if entry.alive]
    rows = [_row(entry, profile) for entry, profile in asked]
    screen.show_table(COLUMNS, rows, "No experiment is running.", spare=("TIME", "WAITING", "NAME", "BEST", "FAILED"))
    for entry, profile in asked:
        if isinstance(profile, NniliteError):
            continue
        for trouble in summary.service_troubles(profile).values():
            print(f"{entry.id}: {trouble}")
        for note in summary.notes(profile):
            print(f"{entry.id} on {note}")


def _profile(entry: RegistryEntry) -> dict[str, Any] | NniliteError:
    """Return a manager's report on its experiment, or why there is none."""
    try:
        with managers.connect(entry) as manager:
            return manager.profile()
    except NniliteError as error:
        return error


def _as_json(entry: RegistryEntry) -> dict[str, object]:
    profile = _profile(entry)
    if isinstance(profile, NniliteError):
        return {"id": entry.id, "name": entry.name, "state": entry.state, "url": entry.url, "error": str(profile)}
    wanted = (
        "id",
        "name",
        "state",
        "reason",
        "counts",
        "limits",
        "best",
        "objectives",
        "duration",
        "waiting",
        "services",
        "url",
    )
    return {**{name: profile.get(name) for name in wanted}, "notes": summary.notes(profile)}


def _row(entry: RegistryEntry, profile: dict[str, Any] | NniliteError) -> tuple[object, ...]:
    if isinstance(profile, NniliteError):
        return (entry.id, entry.name, entry.state, "", "", "", "", str(profile), "", entry.url)
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
