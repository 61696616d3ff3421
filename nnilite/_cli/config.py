"""The configuration of an experiment as it runs, and what a configuration may contain."""

from __future__ import annotations

import argparse

from nnilite._cli import access, screen


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    one = groups.add_parser("show", help="the configuration of an experiment, as JSON, without its secrets")
    access.experiment_argument(one)
    one.set_defaults(command=show)
    fields = groups.add_parser("schema", help="the JSON Schema of configurations, for editors")
    fields.set_defaults(command=schema)
    for parser in (one, fields):
        parser.add_argument("--json", action="store_true", help="print JSON, as it does in any case")


def show(options: argparse.Namespace) -> None:
    with access.reading(options) as manager:
        screen.show_json(manager.profile()["config"])


def schema(options: argparse.Namespace) -> None:
    from nnilite.config import json_schema

    screen.show_json(json_schema())
