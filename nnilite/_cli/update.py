"""Change an experiment while it runs.

If you raise the number of trials, the duration, the budget or the wanted result of one that is DONE, it continues.
Lowering the concurrency or the slots ends no trial.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnilite._cli import access, arguments, screen

_KINDS: dict[str, Callable[[str], Any]] = {
    "duration": str,
    "trialduration": str,
    "maxcost": arguments.amount,
    "stopatvalue": arguments.finite,
    "priority": int,
}


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    space = groups.add_parser("searchspace", help="the search space, from a JSON or YAML file")
    arguments.add_experiment_argument(space)
    space.add_argument("-f", "--filename", type=Path, required=True, metavar="FILE")
    arguments.add_json_argument(space)
    space.set_defaults(command=search_space)
    for name, field, help_text in (
        ("concurrency", "trialConcurrency", "how many trials run at once"),
        ("trialnum", "maxTrialNumber", "how many trials to run in total"),
        ("duration", "maxExperimentDuration", "how long the experiment may run: seconds, or 10m, 0.5h, 2d"),
        ("trialduration", "maxTrialDuration", "how long a trial may run before it is cancelled"),
        ("maxcost", "maxCost", "how much the experiment may cost, at the services' prices"),
        ("stopatvalue", "stopAtValue", "the result at which no further trials start"),
        ("maxslots", "maxSlots", "how many trials run at once, in all experiments that share slots"),
        ("priority", "priority", "among experiments that share slots, higher ones are served first"),
    ):
        one = groups.add_parser(name, help=help_text)
        arguments.add_experiment_argument(one)
        one.add_argument(
            "-v", "--value", type=_KINDS.get(name, arguments.positive), required=True, help="the new value"
        )
        arguments.add_json_argument(one)
        one.set_defaults(command=limit, field=field)


def limit(options: argparse.Namespace) -> None:
    from nnilite._cli.nnictl import warn

    value = options.value
    if isinstance(value, str):
        value = _duration(value)
    with access.running(options) as manager:
        profile = manager.update(**{options.field: value})
    if options.json:
        screen.show_json(profile["limits"])
        return
    print(f"{options.field} is now {options.value}.")
    trials = profile["nextSequence"]
    if options.field == "maxTrialNumber" and value < trials:
        warn(f"the experiment has {trials} trials already; all of them stay, and no more will start")


def _duration(text: str) -> int:
    from nnilite.errors import ConfigError
    from nnilite.units import parse_duration_s

    try:
        return parse_duration_s(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise ConfigError(f"--value {text}: {error}") from error


def search_space(options: argparse.Namespace) -> None:
    from nnilite.config.text import read_space
    from nnilite.errors import ConfigError, Place

    space, _ = read_space(options.filename)
    if not isinstance(space, dict):
        raise ConfigError("is not a search space: write an object of parameters", Place(str(options.filename)))
    inner = space.get("searchSpace")
    if isinstance(inner, dict) and "_type" not in inner:  # the configuration of an experiment
        space = inner
    with access.running(options) as manager:
        profile = manager.update(searchSpace=space)
    if options.json:
        screen.show_json(profile["searchSpace"])
        return
    print("The search space is changed; trials that were proposed before keep their parameters.")
