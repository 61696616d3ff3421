"""Rehearse what spot nodes do: interrupt running trials at random, and report the cost.

An interrupted trial is tried again from its checkpoint, as if its machine had been lost. This does not count as one of
its further attempts (maxTrialRetries). Ctrl-C ends the drill, and the report is still printed.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from nnilite._cli import access, arguments, ctrl_c, screen
from nnilite._cli.drill_report import FAULTY, Report, TrialFindings, study, study_changes, summed
from nnilite._cli.drill_starts import list_changes
from nnilite._cli.trial_roles import read_roles
from nnilite._running.manager_client import Client
from nnilite.errors import Conflict, NniliteError, NotFound
from nnilite.records import DRILLED, TrialState, count_nodes

_UNITS_S = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
_RATE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*/\s*([a-z]+)\s*")
_HIGHEST_PER_S = 10.0
_OVER = ("DONE", "ERROR", "STOPPING", "STOPPED")
_LOOK_EVERY_S = 1.0
# A command has the grace of its experiment to end, and its service some seconds to report it.
_SETTLE_S = 60.0
_COMPARED = 20


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    one = groups.add_parser("interrupt", help="interrupt running trials at random, and report what was lost")
    arguments.add_experiment_argument(one)
    one.add_argument(
        "--rate",
        type=per_second,
        required=True,
        metavar="N/TIME",
        help="how many interruptions on average, such as 0.2/min",
    )
    one.add_argument(
        "--for",
        type=parse_span_s,
        dest="for_s",
        metavar="TIME",
        help="how long, such as 10m (default: until the experiment has ended)",
    )
    one.add_argument("--seed", type=int, metavar="N", help="seed that repeats the same random times and trials")
    one.set_defaults(command=interrupt_trials)
    report_parser = groups.add_parser("report", help="report what the drills of an experiment have cost so far")
    arguments.add_experiment_argument(report_parser)
    report_parser.set_defaults(command=report)
    for command in (one, report_parser):
        command.add_argument(
            "--step",
            default="step",
            metavar="NAME",
            help="the number in the intermediate results that counts their steps (default: step)",
        )
        arguments.add_json_argument(command)


def per_second(text: str) -> float:
    """Parse a rate such as 0.2/min, as interruptions per second."""
    found = _RATE.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write a number and a time, such as 0.2/min or 3/h")
    rate = float(found[1]) / _UNITS_S[found[2]]
    if not 0 < rate <= _HIGHEST_PER_S:
        raise argparse.ArgumentTypeError(f"{text!r}: a rate must be more than 0 and at most {_HIGHEST_PER_S:g}/s")
    return rate


def parse_span_s(text: str) -> int:
    """Parse a duration, in seconds."""
    from nnilite.units import parse_duration_s

    try:
        return parse_duration_s(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


class Drill:
    """Draws moments and trials. `clock` and `wait` are those of the machine, but for tests."""

    def __init__(
        self,
        manager: Client,
        rate_per_s: float,
        chance: random.Random,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.struck: list[tuple[str, int]] = []  # trials and attempts
        self.refusal = ""  # why the last one that was chosen goes on
        self.is_elastic = has_elastic_trials(manager)
        self._manager = manager
        self._rate, self._chance = rate_per_s, chance
        self._clock, self._wait = clock, wait

    def run(self, for_s: float | None) -> Iterator[dict[str, Any]]:
        """Interrupt trials until the time is over, or the experiment is; each one is given as it happens."""
        end = float("inf") if for_s is None else self._clock() + for_s
        due = self._clock() + self._chance.expovariate(self._rate)
        while (now := self._clock()) < end and self._manager.profile()["state"] not in _OVER:
            if now < due:
                self._wait(min(due - now, end - now, _LOOK_EVERY_S))
                continue
            # Counted from the last moment, not from now, a slow manager does not lower the rate.
            due += self._chance.expovariate(self._rate)
            trial = self._interrupt_one()
            if trial is not None:
                yield trial

    def settle(self) -> None:
        """Wait until the interrupted attempts have ended, for a limited time. Those of elastic trials continue."""
        end = self._clock() + (0 if self.is_elastic else _SETTLE_S)
        for trial, number in self.struck:
            while self._clock() < end and self._manager.trial(trial)["attempts"][number]["ended"] is None:
                self._wait(_LOOK_EVERY_S)

    def _interrupt_one(self) -> dict[str, Any] | None:
        running = self._manager.trials(states=[TrialState.RUNNING.value])
        # An interrupted attempt counts as running until its end is reported.
        found = [trial for trial in running if self.is_elastic or (trial["id"], trial["attempt"]) not in self.struck]
        if not found:
            return None
        victim = self._chance.choice(found)
        try:
            self._manager.interrupt(victim["id"])
        except (Conflict, NotFound) as error:  # mostly, it has ended since
            self.refusal = str(error)
            return None
        self.struck.append((victim["id"], victim["attempt"]))
        return victim


def interrupt_trials(options: argparse.Namespace) -> int:
    from nnilite._cli.nnictl import warn

    # The report needs the same experiment, which may no longer be the only running one by then.
    options.id = access.find(options).id
    stopped = False
    with access.running(options) as manager:
        drill = Drill(manager, options.rate, random.Random(options.seed))
        try:
            for trial in drill.run(options.for_s):
                if not options.json:
                    what = "loses a node" if drill.is_elastic else "is interrupted"
                    print(f"Trial {trial['id']} {what} in attempt {trial['attempt'] + 1}.", flush=True)
            drill.settle()
            if drill.refusal and not drill.struck:
                warn(f"Nothing was interrupted: {drill.refusal}")
        except KeyboardInterrupt:
            stopped = True
        except NniliteError as error:  # the manager has ended with its experiment, or is unreachable
            warn(f"The drill ends: {error}")
    code = _print_report(options, set(drill.struck))
    return ctrl_c.INTERRUPTED if stopped else code


def report(options: argparse.Namespace) -> int:
    return _print_report(options, None)


def _print_report(options: argparse.Namespace, struck: set[tuple[str, int]] | None) -> int:
    """Print the report on these attempts, None for all. Return 1 if a curve has a gap or a doubled value."""
    with access.reading(options) as manager:
        studies = list(_study_trials(manager, options.step, struck))
    summary = summed(studies)
    if options.json:
        screen.show_json(summary)
    else:
        _show(summary)
    return int(any(curve["outcome"] in FAULTY for curve in summary["curves"]))


def has_elastic_trials(manager: Client) -> bool:
    return count_nodes(manager.profile()["config"].get("distributed")).is_elastic


def _study_elastic_trials(manager: Client, key: str, struck: set[tuple[str, int]] | None) -> Iterator[TrialFindings]:
    for known in list(manager.trials()):
        if struck is None or known["id"] in {trial for trial, _ in struck}:
            trial, metrics = manager.trial(known["id"]), list(manager.metrics(known["id"]))
            changes = list_changes(trial, read_roles(manager, trial, []), metrics)
            if changes:
                yield study_changes(trial, changes, metrics, key)


def _study_trials(manager: Client, key: str, struck: set[tuple[str, int]] | None) -> Iterator[TrialFindings]:
    if has_elastic_trials(manager):
        yield from _study_elastic_trials(manager, key, struck)
        return
    usual: list[int | None] = []
    for known in list(manager.trials()):
        untouched = known["attempt"] == 0 and known["state"] == "SUCCEEDED"
        if untouched or (struck is not None and known["id"] not in {trial for trial, _ in struck}):
            continue
        trial = manager.trial(known["id"])
        drilled = [
            one["number"]
            for one in trial["attempts"]
            if (one["message"] or "").startswith(DRILLED) and (struck is None or (trial["id"], one["number"]) in struck)
        ]
        if drilled:
            usual = usual or [_find_usual_count(manager)]
            yield study(trial, drilled, list(manager.metrics(trial["id"])), key, usual[0])


def _find_usual_count(manager: Client) -> int | None:
    """Return how many intermediate results a trial with one attempt has, None if there is none, or they differ."""
    # More trials are listed than compared, since those with several attempts do not count.
    whole = [trial for trial in manager.trials(states=["SUCCEEDED"], limit=10 * _COMPARED) if trial["attempt"] == 0]
    counts = {len(list(manager.metrics(trial["id"], kind="PERIODICAL"))) for trial in whole[:_COMPARED]}
    return counts.pop() if len(counts) == 1 else None


def _show(report: Report) -> None:
    rows = [
        (
            one["trial"],
            one["attempt"] + 1,
            one["service"],
            _describe_host(one),
            _at_least(one, screen.span(one["lostSeconds"])),
            _at_least(one, screen.money(one["lostCost"])),
            screen.span(one["waitedSeconds"]),
        )
        for one in report["interruptions"]
    ]
    screen.show_table(("TRIAL", "ATTEMPT", "SERVICE", "HOST", "LOST", "COST", "WAITED"), rows, "Nothing was lost.")
    if not rows:
        return
    print()
    curves = [(one["trial"], one["state"], one["outcome"], one["detail"]) for one in report["curves"]]
    screen.show_table(("TRIAL", "STATE", "CURVE", "DETAIL"), curves, "")
    lost, cost = screen.span(report["lostSeconds"]) or "0 s", screen.money(report["lostCost"])
    price = "whose price is not known" if cost is None else f"which cost {cost}"
    word = "start" if "nodes" in report["interruptions"][0] else "interruption"
    count = f"{len(rows)} {'further ' * (word == 'start')}{word}{'s' * (len(rows) > 1)}"
    print(f"\n{count}: {lost} of work was lost, {price}; trials waited {_show_waited(report)} to continue.")


def _describe_host(one: dict[str, Any]) -> str:
    """Return the host that was interrupted; of an elastic trial also the number of its nodes before and after."""
    if "nodes" not in one:
        return str(one["host"])
    before, after = one["nodes"]
    return f"{one['host'] or 'none'} ({before} to {after})"


def _show_waited(report: Report) -> str:
    return screen.span(report["waitedSeconds"]) or "0 s"


def _at_least(one: dict[str, Any], text: str | None) -> str | None:
    """Mark an amount that may grow while the trial continues."""
    return f">= {text}" if text is not None and one["atLeast"] else text
