"""Print the address of an experiment's web page. Where a token is needed, it signs you in, once, within ten minutes."""

from __future__ import annotations

import argparse

from nnilite._cli import access, screen
from nnilite._running import managers
from nnilite.errors import Conflict


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    address = groups.add_parser("url", help="print the address")
    access.experiment_argument(address)
    access.json_argument(address)
    address.set_defaults(command=url)


def url(options: argparse.Namespace) -> None:
    entry = access.find(options)
    if not entry.alive:
        raise Conflict(f"Experiment {entry.id} is not running; `nnictl view {entry.id}` opens it read-only.")
    with managers.connect(entry) as manager:
        link = manager.sign_in_link()
    if options.json:
        screen.show_json({"id": entry.id, "url": link})
    else:
        print(link)
