"""The trials of an experiment: list, show, tag, kill, scale and rerun them, add your own, and fetch their files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nnilite._cli import (
    access,
    again_command,
    arguments,
    progress_line,
    remark_command,
    screen,
    summary,
    trial_names,
    trial_roles,
)
from nnilite._running.manager_client import Client
from nnilite.disk_room import DiskRoom
from nnilite.errors import ConfigError, NniliteError, NotFound, explain_os_error
from nnilite.foreign_files import EnclosedFolder, UnsafeName
from nnilite.records import TrialState

_NAMED = 5
_COPY_TIMEOUT_S = 3700.0  # the manager may have to copy files from another machine first
STATES = [state.value for state in TrialState]
ENDED_STATES = [state.value for state in TrialState if state.ended]


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    listing = groups.add_parser("ls", help="list trials", aliases=["list"])
    arguments.add_experiment_argument(listing)
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--head", type=arguments.positive, metavar="N", help="only the N best")
    which.add_argument("--tail", type=arguments.positive, metavar="N", help="only the N worst")
    which.add_argument(
        "--front", action="store_true", help="with several objectives: only trials that no other one beats"
    )
    listing.add_argument(
        "--status",
        action="append",
        type=arguments.state,
        choices=STATES,
        default=[],
        metavar="STATE",
        help="only trials in this state",
    )
    listing.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only trials with this tag, or with all of several"
    )
    arguments.add_json_argument(listing)
    listing.set_defaults(command=show_list)
    _add_single(groups)
    remark_command.add(groups)
    _add_scale(groups)
    _add_rerun(groups)
    _add_own(groups)
    again_command.add(groups)
    _add_reproduce(groups)


def _add_reproduce(groups: Any) -> None:
    one = groups.add_parser("reproduce", help="put a trial's code and parameters into a folder, to run it by hand")
    trial_names.add(one)
    one.add_argument(
        "--in", dest="folder", type=Path, metavar="FOLDER", help="a new folder (default: one with the trial's name)"
    )
    arguments.add_json_argument(one)
    one.set_defaults(command=reproduce)


def _add_single(groups: Any) -> None:
    for name, command, help_text in (
        ("show", show, "show a trial: parameters, metrics, attempts, files"),
        ("kill", kill, "cancel waiting or running trials"),
        ("download", download, "copy the files of a trial to this machine"),
    ):
        one = groups.add_parser(name, help=help_text)
        trial_names.add(one, several=name == "kill")
        one.set_defaults(command=command)
        arguments.add_json_argument(one)
        if name == "download":
            one.add_argument(
                "-o", "--output", type=Path, metavar="DIR", help="target folder (default: one with the trial's name)"
            )


def _add_scale(groups: Any) -> None:
    scale = groups.add_parser("scale", help="change the number of workers of an elastic trial while it runs")
    scale.add_argument("trial", metavar="TRIAL", help="number or id of the trial")
    scale.add_argument("workers", metavar="N", type=arguments.positive, help="the new number of workers")
    scale.add_argument(
        "-e", "--experiment", dest="id", metavar="ID", help="id of the experiment; default: the only running one"
    )
    arguments.add_json_argument(scale)
    scale.set_defaults(command=scale_one)


def _add_rerun(groups: Any) -> None:
    again = groups.add_parser("rerun", help="run ended trials again, with the same parameters")
    arguments.add_experiment_argument(again)
    which = again.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "-T",
        "--trial",
        "--trial-id",
        "--trial_id",
        nargs="+",
        metavar="TRIAL",
        dest="trials",
        default=[],
        help="numbers or ids",
    )
    which.add_argument(
        "--status",
        type=arguments.state,
        choices=ENDED_STATES,
        metavar="STATE",
        help="all that ended in this state, for example FAILED",
    )
    arguments.add_json_argument(again)
    again.set_defaults(command=rerun)


def _add_own(groups: Any) -> None:
    own = groups.add_parser("add", help="add a trial with your own parameters to the queue")
    arguments.add_experiment_argument(own)
    source = own.add_mutually_exclusive_group(required=True)
    source.add_argument("-p", "--parameters", metavar="JSON", help="for example '{\"lr\": 0.1}'")
    source.add_argument("-f", "--filename", type=Path, metavar="FILE", help="a JSON or YAML file")
    arguments.add_json_argument(own)
    own.set_defaults(command=add_own)


def show_list(options: argparse.Namespace) -> None:
    with access.reading(options) as manager:
        trials = list(_select(manager, options))
        several = not options.json and len(manager.profile().get("services", ())) > 1
    if options.json:
        screen.show_json(trials)
        return
    left_out = {
        "SERVICE": not several,
        "COST": all(trial.get("cost") is None for trial in trials),
        "TAGS": not any(trial.get("tags") for trial in trials),
        "VIOLATES": not any(trial.get("violates") for trial in trials),
    }
    columns = {name: cell for name, cell in _COLUMNS.items() if not left_out.get(name)}
    rows = [tuple(cell(trial) for cell in columns.values()) for trial in trials]
    screen.show_table(tuple(columns), rows, "There are no such trials.", spare=SPARE_COLUMNS)


_COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "NO": lambda trial: trial["sequence"],
    "ID": lambda trial: trial["id"],
    "STATE": lambda trial: trial["state"],
    "METRIC": lambda trial: summary.show_metric(trial["value"], trial["latest"]),
    "TIME": lambda trial: screen.span(_duration(trial)),
    "SERVICE": lambda trial: trial.get("service", ""),
    "COST": lambda trial: screen.money(trial.get("cost")),
    "TAGS": lambda trial: remark_command.join_tags(trial.get("tags", [])),
    "VIOLATES": lambda trial: screen.brief(trial.get("violates", "")),
    "PARAMETERS": lambda trial: screen.parameters(trial["parameters"]),
    "REASON": lambda trial: screen.brief(trial["reason"]),
}
"""The text of each column. Services, cost, tags and violations have a column only if some trial has one."""

SPARE_COLUMNS = ("REASON", "TIME", "PARAMETERS", "METRIC")
"""What a narrow terminal lacks, the first one first. A metric of several numbers is cut before a column is left out."""


def _select(manager: Client, options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    if options.front:
        return _front(manager, options)
    count = options.head or options.tail
    if not count:
        return manager.trials(states=options.status, tags=options.tag)
    profile, best_first = manager.profile(), bool(options.head)
    # What is not feasible is among the worst, but never among the best.
    limited = best_first and bool(profile["config"].get("resultConstraints"))
    ranked = manager.trials(
        states=options.status,
        tags=options.tag,
        sort="value",
        descending=(profile["optimize"] == "maximize") == best_first,
        limit=None if limited else count,
    )
    # Trials without a value come last in both directions.
    return islice((one for one in ranked if one["value"] is not None and not (limited and one["violates"])), count)


def _front(manager: Client, options: argparse.Namespace) -> list[dict[str, Any]]:
    from nnilite.tuning.objectives import front, signs

    profile = manager.profile()
    if not summary.has_several_objectives(profile):
        raise ConfigError("--front: the tuner of this experiment has no `objectives` in its classArgs")
    trials = manager.trials(states=options.status or [TrialState.SUCCEEDED.value])
    feasible = ((trial, trial["value"]) for trial in trials if not trial.get("violates"))
    best = front(feasible, signs(profile["objectives"]))
    # A tag selects from the front. A front of tagged trials alone would have others in it.
    return [trial for trial in best if set(options.tag) <= set(trial.get("tags", []))]


def _duration(trial: dict[str, Any]) -> float | None:
    if trial["started"] is None or trial["ended"] is None:
        return None
    return float(trial["ended"] - trial["started"])


def show(options: argparse.Namespace) -> None:
    with access.reading(options) as manager:
        trial = manager.trial(options.trial)
        metrics = list(manager.metrics(options.trial))
        files = _list_files_here(manager, options.trial)
        roles = trial_roles.read_roles(manager, trial, files)
    if options.json:
        screen.show_json({**trial, "metrics": metrics, "files": files, "roles": roles})
        return
    _show_facts(trial, summary.find_latest(trial, metrics))
    print("\nParameters")
    for line in summary.list_parameters(trial["parameters"]):
        print(f"  {line}")
    if trial.get("attributes"):
        print("\nAttributes")
        for name, value in trial["attributes"].items():
            print(f"  {screen.clean(name)}: {screen.metric(value)}")
    print("\nAttempts")
    rows = [_attempt(attempt) for attempt in trial["attempts"]]
    screen.show_table(
        ("NO", "STATE", "SERVICE", "HOST", "EXIT", "STARTED", "TIME", "COST", "MESSAGE"), rows, "None yet."
    )
    images = [(one["number"], one["image"]) for one in trial["attempts"] if one.get("image")]
    if images:
        print("\nImages")
        screen.show_table(("ATTEMPT", "IMAGE"), images, "")
    trial_roles.show_roles(roles)
    print("\nMetrics")
    reported = [(one["attempt"], one["kind"], one["sequence"], screen.metric(one["value"])) for one in metrics]
    screen.show_table(("ATTEMPT", "KIND", "NO", "VALUE"), reported, "None yet.")
    print("\nFiles")
    screen.show_table(("FILE", "BYTES"), [(one["path"], one["size"]) for one in files], "None yet.")
    _name_checkpoints(options)


def _name_checkpoints(options: argparse.Namespace) -> None:
    """Print where the checkpoints of a trial are, if they are on this machine: they are not among its files."""
    from nnilite._checkpoints.checkpoint_folders import CHECKPOINTS

    folder = access.find(options, read_only=True).directory / CHECKPOINTS / options.trial
    if folder.is_dir() and any(folder.iterdir()):
        print(f"\nIts checkpoints are in {screen.clean(str(folder))}.")


def _list_files_here(manager: Client, trial: str) -> list[dict[str, Any]]:
    """Return the files of a trial on the manager's machine. A trial that waits or runs elsewhere may have none yet."""
    try:
        return manager.files(trial, fetch=False)
    except NotFound:
        return []


def _show_facts(trial: dict[str, Any], latest: Any) -> None:
    screen.show_facts(
        {
            "Trial": f"{trial['id']} (no. {trial['sequence']})",
            "State": trial["state"],
            "Reason": screen.brief(trial["reason"]) or None,
            "Metric": summary.show_metric(trial["value"], latest) or None,
            "Violates": screen.clean(trial.get("violates", "")) or None,
            "Started": screen.moment(trial["started"]),
            "Ended": screen.moment(trial["ended"]),
            "Time": screen.span(_duration(trial)),
            "Cost": screen.money(trial.get("cost")) or None,
            "Source": trial["source"],
            "In use": summary.trial_usage(trial.get("use")) or None,
            "Tags": remark_command.join_tags(trial.get("tags", [])) or None,
        }
    )
    if trial.get("note"):
        print("\nNote")
        for line in str(trial["note"]).splitlines():
            print(f"  {screen.clean(line)}")


def _attempt(attempt: dict[str, Any]) -> tuple[object, ...]:
    return (
        attempt["number"],
        attempt["state"],
        attempt["service"],
        attempt["host"],
        attempt["exitCode"],
        screen.moment(attempt["started"]),
        screen.span(_duration(attempt)),
        screen.money(attempt.get("cost")),
        attempt["message"],
    )


def kill(options: argparse.Namespace) -> None:
    with access.running(options) as manager:
        asked = [manager.cancel(trial) for trial in options.trials]
    if options.json:
        screen.show_json(asked)
    else:
        for trial, found in zip(options.trials, asked, strict=True):
            over = found["ended"] is not None
            print(f"Trial {trial} has ended: {found['state']}." if over else f"Trial {trial} is being stopped.")


def scale_one(options: argparse.Namespace) -> None:
    with access.running(options) as manager:
        trial = manager.scale(options.trial, options.workers)
    if options.json:
        screen.show_json({**trial, "workers": options.workers})
        return
    print(f"Trial {options.trial} was asked to have {screen.amount(options.workers, 'workers')}.")


def rerun(options: argparse.Namespace) -> None:
    with access.running(options) as manager:
        again = manager.rerun(ids=options.trials, state=options.status)
    if options.json:
        screen.show_json(again)
        return
    if not again:
        print("No trial has ended in this state.")
        return
    run = "runs" if len(again) == 1 else "run"
    print(f"{screen.amount(len(again), 'trials')} {run} again: {' '.join(trial['id'] for trial in again)}")


def add_own(options: argparse.Namespace) -> None:
    from nnilite._cli.nnictl import warn

    parameters = _parameters(options)
    with access.running(options) as manager:
        trial = manager.add_trial(parameters)
    if trial["warning"]:
        warn(trial["warning"])
    if options.json:
        screen.show_json(trial)
    else:
        print(f"Trial {trial['id']} (no. {trial['sequence']}) is in the queue.")


def _parameters(options: argparse.Namespace) -> Any:
    if options.filename:
        from nnilite.config.text import read_without_lines

        return read_without_lines(options.filename)
    try:
        return json.loads(options.parameters)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--parameters: this is not JSON: {error}") from error


def download(options: argparse.Namespace) -> None:
    with access.reading(options, timeout_s=_COPY_TIMEOUT_S) as manager:
        target: Path = options.output or Path(options.trial)
        if options.output is None and target.is_symlink():  # the folder may come from another person
            raise ConfigError(f"{target} is a link here; name the folder with --output")
        with progress_line.shown("Downloading", quiet=options.json) as work:
            listing = manager.fetch_files(options.trial)
            files = [file for file in listing["files"] if _has_address(file["path"])]
            others = listing["others"]
            unnamed = [file["path"] for file in listing["files"] if not _has_address(file["path"])]
            work.expect(sum(file["size"] for file in files))
            # Asked before the first file, as each of them alone may fit.
            DiskRoom(target).need(sum(file["size"] for file in files))
            for file in files:
                _fetch(manager, options.trial, file["path"], target, work)
    if options.json:
        screen.show_json({"trial": options.trial, "directory": str(target), "files": [file["path"] for file in files]})
        return
    print(f"{len(files)} files of trial {options.trial} are in {target}.")
    _tell_left_out("they are links or special files", [_other(one) for one in others])
    _tell_left_out("their names are not UTF-8", unnamed)
    if listing["note"]:
        print(listing["note"])
    _name_checkpoints(options)


def _has_address(path: str) -> bool:
    """Return whether a file can be asked for: an address is UTF-8, but the name of a file may be any bytes."""
    return not any("\ud800" <= mark <= "\udfff" for mark in path)


def _tell_left_out(why: str, names: Sequence[str]) -> None:
    if names:
        more = ", ..." if len(names) > _NAMED else ""
        print(f"Left out, because {why}: {', '.join(screen.clean(name) for name in names[:_NAMED])}{more}")


def _other(entry: dict[str, Any]) -> str:
    return f"{entry['path']} -> {entry['target']}" if entry["target"] else str(entry["path"])


def _fetch(manager: Client, trial: str, name: str, target: Path, work: progress_line.Work) -> None:
    """Write a file of the trial into the folder, and nothing outside of it, whatever the manager names."""
    room = DiskRoom(target)
    try:
        with EnclosedFolder(str(target), make=True, folder_mode=0o777) as folder, folder.draft(name, None) as draft:

            def write(piece: bytes) -> None:
                room.count(len(piece))
                draft.write(piece)
                work.advance(len(piece))

            # `fetch_files` has already copied the file to the manager's machine.
            manager.download(trial, name, write, fetch=False)
            draft.finish()
    except UnsafeName as error:
        raise NniliteError(f"The manager names a file outside the trial's folder: {error}.") from error
    except OSError as error:
        why = explain_os_error(OSError(error.errno, error.strerror or str(error))).rstrip(".")
        raise NniliteError(f"--output {target.absolute()}: cannot be written: {why}") from error


def reproduce(options: argparse.Namespace) -> None:
    from nnilite._cli.reproduce import reproduce as lay_out

    lay_out(options)
