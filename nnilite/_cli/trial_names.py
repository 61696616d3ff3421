"""The trials that a command is about, by their ids or by the numbers that tables and the web page show.

An id begins with a letter, so a number is never one.
"""

from __future__ import annotations

import argparse

from nnilite._running.manager_client import Client
from nnilite.errors import ConfigError


def add(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the trial, or the `several` trials, that a command needs, and the experiment."""
    parser.add_argument(
        "id",
        nargs="?",
        metavar="TRIAL",
        help="number or id of the trial; with -T: id of the experiment (default: the only one that runs)",
    )
    name = "trials" if several else "trial"
    parser.add_argument("-T", "--trial-id", "--trial_id", nargs="+" if several else None, metavar="TRIAL", dest=name)
    parser.set_defaults(needs=name)


def settle(options: argparse.Namespace) -> None:
    """Take the only argument for the trial where no -T is given. Raises: ConfigError if there is neither."""
    name = getattr(options, "needs", None)
    if name is None or getattr(options, name):
        return
    if options.id is None:
        raise ConfigError("say which trial, by its number or id: for example `nnictl trial show 5`, or with -T")
    setattr(options, name, [options.id] if name == "trials" else options.id)
    options.id = None


def resolve(options: argparse.Namespace, manager: Client) -> None:
    """Replace the numbers of trials by their ids. Raises: NotFound."""
    if getattr(options, "trial", None):
        options.trial = manager.trial_id(options.trial)
    if getattr(options, "trials", None):
        options.trials = [manager.trial_id(one) for one in options.trials]
