"""Tags and a note for trials, which `nnictl trial remark` changes, also those of a stopped experiment."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from nnilite._cli import access, arguments, screen, trial_names
from nnilite._running.manager_client import Client
from nnilite.errors import ConfigError


def add(groups: Any) -> None:
    """Add the command to those of `nnictl trial`."""
    parser = groups.add_parser("remark", help="tag trials, or write a note about them")
    trial_names.add(parser, several=True)
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="add this tag")
    parser.add_argument("--untag", action="append", default=[], metavar="TAG", help="remove this tag")
    parser.add_argument("--note", metavar="TEXT", help="replace their note with this one; '' removes it")
    arguments.add_json_argument(parser)
    parser.set_defaults(command=remark)


def remark(options: argparse.Namespace) -> None:
    options.tag, options.untag = _separate(options.tag), _separate(options.untag)
    if not options.tag and not options.untag and options.note is None:
        raise ConfigError("say what to change: --tag, --untag or --note")
    both = sorted(set(options.tag) & set(options.untag))
    if both:
        raise ConfigError(f"--tag and --untag: both name {screen.clean(both[0])}")
    with access.reading(options) as manager:
        # All are asked for before the first is changed, so that a wrong id changes nothing.
        known = [manager.remarks(trial) for trial in dict.fromkeys(options.trials)]
        kept = [_changed(manager, remarks, options) for remarks in known]
    if options.json:
        screen.show_json(kept)
        return
    for one in kept:
        print(f"Trial {one['trial']}: {join_tags(one['tags']) or 'no tags'}{', with a note' if one['note'] else ''}.")


def _changed(manager: Client, known: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    tags = [tag for tag in dict.fromkeys([*known["tags"], *options.tag]) if tag not in options.untag]
    note = known["note"] if options.note is None else options.note
    if (tags, note) == (known["tags"], known["note"]):
        return known
    return manager.remark(known["trial"], tags=tags, note=note, revision=known["revision"])


def _separate(given: Iterable[str]) -> list[str]:
    """Return the tags that commas separate, as on the web page."""
    return [tag.strip() for text in given for tag in text.split(",") if tag.strip()]


def join_tags(tags: Iterable[str]) -> str:
    return ", ".join(screen.clean(tag) for tag in tags)
