"""Open a stopped experiment read-only, to look at its web page; `nnictl stop` closes it again."""

from __future__ import annotations

import argparse

from nnilite._cli import access, arguments, screen


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", help="id of the experiment, or its first letters, as `nnictl experiment list --all` shows it"
    )
    arguments.add_folder_argument(parser)
    arguments.add_manager_arguments(parser, arguments.FORMER_PORT)
    arguments.add_json_argument(parser)
    parser.set_defaults(command=view)


def view(options: argparse.Namespace) -> int:
    from nnilite._running import launch, managers

    entry = launch.view(access.find_with_folder(options), options=access.read_manager_options(options))
    if options.json:
        screen.show_json({"id": entry.id, "url": entry.url, "directory": str(entry.directory)})
    else:
        page = managers.find_page_address(entry)
        print(f"Experiment {entry.id} is open, read-only, at {page}; `nnictl stop {entry.id}` closes it.")
    return 0
