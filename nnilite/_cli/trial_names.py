"""The trials that a command is about, by their ids or by the numbers that tables and the web page show.

An id begins with a letter, so a number is never one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nnilite._experiments import registry
from nnilite._running.manager_client import Client
from nnilite.errors import ConfigError


def add(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the trial, or the `several` trials, that a command needs, and the experiment."""
    trials = "TRIAL [TRIAL ...]" if several else "TRIAL"
    parser.add_argument(
        "names",
        nargs="*",
        default=[],
        metavar="NAME",
        help=f"[ID] {trials}: the trial's number or id; before it the experiment's id (default: the only running one)",
    )
    name = "trials" if several else "trial"
    parser.add_argument(
        *("-T", "--trial", "--trial-id", "--trial_id"),
        nargs="+" if several else None,
        metavar="TRIAL",
        dest=name,
        help="the same, as in NNI",
    )
    parser.set_defaults(needs=name, id=None)


def settle(options: argparse.Namespace) -> None:
    """Divide the arguments into the experiment and its trials; with -T they are the experiment alone.

    Raises: ConfigError if no trial is named, or too many are.
    """
    needed = vars(options).pop("needs", None)
    names = getattr(options, "names", [])
    if not names and options.id is None:
        _take_last_as_experiment(options)
    if needed is None:
        return
    given = [option for option, name in (("-T", needed), ("--best", "best")) if getattr(options, name, None)]
    if given:
        _take_experiment(options, names, given)
        return
    if len(names) > 1 and not names[0].isdecimal():
        options.id, names = names[0], names[1:]
    if not names:
        raise ConfigError("say which trial, by its number or id: for example 5, or with -T")
    if options.id is None and len(names) == 1 and _is_experiment(names[0]):
        raise ConfigError(f"say which trial of experiment {names[0]}, by its number or id: for example {names[0]} 5")
    if needed == "trial" and len(names) > 1:
        raise ConfigError(f"give one trial, after the id of the experiment, not {' '.join(names)}")
    setattr(options, needed, names if needed == "trials" else names[0])


def _take_experiment(options: argparse.Namespace, names: Sequence[str], given: Sequence[str]) -> None:
    """Take the experiment from the names where an option names or chooses the trials."""
    if len(given) > 1:
        raise ConfigError("-T names the trials, and --best chooses them: give one of the two")
    if len(names) > 1:
        raise ConfigError(f"{given[0]} names the trials, so give only the experiment besides, not {' '.join(names)}")
    options.id = names[0] if names else options.id


def _take_last_as_experiment(options: argparse.Namespace) -> None:
    """Take an experiment's id from the end of what -T got: in `-T 0 ID`, it takes the id for another trial."""
    trials = getattr(options, "trials", None)
    if isinstance(trials, list) and len(trials) > 1 and _is_experiment(trials[-1]):
        options.id = trials.pop()


def _is_experiment(name: str) -> bool:
    return any(one.id == name for one in registry.list_all())


def resolve(options: argparse.Namespace, manager: Client) -> None:
    """Replace the numbers of trials by their ids. Raises: NotFound."""
    if getattr(options, "trial", None):
        options.trial = manager.trial_id(options.trial)
    if getattr(options, "trials", None):
        options.trials = [manager.trial_id(one) for one in options.trials]
