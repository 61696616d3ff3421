"""Show an experiment's configuration or the schema of configurations, or convert another program's file.

`expand` turns NNI's annotations into calls, in a copy of the program.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from nnilite._cli import access, arguments, screen
from nnilite.errors import ConfigError, Place


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    one = groups.add_parser("show", help="the configuration of an experiment, as JSON, without its secrets")
    arguments.add_experiment_argument(one)
    one.set_defaults(command=show)
    fields = groups.add_parser("schema", help="the JSON Schema of configurations, for editors")
    fields.set_defaults(command=schema)
    for each in (one, fields):
        arguments.add_json_argument(each, "print JSON, which is also the default")
    other = groups.add_parser("convert", help="convert a file of another program to a configuration")
    other.add_argument("file", type=Path, metavar="FILE", help="the file (YAML, JSON or TOML)")
    origin = "the program that the file is for, such as openpai"
    other.add_argument("--from", dest="origin", required=True, metavar="NAME", help=origin)
    arguments.add_json_argument(other, "print JSON instead of YAML")
    other.set_defaults(command=convert)
    noted = groups.add_parser("expand", help="turn NNI's annotations (useAnnotation) into calls, in a copy of the code")
    noted.add_argument("file", type=Path, metavar="FILE", help="the configuration, which stays as it is")
    noted.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="new folder (default: that of the code, with -expanded)"
    )
    arguments.add_json_argument(noted)
    noted.set_defaults(command=expand)


def show(options: argparse.Namespace) -> None:
    with access.reading(options) as manager:
        screen.show_json(manager.profile()["config"])


def schema(options: argparse.Namespace) -> None:
    from nnilite.config import json_schema

    screen.show_json(json_schema())


def convert(options: argparse.Namespace) -> None:
    import yaml

    from nnilite._cli.nnictl import warn
    from nnilite._plugins import lookup
    from nnilite.config.text import read_toml, read_yaml

    converter = lookup.converter(options.origin)
    read = read_toml if options.file.suffix.lower() == ".toml" else read_yaml
    document, source = read(options.file)
    if not isinstance(document, Mapping):
        raise ConfigError("is not a mapping of fields", Place(str(options.file)))
    try:
        converted = converter(document)
    except ConfigError as error:
        place = source.place(tuple(_part(part) for part in (error.place.field or "").split(".") if part))
        raise ConfigError(error.message, place) from error
    for note in converted.notes:
        warn(f"{note}.")
    if options.json:
        screen.show_json(converted.config)
    else:
        for comment in converted.comments:
            print(f"# {screen.clean(comment)}")
        print(yaml.safe_dump(dict(converted.config), sort_keys=False, allow_unicode=True, width=100), end="")


def expand(options: argparse.Namespace) -> None:
    from nnilite._nni import annotated_configs

    written = annotated_configs.expand(options.file, options.output)
    if options.json:
        screen.show_json({"config": str(written.config), "code": str(written.code), "searchSpace": written.space})
        return
    size = f"{len(written.space)} {'parameter' if len(written.space) == 1 else 'parameters'}"
    print(f"The program is in {written.code}, with its search space of {size}.")
    print(f"Start it with `nnictl create --config {screen.clean(str(written.config))}`.")


def _part(text: str) -> str | int:
    """Parse a part of a dotted path: a key, or the position in a list."""
    return int(text) if text.isdecimal() else text
