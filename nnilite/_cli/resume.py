"""Resume a stopped experiment where it left off."""

from __future__ import annotations

import argparse
from functools import partial

from nnilite._cli import access, arguments, progress_line
from nnilite._experiments.manager_state import find_manager_state


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", help="id of the experiment, or its first letters, as `nnictl experiment list --all` shows it"
    )
    arguments.add_folder_argument(parser)
    arguments.add_manager_arguments(parser, arguments.FORMER_PORT)
    parser.add_argument("-f", "--foreground", action="store_true", help="show the progress here until it is done")
    arguments.add_json_argument(parser)
    parser.set_defaults(command=resume)


def resume(options: argparse.Namespace) -> int:
    from nnilite._cli import create
    from nnilite._cli.config_source import list_changed
    from nnilite._cli.nnictl import warn
    from nnilite._running import launch

    stopped = access.find_with_folder(options)
    for path in list_changed(stopped.directory):
        warn(
            f"{path} has changed since the experiment was created, and a resume does not read it. `nnictl update` "
            "changes limits, concurrency and the search space; for all else create a new experiment, which learns from "
            f"this one by `searchFrom: [{stopped.id}]`."
        )
    former = find_manager_state(stopped.directory).port
    if options.foreground:
        from nnilite._cli import foreground
    try:
        with progress_line.shown("Starting", quiet=options.json) as work:
            entry = launch.resume(
                stopped,
                options=access.read_manager_options(options),
                detach=not options.foreground,
                packing=partial(create.packed, work),
            )
        if options.foreground:
            return foreground.follow(entry, as_json=options.json)
        done = "" if options.json else create.describe_end(entry)
        return create.started(entry, as_json=options.json, asked=options.port, former=former, done=done)
    except KeyboardInterrupt:
        return create.interrupted(stopped.id, foreground=options.foreground)
