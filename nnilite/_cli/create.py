"""Start an experiment from a configuration file.

It runs in the background until you stop it. With --foreground its progress is shown here until it is done, and Ctrl-C
stops it. With --dry-run everything is checked, the code is packed, and the files to be sent are listed, but nothing is
started.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nnilite._cli import arguments, ctrl_c, screen

if TYPE_CHECKING:
    from nnilite._cli.progress_line import Work
    from nnilite._experiments.registry import RegistryEntry
    from nnilite._running.launch import ManagerOptions
    from nnilite._running.manager_process import ManagerProcess
    from nnilite.config import CheckedConfig, ExperimentConfig
    from nnilite.records import Json


FIRST_PORT = 8080


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_config_arguments(parser)
    arguments.add_manager_arguments(parser)
    parser.add_argument("-f", "--foreground", action="store_true", help="show the progress here until it is done")
    parser.add_argument("--dry-run", action="store_true", help="check everything and print what would be done")
    parser.add_argument(
        "--first",
        action="append",
        default=[],
        metavar="JSON",
        help="parameters of a trial that runs first, for example '{\"lr\": 0.1}'; for several trials give it again",
    )
    arguments.add_json_argument(parser)
    parser.set_defaults(command=create)


def create(options: argparse.Namespace) -> int:
    options.config = arguments.choose_config(options)
    if options.config is None:
        options.refuse("`nnictl create` needs one configuration file, for example `nnictl create exp.yaml`.")
    if options.dry_run:
        return _run_dry(options)
    with ctrl_c.ImmediateExit():  # nothing has to be undone so far
        from nnilite._cli import access
        from nnilite._running import manager_process

        manager = access.read_manager_options(options)
        config, files = read_config(options.config, options.first)
        # It has what was imported here so far, and imports the rest of what a manager needs while this goes on.
        process = manager_process.fork()
    with process:
        return _create(options, config, files, manager, process)


def _run_dry(options: argparse.Namespace) -> int:
    with ctrl_c.ImmediateExit():
        from nnilite._cli import access, dryrun

        manager = access.read_manager_options(options)
        config, _ = read_config(options.config, options.first)
        config.check_algorithms()
    return dryrun.show(config, manager, as_json=options.json)


def _create(
    options: argparse.Namespace,
    config: CheckedConfig,
    files: list[Path],
    manager: ManagerOptions,
    process: ManagerProcess,
) -> int:
    with ctrl_c.ImmediateExit():
        from nnilite._cli import progress_line
        from nnilite._cli.config_source import write_source
        from nnilite._cli.nnictl import warn
        from nnilite._running import launch

        config.check_algorithms()
        for warning in config.warnings:
            warn(warning)
        if options.foreground:
            from nnilite._cli import foreground
    experiment = launch.new_id()
    try:
        with progress_line.shown("Starting", quiet=options.json) as work:
            entry = launch.create(
                config,
                options=manager,
                detach=not options.foreground,
                experiment=experiment,
                packing=partial(packed, work),
                process=process,
                fill=partial(write_source, files=files),
            )
        if config.search_from:
            _show_notices(entry, quiet=options.json)
        if options.foreground:
            return foreground.follow(entry, as_json=options.json)
        return started(entry, as_json=options.json, asked=options.port)
    except KeyboardInterrupt:
        return interrupted(experiment, foreground=options.foreground)


def _show_notices(entry: RegistryEntry, *, quiet: bool) -> None:
    """Print what the start has found out: how many results of `searchFrom` the tuner learns from."""
    from nnilite._cli.nnictl import warn
    from nnilite._running import managers
    from nnilite._running.manager_connection import Unreachable
    from nnilite._store.notices import TEACHES_NOTHING

    notices: list[str] = []
    # If its manager has ended already, the next command reports that.
    with suppress(Unreachable), managers.connect(entry) as manager:
        notices = manager.profile()["notices"]
    for sentence in notices:
        if sentence.startswith(TEACHES_NOTHING):
            warn(sentence)
        elif not quiet:
            print(f"Note: {screen.clean(sentence)}.")


def packed(work: Work, done: int, total: int) -> None:
    """Show how much of the code is packed, which a manager says at its start."""
    if done < total:
        work.name = "Packing the code"
        work.show_at(done, total)
    else:
        work.goes_on("Starting")


def read_config(path: Path, first: list[str]) -> tuple[CheckedConfig, list[Path]]:
    """Return the checked config of a file with more first trials, and the files that it is in. Raises: ConfigError."""
    from nnilite.config import load
    from nnilite.units.path_rules import expand_home

    given = load(path)
    config = given.checked()
    files = [path]
    if given.search_space_file is not None:
        files.append(path.parent / expand_home(given.search_space_file))
    return (_add_first(given, first) if first else config), files


def _add_first(given: ExperimentConfig, first: list[str]) -> CheckedConfig:
    """Return the config, which has no faults of its own, with more first trials. Raises: ConfigError."""
    from nnilite.errors import ConfigError

    given.first_trials = [*(given.first_trials or ()), *map(_first_trial, first)]
    try:
        return given.checked()
    except ConfigError as error:
        raise ConfigError(f"--first: {error.message}") from error


def _first_trial(text: str) -> dict[str, Json]:
    import json

    from nnilite.errors import ConfigError

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--first: this is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError("--first: write an object with a value for each parameter, for example '{\"lr\": 0.1}'")
    return found


def interrupted(experiment: str, *, foreground: bool) -> int:
    """Print what Ctrl-C has left of a start: a running experiment, or nothing new."""
    from nnilite._experiments import registry

    entry = next((one for one in registry.entries() if one.id == experiment), None)
    if entry is None:
        return ctrl_c.tell("Interrupted; nothing is left of the experiment.")
    if not entry.alive:
        return ctrl_c.tell(f"Interrupted; experiment {experiment} is not running.")
    if foreground:
        from nnilite._cli.foreground import stop

        return stop(entry)
    return ctrl_c.tell(f"Interrupted; experiment {experiment} is running: `nnictl stop {experiment}` stops it.")


def started(
    entry: RegistryEntry, *, as_json: bool, asked: int | None, former: int | None = None, done: str = ""
) -> int:
    """Print where an experiment runs, and the commands for it.

    `asked` is the port of the command line, and `former` the one that the experiment had until it stopped.
    `done` says why it does not run on.
    """
    from nnilite._running import managers

    if as_json:
        screen.show_json({"id": entry.id, "url": entry.url, "directory": str(entry.directory)})
        return 0
    print(done or f"Experiment {entry.id} is running.")
    expected = former or FIRST_PORT
    if asked is None and entry.port != expected:
        print(f"{_describe_owner_of(expected)}; this one is at port {entry.port}.")
    screen.show_facts({"Web page": managers.find_page_address(entry), "Kept in": entry.directory})
    print(f"Watch it with `nnictl trial ls {entry.id}`, stop it with `nnictl stop {entry.id}`.")
    return 0


def describe_end(entry: RegistryEntry) -> str:
    """Say that a resumed experiment has nothing more to do, and why; "" if it continues."""
    from nnilite._running import managers
    from nnilite.errors import NniliteError

    try:
        with managers.connect(entry) as manager:
            profile = manager.profile()
    except NniliteError:  # it has started, and what it does now is only told in passing
        return ""
    # A manager that has just started may not have seen that all trials have ended, so its state is not asked.
    most, made = profile["limits"]["maxTrialNumber"], profile["nextSequence"]
    if most is None or made < most or any(profile["counts"].get(state) for state in ("WAITING", "RUNNING", "UNKNOWN")):
        return ""
    more = f"`nnictl update trialnum {entry.id} -v {made + most}`"
    return f"Experiment {entry.id} is DONE: maxTrialNumber ({most}) is reached; {more} continues it."


def _describe_owner_of(port: int) -> str:
    """Say which experiment of this user has a port that another one was to have."""
    from nnilite._experiments import registry

    found = next((one for one in registry.entries() if one.alive and one.port == port), None)
    if found is None:
        return f"Port {port} was not free"
    return f"Port {port} is taken by experiment {found.id}" + (f" ({screen.clean(found.name)})" if found.name else "")
