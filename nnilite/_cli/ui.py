"""Serve one page for all your experiments on this machine, until you press Ctrl-C. The experiments continue.

If it is already being served, print its address, with a sign-in that works once within ten minutes.
"""

from __future__ import annotations

import argparse
import sys

from nnilite._cli import access, arguments, screen


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_manager_arguments(parser, default_port="8070, or the next free one")
    parser.add_argument(
        "--require-token",
        action="store_true",
        help="require the token with every request, even from you on this machine",
    )
    arguments.add_json_argument(parser)
    parser.set_defaults(command=ui)


def ui(options: argparse.Namespace) -> None:
    from nnilite._hub import hub_server

    def tell(address: str) -> None:
        if options.json:
            screen.show_json({"url": address})
        else:
            print(f"The page of all experiments: {address}\nCtrl-C closes the page; experiments continue.")
        sys.stdout.flush()

    asked = access.read_manager_options(options)
    running = hub_server.find_served_address()
    if running is not None:
        if options.json:
            screen.show_json({"url": running})
        else:
            print(f"The page of all experiments is already served: {running}")
        return
    hub_server.run(asked, require_token=options.require_token, ready=tell)
