"""Stop experiments: end their trials and keep all results. `nnictl resume` continues them.

The id may be shortened, or end in * for all that start like this. --force kills a manager that cannot stop, for
example because its disk stays full; running trials continue, and a resume takes them over with all their reports.

The exit code is 1 if something is left behind on a platform: a process that cannot be killed, for example.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fnmatch import fnmatchcase

from nnilite._cli import access, arguments, screen
from nnilite._cli.undelivered_warning import warn_of_undelivered
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import managers
from nnilite.errors import NniliteError, NotFound
from nnilite.records import ExperimentState


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_experiment_argument(parser)
    parser.add_argument("-p", "--port", type=arguments.port, help="the experiment whose manager listens on this port")
    parser.add_argument("-a", "--all", action="store_true", help="all experiments that run on this machine")
    parser.add_argument("--done", action="store_true", help="all that are DONE, whose managers only wait")
    arguments.add_json_argument(parser)
    parser.add_argument("--force", action="store_true", help="kill the manager; running trials continue")
    parser.set_defaults(command=stop)


def stop(options: argparse.Namespace) -> int:
    chosen = _chosen(options)
    if (options.all or options.done or options.id == "all") and not (chosen or options.json):
        print("No experiment is DONE and still running." if options.done else "No experiment is running.")
    if options.force:
        return _kill_chosen(chosen, options)
    # A view has nothing to stop: what was left behind before is not its failure.
    views = {entry.id for entry in chosen if managers.is_view(entry)}
    # All are asked before the first one is waited for, so that they end at the same time.
    asked = [entry for entry in chosen if _try_step(entry, managers.ask_to_stop)]
    ended = [entry for entry in asked if _try_step(entry, managers.wait_until_ended)]
    left = {entry.id: "" if entry.id in views else managers.left_behind(entry) for entry in ended}
    for entry in ended:
        if not options.json:
            print(f"Experiment {entry.id} is stopped{', but something is left behind' if left[entry.id] else ''}.")
        warn_of_left(entry)
        warn_of_undelivered(entry)
    if options.json:
        kept = {name: what for name, what in left.items() if what}
        screen.show_json({"stopped": [entry.id for entry in ended], **({"left": kept} if kept else {})})
    return 0 if len(ended) == len(chosen) and not any(left.values()) else 1


def _kill_chosen(chosen: list[RegistryEntry], options: argparse.Namespace) -> int:
    ended = [entry for entry in chosen if _try_step(entry, managers.kill)]
    if options.json:
        screen.show_json({"killed": [entry.id for entry in ended]})
    for entry in () if options.json else ended:
        print(
            f"The manager of experiment {entry.id} is killed; trials continue. `nnictl resume {entry.id}` finds them."
        )
    return 0 if len(ended) == len(chosen) else 1


def warn_of_left(entry: RegistryEntry) -> None:
    """Warn of what a stop has left behind on a platform."""
    from nnilite._cli.nnictl import warn

    left = managers.left_behind(entry)
    if left:
        warn(f"{left}.")


def _try_step(entry: RegistryEntry, step: Callable[[RegistryEntry], None]) -> bool:
    """Take a step for one experiment. A failure is printed, so that the other experiments are still stopped."""
    from nnilite._cli.nnictl import print_error

    try:
        step(entry)
    except NniliteError as error:
        print_error(f"Experiment {entry.id}: {error}")
        return False
    return True


def _chosen(options: argparse.Namespace) -> list[RegistryEntry]:
    alive = [entry for entry in registry.list_all() if entry.alive]
    if options.all or (options.id == "all" and not any(entry.id == "all" for entry in alive)):  # so wrote NNI 1
        return alive
    if options.done:
        return [entry for entry in alive if entry.state == ExperimentState.DONE.value]
    if options.id and options.id.isdecimal() and any(str(entry.port) == options.id for entry in alive):
        raise NotFound(f"There is no experiment {options.id!r}; did you mean --port {options.id}?")
    if options.port is not None:
        return [_find_at_port(alive, options)]
    if options.id and options.id.endswith("*"):
        matching = [entry for entry in alive if fnmatchcase(entry.id, options.id)]
        if not matching:
            raise NotFound(f"No running experiment has an id like {options.id}.")
        return matching
    entry = access.find(options)
    # No failure: a script that stops an experiment cannot know whether it has ended by itself.
    if not entry.alive:
        if not options.json:
            print(f"Experiment {entry.id} is not running{_explain_lost(entry)}.")
        return []
    return [entry]


def _explain_lost(entry: RegistryEntry) -> str:
    """Return why the trials of an experiment without a manager do not end by a stop, and what ends them."""
    return f": {entry.lost_manager}, and a stop then ends them" if entry.lost_manager else ""


def _find_at_port(alive: list[RegistryEntry], options: argparse.Namespace) -> RegistryEntry:
    for entry in alive:
        if entry.port == options.port and entry.id.startswith(options.id or ""):
            return entry
    which = f"experiment {options.id}" if options.id else "experiment"
    raise NotFound(f"No running {which} is served at port {options.port}.")
