"""Functions for searches in processes: worker processes import this module, and nothing of the tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import nnilite


def number(parameters: Any) -> Any:
    """The result that was asked for."""
    return parameters["x"]


def process(parameters: Any) -> dict[str, Any]:
    """Who has called it."""
    return {"default": parameters["x"], "pid": os.getpid()}


def fate(parameters: Any) -> Any:
    """Ends as it is told to."""
    kind = parameters["x"]
    if kind == "raise":
        raise ValueError("no 'quotes'")
    if kind == "exit":
        sys.exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return object() if kind == "no result" else 1.0


def reports(parameters: Any, report: Any) -> Any:
    """Tells its number three times on its way."""
    for step in range(3):
        report(parameters["x"] + step / 10)
    return parameters["x"]


class _TooLate(Exception):
    """The time of a function is up."""


def timed(parameters: Any, report: Any) -> Any:
    """Reports until an alarm ends a report."""

    def ring(*_: Any) -> None:
        raise _TooLate

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.003)
    try:
        while True:
            report(0.0)
    except _TooLate:
        return parameters["x"]


def alarmed(parameters: Any, report: Any) -> Any:
    """Reports until an alarm has reported 20 times meanwhile."""
    rings = 0

    def ring(*_: Any) -> None:
        nonlocal rings
        rings += 1
        report(1.0)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while rings < 20:
        report(0.0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return parameters["x"]


def forked(parameters: Any, report: Any) -> Any:
    """Reports from a copy of its process. Returns whether that ended as it should."""
    child = os.fork()
    if not child:
        try:
            report(0.0)
        except nnilite.errors.NniliteError:
            os._exit(5)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def endless(parameters: Any, report: Any) -> None:
    """Reports until it is stopped."""
    while True:
        report(parameters["x"])


def held(parameters: Any, report: Any) -> Any:
    """Ends at once for 0, else writes its process id to a file, and never ends."""
    if parameters["x"] == 0:
        return 0
    Path(parameters["x"]).write_text(str(os.getpid()))
    while True:
        signal.pause()


def patient(parameters: Any, report: Any) -> Any:
    """Ends at once for 0; else it goes on until it is told that the search ends."""
    if parameters["x"] != 0:
        endless(parameters, report)
    return 0


def describe(parameters: Any) -> float:
    nnilite.set_attribute("half", parameters["x"] / 2)
    return float(parameters["x"])


def reports_as_a_trial(parameters: Any) -> float:
    nnilite.report_intermediate_result(parameters["x"] + 1)
    return float(parameters["x"])


def blocked(parameters: Any) -> int:
    """How many signals are blocked here of those that end a process."""
    return len(signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGTERM, signal.SIGINT})
