"""The experiments on this machine: list, show, export, import, delete, save and load them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnilite._cli import access, arguments, progress_line, screen
from nnilite._cli.nnictl import warn
from nnilite._cli.stop import warn_of_left
from nnilite._experiments import nni_folders, registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import removal
from nnilite.errors import ConfigError, NotFound, Place

_MOST_GONE = 3  # whose folders are named


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    listing = groups.add_parser("list", help="list the running experiments, or all", aliases=["ls"])
    listing.add_argument("--all", action="store_true", help="include stopped experiments")
    listing.set_defaults(command=show_list)
    one = groups.add_parser("show", help="show an experiment: limits, counts, best trial, folders")
    arguments.add_experiment_argument(one)
    one.set_defaults(command=show)
    short = groups.add_parser("status", help="show its state, and what its trials wait for")
    arguments.add_experiment_argument(short)
    short.set_defaults(command=status)
    for parser in (listing, one, short):
        arguments.add_json_argument(parser)
    _add_provenance(groups)
    _add_replay(groups)
    _add_data(groups)
    _add_files(groups)


def _add_provenance(groups: Any) -> None:
    ran = groups.add_parser("provenance", help="show what ran: code, git commit, packages, seeds, GPUs")
    arguments.add_experiment_argument(ran)
    ran.add_argument("--compare", metavar="OTHER", help="show what differs from this other experiment")
    arguments.add_json_argument(ran)
    ran.set_defaults(command=provenance)


def _add_replay(groups: Any) -> None:
    again = groups.add_parser("replay", help="ask a new tuner for the same proposals, and show the first that differs")
    arguments.add_experiment_argument(again)
    arguments.add_json_argument(again)
    again.set_defaults(command=replay)


def _add_data(groups: Any) -> None:
    out = groups.add_parser("export", help="write parameters and metrics of the succeeded trials")
    arguments.add_experiment_argument(out)
    out.add_argument(
        *("-t", "--type"),
        choices=("json", "csv", "optuna"),
        default=None,
        help="default: from the file's name, else json; optuna: all trials as a study, in SQLite (.db) or a journal",
    )
    out.add_argument("-f", "--filename", type=Path, metavar="FILE", help="default: standard output")
    out.add_argument("-i", "--intermediate", action="store_true", help="include the intermediate results")
    out.add_argument(
        "--all",
        dest="every",
        action="store_true",
        help="include trials without a final result; those stopped early have their latest result",
    )
    arguments.add_json_argument(out, "with --filename: print what was written as JSON")
    out.set_defaults(command=export)
    into = groups.add_parser("import", help='give the tuner results from elsewhere: [{"parameter": ..., "value": ...}]')
    arguments.add_experiment_argument(into)
    into.add_argument(
        "-f",
        "--filename",
        type=Path,
        required=True,
        metavar="FROM",
        help="a JSON or YAML file; or an experiment's folder or id, also of NNI",
    )
    arguments.add_json_argument(into)
    into.set_defaults(command=import_data)


def _add_files(groups: Any) -> None:
    gone = groups.add_parser("delete", help="delete stopped experiments with all their files")
    arguments.add_experiment_argument(gone)
    which = gone.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="all stopped experiments")
    which.add_argument("--gone", action="store_true", help="forget all experiments whose folders are gone")
    gone.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    arguments.add_json_argument(gone)
    gone.set_defaults(command=delete)
    packed = groups.add_parser("save", help="pack a stopped experiment into a zip file")
    arguments.add_experiment_argument(packed)
    packed.add_argument("-p", "--path", type=Path, default=Path(), metavar="DIR", help="the zip file, or its folder")
    packed.add_argument("-s", "--code", "--saveCodeDir", action="store_true", help="include the code directory")
    arguments.add_json_argument(packed)
    packed.set_defaults(command=save)
    back = groups.add_parser("load", help="unpack a saved experiment")
    back.add_argument("-p", "--path", type=Path, required=True, metavar="ZIP", help="the zip file that `save` wrote")
    back.add_argument("-c", "--code", "--codeDir", type=Path, metavar="DIR", help="where to put its code")
    back.add_argument("-l", "--directory", "--logDir", type=Path, metavar="DIR", help="the folder of experiments")
    back.add_argument(
        "-s",
        "--searchSpacePath",
        type=Path,
        metavar="DIR",
        dest="space",
        help="accepted, as in NNI; has no effect here",
    )
    back.add_argument(
        "--max-size", type=arguments.size, metavar="SIZE", help="largest total size after unpacking, such as 200gb"
    )
    back.add_argument("--max-files", type=arguments.positive, metavar="NUMBER", help="largest number of files")
    arguments.add_json_argument(back)
    back.set_defaults(command=load)


def show_list(options: argparse.Namespace) -> None:
    entries = [entry for entry in registry.list_all() if options.all or _is_listed(entry)]
    _warn_of_trouble(entries)
    if options.json:
        screen.show_json([registry.as_json(entry) for entry in entries])
        return
    rows = [
        (
            entry.id,
            entry.name,
            entry.state,
            entry.url or "",
            entry.platform,
            screen.moment(entry.started),
            screen.moment(entry.ended),
            "NNI" if entry.origin else "nnilite",
        )
        for entry in entries
    ]
    empty = "There are no experiments." if options.all else "No experiment is running; --all lists stopped ones, too."
    columns = ("ID", "NAME", "STATE", "URL", "PLATFORM", "STARTED", "ENDED", "MADE BY")
    screen.show_table(columns, rows, empty, spare=("MADE BY", "ENDED", "PLATFORM", "STARTED", "NAME"))


def _warn_of_trouble(entries: Sequence[RegistryEntry]) -> None:
    unnamed = {entry.id for entry in list(filter(registry.is_gone, entries))[_MOST_GONE:]}
    for entry in entries:
        for trouble in filter(None, ("" if entry.id in unnamed else entry.damage, entry.remarks.trouble)):
            warn(screen.clean(trouble))
        if entry.stop:
            warn(f"The manager of experiment {entry.id} does not answer: {entry.stop}.")
        if entry.lost_manager:
            warn(f"Experiment {entry.id}: {entry.lost_manager}.")
    if unnamed:
        more = screen.amount(len(unnamed), "more experiments")
        warn(f"The folders of {more} are gone, too; `nnictl experiment delete --gone` forgets all of them.")
    for trouble in nni_folders.read_list(registry.root()).troubles:
        warn(screen.clean(trouble))


def _is_listed(entry: RegistryEntry) -> bool:
    """Return whether to list an experiment without --all. One whose folder is gone is not."""
    if entry.damage:
        return entry.is_running or entry.state == registry.UNREADABLE or entry.directory.exists()
    return entry.is_running or bool(entry.lost_manager)


def show(options: argparse.Namespace) -> None:
    from nnilite._cli import summary

    with access.reading(options) as manager:
        profile = manager.profile()
    if options.json:
        screen.show_json(profile)
    else:
        summary.show(profile)
        warn_of_left(access.find(options, read_only=True))


def status(options: argparse.Namespace) -> None:
    from nnilite._cli import summary

    with access.reading(options) as manager:
        profile = manager.profile()
    if options.json:
        screen.show_json(summary.status(profile))
    else:
        summary.show_status(profile)


def replay(options: argparse.Namespace) -> int:
    from nnilite._cli.replay import replay as replay_experiment

    return replay_experiment(options)


def provenance(options: argparse.Namespace) -> None:
    from nnilite._cli.provenance import provenance as show_provenance

    show_provenance(options)


def export(options: argparse.Namespace) -> None:
    from nnilite._cli import result_export

    target: Path | None = options.filename
    if options.type == "optuna":
        _export_study(options, target)
        return
    form = options.type or ("csv" if target is not None and target.suffix == ".csv" else "json")
    # On a terminal, results that are printed there show the progress themselves.
    quiet = options.json or (target is None and screen.is_terminal())
    with (
        access.reading(options) as manager,
        progress_line.shown("Exporting", progress_line.format_trials, quiet=quiet) as work,
    ):
        count = result_export.export(
            manager, form, target, work, intermediate=options.intermediate, every=options.every
        )
        if access.find(options, read_only=True).origin is not None:
            result_export.warn_of_uncertain(manager)
    if target is not None and options.json:
        screen.show_json({"file": str(target), "trials": count})
    elif target is not None:
        print(f"{screen.amount(count, 'trials')} {'is' if count == 1 else 'are'} in {target}.")


def _export_study(options: argparse.Namespace, target: Path | None) -> None:
    from nnilite._running import optuna_export
    from nnilite.plot import optuna_study

    if target is None:
        raise ConfigError("--type optuna writes a file: give --filename study.db, or any other name for a journal.")
    with access.reading(options) as manager, progress_line.shown("Exporting", quiet=options.json):
        study = optuna_export.study_of(manager)
        optuna_study.write_study(study, target)
    count = len(study.trials)
    if options.json:
        screen.show_json({"file": str(target), "trials": count, "study": study.study_name})
    else:
        are = "is" if count == 1 else "are"
        print(f"{screen.amount(count, 'trials')} {are} in {screen.clean(target)}, as the study {study.study_name}.")


def import_data(options: argparse.Namespace) -> None:
    from nnilite._manager import search_from
    from nnilite.config.text import read_without_lines

    source: Path = options.filename
    with progress_line.shown("Reading", quiet=options.json) as work:
        if source.is_dir() or not (source.exists() or "/" in str(source) or source.suffix):
            data = search_from.results(str(source))
        else:
            data = read_without_lines(source)
            if not isinstance(data, list):
                raise ConfigError('is not a list of {"parameter": {...}, "value": ...}', Place(str(source)))
            data = [search_from.unwrap_metric(item) for item in data]
        work.goes_on(f"Importing {len(data)} results")
        with access.running(options) as manager:
            count, known, warning = manager.import_data(data)
    if options.json:
        screen.show_json({"imported": count, "known": known})
    else:
        again = f"; {known} {'was' if known == 1 else 'were'} known already" if known else ""
        imported = screen.amount(len(data), "results")
        print(f"{count} of {imported} {'is' if count == 1 else 'are'} imported{again}.")
    if warning:
        warn(warning)


def delete(options: argparse.Namespace) -> None:
    if options.gone:
        _forget_gone(options)
        return
    if options.all:
        chosen = [entry for entry in registry.entries() if not (entry.is_running or entry.damage)]
    elif options.id is None:
        raise NotFound("Name the experiment to delete by its id, or give --all or --gone.")
    else:
        chosen = [removal.check_stopped(registry.find(options.id, damaged=True), "deleted")]
    if not (chosen or options.json):
        print("There is no stopped experiment.")
    deleted: list[str] = []
    for entry in chosen:
        warn_of_left(entry)
        name = screen.clean(entry.id)
        if options.yes or screen.confirm(f"Delete experiment {name} and all of {screen.clean(entry.directory)}?"):
            with progress_line.shown(f"Deleting {name}", quiet=options.json):
                removal.delete(entry)
            deleted.append(entry.id)
            sentence = f"Experiment {name} is deleted."
        else:
            sentence = f"Experiment {name} was not deleted; with --yes it is deleted without a question."
        if not options.json:
            print(sentence)
    if options.json:
        screen.show_json({"deleted": deleted})


def _forget_gone(options: argparse.Namespace) -> None:
    """Forget the experiments whose folders are gone. One that is there again, as its disk is mounted now, stays."""
    gone = [entry for entry in registry.entries() if registry.is_gone(entry)]
    folders = ", ".join(
        [screen.clean(entry.directory) for entry in gone[:_MOST_GONE]] + ["..."] * (len(gone) > _MOST_GONE)
    )
    amount = screen.amount(len(gone), "experiments")
    agreed = bool(gone) and (options.yes or screen.confirm(f"Forget {amount}, as these are gone: {folders}?"))
    forgotten = [entry.id for entry in gone if registry.is_gone(entry)] if agreed else []
    for experiment in forgotten:
        registry.remove(experiment)
    if options.json:
        screen.show_json({"deleted": forgotten})
    elif not gone:
        print("No experiment's folder is gone.")
    else:
        print(f"{amount} forgotten." if agreed else f"{amount} kept; --yes forgets without a question.")


def save(options: argparse.Namespace) -> None:
    from nnilite._cli import archive

    entry = removal.check_stopped(access.find(options), "saved")
    with progress_line.shown("Saving", quiet=options.json) as work:
        path = archive.save(entry, options.path, work, with_code=options.code)
    if options.json:
        screen.show_json({"id": entry.id, "file": str(path)})
    else:
        print(f"Experiment {entry.id} is saved in {path}.")


def load(options: argparse.Namespace) -> None:
    from nnilite._cli import unpack
    from nnilite._cli.archive_entries import MOST_FILES, ArchiveLimits

    limits = ArchiveLimits(options.max_files or MOST_FILES, options.max_size)
    if options.space is not None:
        warn("--searchSpacePath has no effect: the search space is in the experiment; `nnictl config show` prints it.")
    with progress_line.shown("Unpacking", quiet=options.json) as work:
        entry = unpack.load(options.path, options.directory, options.code, limits, work)
    if options.json:
        screen.show_json({"id": entry.id, "directory": str(entry.directory)})
        return
    if entry.origin is not None:
        print(f"Experiment {entry.id}, made by NNI, is in {entry.origin.directory}; `nnictl view {entry.id}` opens it.")
        return
    print(f"Experiment {entry.id} is in {entry.directory}; `nnictl view {entry.id}` opens it.")
    print(f"A resume runs its commands as you, and a replay its tuner; `nnictl config show {entry.id}` shows them.")
