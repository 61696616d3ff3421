"""`nnictl trial again`: runs the parameters of a trial, or of the best ones, as new trials."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable
from typing import Any

from nnilite._cli import access, arguments, screen, summary, trial_names
from nnilite._running.manager_client import Client
from nnilite.errors import ConfigError
from nnilite.records import TrialState

_POLL_S = 0.5


def add(groups: Any) -> None:
    """Add the command to those of `nnictl trial`."""
    parser = groups.add_parser("again", help="run a trial's parameters as a new trial, and show both results")
    trial_names.add(parser)
    parser.add_argument(
        "--best",
        type=arguments.positive,
        metavar="N",
        help="instead of a trial: run the parameters of the N best, and show the means of all results with them",
    )
    parser.add_argument("--timeout", type=arguments.positive, metavar="S", help="seconds to wait; default: to its end")
    arguments.add_json_argument(parser)
    parser.set_defaults(command=run_again)


def run_again(options: argparse.Namespace) -> None:
    """Add trials with the parameters of others, wait for their ends, and print all results."""
    with access.running(options) as manager:
        before = [manager.trial(options.trial)] if options.best is None else _find_best(manager, options.best)
        added = [manager.add_trial(one["parameters"]) for one in before]
        if not options.json:
            for one, new in zip(before, added, strict=True):
                print(f"Trial {new['id']} (no. {new['sequence']}) has the parameters of {one['id']}.")
        after = _wait_for_ends(manager, [new["id"] for new in added], options.timeout)
        if options.best is None:
            _show_both(manager, [*before, *after], options.json)
        else:
            _warn_of_others(after)
            _show_means(manager, before, options.json)


def _find_best(manager: Client, count: int) -> list[dict[str, Any]]:
    """Return the best trials, one for each set of parameters. Raises: ConfigError."""
    profile = manager.profile()
    if summary.has_several_objectives(profile):
        raise ConfigError("--best: with several objectives no trial is the best; name one of `nnictl trial ls --front`")
    best: dict[str, dict[str, Any]] = {}
    for trial, _ in _rank(manager, profile):
        best.setdefault(_identity(trial), trial)
        if len(best) == count:
            break
    if not best:
        raise ConfigError("--best: no trial has succeeded yet")
    return list(best.values())


def _rank(manager: Client, profile: dict[str, Any]) -> Iterable[tuple[dict[str, Any], float]]:
    """Return the feasible trials that have a metric, and this, the best first."""
    from nnilite.tuner import scalar

    descending = profile["optimize"] == "maximize"
    for trial in manager.trials(states=[TrialState.SUCCEEDED.value], sort="value", descending=descending):
        value = scalar(trial["value"])
        if value is not None and not trial["violates"]:
            yield trial, value


def _identity(trial: dict[str, Any]) -> str:
    from nnilite.tuning.learning import canonical

    return canonical(trial["parameters"])


def _wait_for_ends(manager: Client, trials: list[str], limit_s: float | None) -> list[dict[str, Any]]:
    """Return trials at their ends, at the time limit, or when their experiment ends before."""
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    while True:
        is_over = manager.profile()["state"] in ("ERROR", "STOPPED")
        found = [manager.trial(trial) for trial in trials]
        if all(one["ended"] for one in found) or is_over or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_S)


def _show_both(manager: Client, both: list[dict[str, Any]], is_json: bool) -> None:
    if is_json:
        screen.show_json(both)
        return
    latest = [summary.find_latest(one, manager.metrics(one["id"])) for one in both]
    rows = [
        (one["id"], one["state"], summary.show_metric(one["value"], last), one["reason"])
        for one, last in zip(both, latest, strict=True)
    ]
    screen.show_table(("TRIAL", "STATE", "METRIC", "REASON"), rows, "")


def _warn_of_others(trials: list[dict[str, Any]]) -> None:
    """Name the trials that the means lack."""
    from nnilite._cli.nnictl import warn

    for one in trials:
        if one["state"] != TrialState.SUCCEEDED.value:
            warn(f"trial {one['id']} is {one['state']}{screen.brief(': ' + one['reason'] if one['reason'] else '')}")


def _show_means(manager: Client, before: list[dict[str, Any]], is_json: bool) -> None:
    """Show the results of all trials with the parameters of these ones, by their mean."""
    profile = manager.profile()
    values: dict[str, list[float]] = {_identity(one): [] for one in before}
    for trial, value in _rank(manager, profile):
        if _identity(trial) in values:
            values[_identity(trial)].append(value)
    found = [
        {"trial": one["id"], "parameters": one["parameters"], "values": known, "mean": math.fsum(known) / len(known)}
        for one in before
        if (known := values[_identity(one)])
    ]
    found.sort(key=lambda one: one["mean"], reverse=profile["optimize"] == "maximize")
    if is_json:
        screen.show_json(found)
        return
    rows = [
        (
            one["trial"],
            screen.number(one["mean"]),
            " ".join(map(screen.number, one["values"])),
            screen.parameters(one["parameters"]),
        )
        for one in found
    ]
    screen.show_table(("TRIAL", "MEAN", "METRICS", "PARAMETERS"), rows, "", spare=("PARAMETERS",))
