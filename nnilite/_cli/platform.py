"""The platforms on which trials can run: one training service each."""

from __future__ import annotations

import argparse

from nnilite._cli import arguments, screen
from nnilite._plugins import lookup
from nnilite.errors import PluginError


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    listing = groups.add_parser("list", help="list the installed training services")
    arguments.add_json_argument(listing)
    listing.set_defaults(command=show_list)


def show_list(options: argparse.Namespace) -> None:
    found = [_describe(name) for name in lookup.names(lookup.SERVICES)]
    if options.json:
        screen.show_json(found)
        return
    rows = [(row["name"], "yes" if row["usable"] else "no", row["description"]) for row in found]
    screen.show_table(("PLATFORM", "USABLE", "DESCRIPTION"), rows, "No training service is installed.")


def _describe(name: str) -> dict[str, object]:
    try:
        service = lookup.training_service_class(name)
    except PluginError as error:
        return {"name": name, "usable": False, "description": str(error)}
    return {"name": name, "usable": True, "description": find_first_line(service)}


def find_first_line(plugin: type) -> str:
    """Return the first line of a plugin's docstring."""
    return (plugin.__doc__ or "").strip().partition("\n")[0]
