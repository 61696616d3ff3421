"""`--foreground`: shows the progress of the experiment until it is done, then its result, and stops its manager.

Ctrl-C or SIGTERM stops the experiment in good order; a second one leaves at once, and the manager ends with this
process. Once the experiment is done, trackers and webhooks are waited for as long as they take something; then Ctrl-C
ends the wait.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nnilite._cli import ctrl_c, progress_text, screen, summary
from nnilite._cli.stop import warn_of_left
from nnilite._cli.undelivered_warning import hand_over, warn_of_undelivered
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import managers
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import Unreachable
from nnilite.errors import NniliteError

if TYPE_CHECKING:
    from rich.console import Group

FIRST_POLL_S, POLL_S = 0.02, 0.2
"""How often the manager is asked: at first more often, for experiments that take a second."""

LINE_S = 10.0
"""The longest time between two lines without a terminal, if anything has changed."""

ENDED = ("DONE", "ERROR", "STOPPED")

Show = Callable[[dict[str, Any], progress_text.ProgressHistory], None]


def follow(entry: RegistryEntry, *, as_json: bool = False) -> int:
    """Watch an experiment until it ends, and stop its manager. Return the exit code."""
    with ctrl_c.TermAsCtrlC() as term:
        code = _follow(entry, as_json=as_json)
    return ctrl_c.end_by_term() if term.came and code == ctrl_c.INTERRUPTED else code


def _follow(entry: RegistryEntry, *, as_json: bool) -> int:
    from nnilite._cli import nnictl

    # With --json, standard output has the final profile and nothing else.
    out = sys.stderr if as_json else sys.stdout
    try:
        page = managers.find_page_address(entry)
        print(f"Experiment {entry.id} is running at {page}; Ctrl-C stops it.", file=out, flush=True)
        with managers.connect(entry) as manager:
            profile = _watch_to_end(manager, entry, quiet=as_json)
            if not as_json:
                _show_result(manager, profile, entry)
            profile = hand_over(manager, profile, lambda sentence: print(sentence, file=out, flush=True))
            if as_json:
                screen.show_json(profile)
    except managers.NotRunning as error:
        # The manager died between its start and the first question: that is reported like a later death.
        profile = _gone(entry, None, error)
    except KeyboardInterrupt:
        return stop(entry, as_json=as_json)
    # Another program may have stopped it meanwhile.
    if registry.find(entry.id).alive:
        managers.stop(entry)
        warn_of_left(entry)
    if not as_json:
        print(f"Everything is kept in {entry.directory}; `nnictl view {entry.id}` shows it in the browser.")
    is_owing = warn_of_undelivered(entry)
    if profile["state"] == "ERROR":
        return nnictl.FAILED
    if profile["state"] == "DONE" and summary.have_none_succeeded(profile):
        return nnictl.NONE_SUCCEEDED
    return nnictl.OWING if is_owing else nnictl.DONE


def stop(entry: RegistryEntry, *, as_json: bool = False) -> int:
    """Stop the experiment after Ctrl-C, or leave at once after a second one. Return the exit code."""
    out = sys.stderr if as_json else sys.stdout
    try:
        print(f"\nStopping experiment {entry.id} (Ctrl-C again: at once) ...", file=out, flush=True)
        managers.stop(entry)
        print(f"Experiment {entry.id} is stopped; `nnictl resume {entry.id}` resumes it.", file=out, flush=True)
        warn_of_left(entry)
        warn_of_undelivered(entry)
    except KeyboardInterrupt:
        return ctrl_c.tell(f"Experiment {entry.id} stops by itself; `nnictl stop {entry.id}` waits for it.")
    return ctrl_c.INTERRUPTED


def _watch_to_end(manager: Client, entry: RegistryEntry, *, quiet: bool) -> dict[str, Any]:
    if quiet:
        return watch(manager, entry, lambda profile, course: None)
    if not screen.is_terminal():
        return watch(manager, entry, ProgressLines())
    from rich.live import Live

    # The bar goes away at the end: the result below it has all that it said.
    with Live(console=screen.console(), refresh_per_second=8, transient=True) as live:
        return watch(manager, entry, lambda profile, course: live.update(_draw_picture(profile, course)))


def watch(manager: Client, entry: RegistryEntry, show: Show) -> dict[str, Any]:
    """Poll the manager until the experiment has ended. Return the last profile. Raises: NniliteError if it dies."""
    course = progress_text.ProgressHistory()
    profile, pause_s = None, FIRST_POLL_S
    while True:
        try:
            profile = manager.profile()
        except Unreachable as error:
            return _gone(entry, profile, error)
        course.record(time.monotonic(), profile)
        show(profile, course)
        if profile["state"] in ENDED:
            return profile
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, POLL_S)


def _gone(entry: RegistryEntry, profile: dict[str, Any] | None, error: NniliteError) -> dict[str, Any]:
    """Find out why the manager does not answer any more: it was stopped, or it died."""
    if profile is not None and managers.was_stopped(entry):
        return {**profile, "state": "STOPPED"}
    raise managers.explain_silence(entry, error) from error


class ProgressLines:
    """Shows progress as lines of a log: after each further tenth of the trials, or after a while."""

    def __init__(self) -> None:
        self._last_line = ""
        self._at_s = time.monotonic()
        self._ended = 0

    def __call__(self, profile: dict[str, Any], course: progress_text.ProgressHistory) -> None:
        ended = progress_text.count_ended(profile)
        step = max(1, (profile["limits"]["maxTrialNumber"] or 100) // 10)
        waited = time.monotonic() - self._at_s
        if ended < self._ended + step and waited < LINE_S and profile["state"] not in ENDED:
            return
        line = progress_text.line(profile, course)
        # An experiment that stands still for days would fill a log with one line.
        if line != self._last_line:
            print(line, flush=True)
        self._last_line, self._at_s, self._ended = line, time.monotonic(), ended


def _draw_picture(profile: dict[str, Any], course: progress_text.ProgressHistory) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    limit = profile["limits"]["maxTrialNumber"]
    counts = Text(f" {progress_text.done(profile)} trials")
    for state, count in profile["counts"].items():
        if count:
            counts.append(f"  {count} {state}", style=screen.COLOURS.get(state, ""))
    bar = Table.grid()
    bar.add_row(
        ProgressBar(
            limit or None, progress_text.count_ended(profile), width=30, pulse=not limit, complete_style="green"
        ),
        counts,
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_row("best so far", Text(progress_text.best(profile), style="bold green"))
    found = profile["best"]
    facts.add_row("with", Text(screen.parameters(found["parameters"]) if found else "-", overflow="fold"))
    left = screen.span(progress_text.left_s(profile, course)) or "-"
    facts.add_row("rate", f"{progress_text.rate(course)}   time {screen.span(profile['duration'])}   left {left}")
    for line in course.lasting(profile):
        facts.add_row("", Text(line, style="yellow"))
    return Group(bar, facts)


def _show_result(manager: Client, profile: dict[str, Any], entry: RegistryEntry) -> None:
    reason = f": {screen.brief(profile['reason'])}" if profile["reason"] else ""
    print(f"Experiment {entry.id} is {profile['state']}{reason}")
    screen.show_traceback(profile["reason"])
    screen.show_facts({"Trials": summary.trials(profile), "Time": screen.span(profile["duration"])})
    summary.show_notices(profile)
    summary.show_best(profile)
    if profile["counts"].get("FAILED"):
        has_none = summary.have_none_succeeded(profile)
        _show_failure(manager, entry, whole=has_none)
        for line in summary.notes(profile) if has_none else ():
            print(line)


def _show_failure(manager: Client, entry: RegistryEntry, *, whole: bool) -> None:
    """Show one of the failed trials as an example: the first one, with all that it said, if no trial has succeeded."""
    for trial in manager.trials(states=["FAILED"], sort="ended", descending=not whole, limit=1):
        first, *more = trial["reason"].splitlines() or [""]
        print(f"Trial {trial['id']} failed: {screen.clean(first) if whole else screen.brief(trial['reason'])}")
        for line in more if whole else ():
            print(f"  {screen.clean(line)}")
        print(f"  `nnictl log stderr {entry.id} --trial {trial['id']}` shows what it wrote.")
        for line in summary.cure_floats(trial):
            print(f"  {line}")
