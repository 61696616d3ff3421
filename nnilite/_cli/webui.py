"""Print the address of an experiment's web page. If a token is needed, it signs you in, once, within ten minutes.

A stopped experiment is opened read-only for it; its manager ends by itself after `idleTimeout`.
"""

from __future__ import annotations

import argparse

from nnilite._cli import access, arguments, screen
from nnilite._cli.nnictl import warn
from nnilite._running import launch, managers


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    address = groups.add_parser("url", help="print the address")
    arguments.add_experiment_argument(address)
    arguments.add_json_argument(address)
    address.set_defaults(command=url)


def url(options: argparse.Namespace) -> None:
    entry = access.find(options)
    if not entry.alive:
        entry = launch.view(entry)
        warn(f"Experiment {entry.id} is not running; it is open read-only now. `nnictl stop {entry.id}` closes it.")
    with managers.connect(entry) as manager:
        link = manager.sign_in_link()
    if options.json:
        screen.show_json({"id": entry.id, "url": link})
    else:
        print(link)
