"""The tuners and assessors that are installed.

You can add more as Python packages, or from a folder of your own with `className` and `codeDirectory` in the
configuration.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
from pathlib import Path
from types import NoneType

from nnilite._cli import arguments, screen
from nnilite._cli.platform import find_first_line
from nnilite._plugins import lookup, user_algorithms
from nnilite.errors import Conflict, NotFound, PluginError


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    listing = groups.add_parser("list", help="list all of them")
    listing.set_defaults(command=show_list)
    one = groups.add_parser("show", help="show one of them, with its arguments")
    one.add_argument("name")
    one.set_defaults(command=show)
    for parser in (listing, one):
        arguments.add_json_argument(parser)
    adding = groups.add_parser("register", aliases=["reg"], help="register a class of your own under a name")
    adding.add_argument(
        "-m",
        "--meta",
        "--meta_path",
        type=Path,
        required=True,
        metavar="FILE",
        help="YAML: algoType, builtinName, className, codeDirectory",
    )
    arguments.add_json_argument(adding)
    adding.set_defaults(command=register)
    removing = groups.add_parser("unregister", aliases=["unreg"], help="remove a registered name")
    removing.add_argument("name")
    arguments.add_json_argument(removing)
    removing.set_defaults(command=unregister)


def register(options: argparse.Namespace) -> None:
    """Register classes. Each is imported once, so that a wrong path is reported now and not in the next experiment."""
    from nnilite.yaml_files import load_yaml

    meta = load_yaml(options.meta)
    registered: list[dict[str, str]] = []
    for entry in user_algorithms.read_meta(meta, options.meta):
        group = lookup.TUNERS if entry.kind == "tuner" else lookup.ASSESSORS
        if lookup.is_installed(group, entry.name):
            raise Conflict(f"{entry.name} is an installed {entry.kind}; choose another builtinName.")
        _check(group, entry, options.meta)
        user_algorithms.register(entry)
        registered.append({"name": entry.name, "type": entry.kind})
        if not options.json:
            print(f"The {entry.kind} {entry.name} is registered.")
    if options.json:
        screen.show_json(registered)


def _check(group: str, entry: user_algorithms.Registered, meta: Path) -> None:
    try:
        lookup.check_class(group, entry.entry_point(group))
    except PluginError as error:
        if entry.code_directory:
            raise
        raise PluginError(f"{error} If it is a file of yours, set codeDirectory in {meta} to its folder.") from error


def unregister(options: argparse.Namespace) -> None:
    entry = user_algorithms.unregister(options.name)
    if options.json:
        screen.show_json({"name": entry.name, "type": entry.kind})
    else:
        print(f"{entry.name} is no longer registered.")


def show_list(options: argparse.Namespace) -> None:
    found = [_describe(kind, name) for kind, name in _all()]
    if options.json:
        screen.show_json(found)
        return
    rows = [(row["name"], row["type"], row["description"]) for row in found]
    screen.show_table(("NAME", "TYPE", "DESCRIPTION"), rows, "No tuner and no assessor is installed.")


def show(options: argparse.Namespace) -> None:
    wanted = options.name.lower()
    for kind, name in _all():
        # NNI's names of assessors end in their kind: MedianstopAssessor is what a user may remember.
        if wanted in (name.lower(), f"{name}{kind}".lower()):
            _show_one(kind, name, options)
            return
    names = [name for _, name in _all()]
    close = difflib.get_close_matches(wanted, [name.lower() for name in names], 1)
    meant = [name for name in names if name.lower() in close]
    cure = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(names)}."
    raise NotFound(f"There is no tuner or assessor {options.name!r}; {cure}")


def _show_one(kind: str, name: str, options: argparse.Namespace) -> None:
    plugin = _class(kind, name)
    if options.json:
        screen.show_json({**_describe(kind, name), "classArgs": _arguments(plugin)})
        return
    screen.show_facts({"Name": name, "Type": kind, "Class": f"{plugin.__module__}.{plugin.__qualname__}"})
    rows = [(one["name"], "required" if one["required"] else repr(one["default"])) for one in _arguments(plugin)]
    print()
    print(inspect.cleandoc(plugin.__doc__ or ""))
    print()
    screen.show_table(("ARGUMENT", "DEFAULT"), rows, "It takes no arguments.")


def _all() -> list[tuple[str, str]]:
    groups = (("tuner", lookup.TUNERS), ("assessor", lookup.ASSESSORS))
    return [(kind, name) for kind, group in groups for name in lookup.names(group)]


def _class(kind: str, name: str) -> type:
    return lookup.tuner_class(name) if kind == "tuner" else lookup.assessor_class(name)


def _describe(kind: str, name: str) -> dict[str, object]:
    try:
        description = find_first_line(_class(kind, name))
    except PluginError as error:
        description = str(error)
    return {"name": name, "type": kind, "description": description}


def _arguments(plugin: type) -> list[dict[str, object]]:
    """Return the arguments of its constructor, which are the `classArgs` of a configuration, with their defaults."""
    found = inspect.signature(plugin).parameters.values()
    named = [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return [{"name": one.name, "required": one.default is one.empty, "default": _default(one)} for one in named]


def _default(argument: inspect.Parameter) -> object:
    """Return the default of an argument as JSON, or as a text if JSON cannot have it."""
    default = None if argument.default is argument.empty else argument.default
    return default if isinstance(default, (str, int, float, NoneType)) else repr(default)
