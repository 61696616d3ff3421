"""Start an experiment from a configuration file.

It runs in the background until it is stopped; with --foreground its progress is shown here until it is done, and
Ctrl-C stops it. With --dry-run nothing is started: everything is checked, the code is packed, and what would be sent
is printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nnilite._cli import access, screen
from nnilite._registry import Entry


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration file (YAML)")
    access.manager_arguments(parser)
    parser.add_argument("-f", "--foreground", action="store_true", help="show the progress here until it is done")
    parser.add_argument("--dry-run", action="store_true", help="check everything and print what would be done")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=create)


def create(options: argparse.Namespace) -> int:
    from nnilite import _launch
    from nnilite._cli.program import warn
    from nnilite.config import load

    manager = access.manager_options(options)
    config = load(options.config).checked()
    config.check_algorithms()
    for warning in config.warnings:
        warn(warning)
    if options.dry_run:
        from nnilite._cli import dryrun

        return dryrun.show(config, manager, as_json=options.json)
    entry = _launch.create(config, options=manager, detach=not options.foreground)
    if options.foreground:
        from nnilite._cli import foreground

        return foreground.follow(entry, as_json=options.json)
    return started(entry, as_json=options.json)


def started(entry: Entry, *, as_json: bool) -> int:
    """Say where an experiment runs, and what can be done with it."""
    if as_json:
        screen.show_json({"id": entry.id, "url": entry.url, "directory": str(entry.directory)})
        return 0
    print(f"Experiment {entry.id} is running.")
    screen.show_facts({"Web page": entry.url, "Kept in": entry.directory})
    print(f"Watch it with `nnictl trial ls {entry.id}`, stop it with `nnictl stop {entry.id}`.")
    return 0
