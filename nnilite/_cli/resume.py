"""Go on with a stopped experiment, where it left off."""

from __future__ import annotations

import argparse

from nnilite._cli import access


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="id of the experiment, or its start")
    access.manager_arguments(parser)
    parser.add_argument("-f", "--foreground", action="store_true", help="show the progress here until it is done")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=resume)


def resume(options: argparse.Namespace) -> int:
    from nnilite import _launch
    from nnilite._cli import create

    entry = access.find(options)
    entry = _launch.resume(entry, options=access.manager_options(options), detach=not options.foreground)
    if options.foreground:
        from nnilite._cli import foreground

        return foreground.follow(entry, as_json=options.json)
    return create.started(entry, as_json=options.json)
