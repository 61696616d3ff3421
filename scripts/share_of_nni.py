"""Measures how much of NNI's public interface is here: what `make docs` writes to docs/reference/share-of-nni.md.

NNI's names are in `nni_3_names.yaml`. Whether one is here is looked up in the commands, routes, fields and modules
themselves; why one is not here, or differs, is said in that file, and has to be. A name in Python that is here has to
be used by a test.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nnilite import Experiment
from nnilite._cli import nnictl
from nnilite._keeper import SHIM
from nnilite._keeper.trial_environment import _NOT_FOR_TRIALS
from nnilite._plugins import lookup
from nnilite._rest.nni_routes import NNI_ROUTES
from nnilite.config import AlgorithmConfig, ExperimentConfig
from nnilite.config._record import record_of
from nnilite.config._services import SHORTCUTS, find_service_record
from nnilite.errors import ConfigError, PluginError

NAMES = Path(__file__).with_name("nni_3_names.yaml")
SOURCES = Path(__file__).resolve().parent.parent / "nnilite"
TESTS = SOURCES.parent / "tests"

INTRODUCTION = """\
# How much of NNI is here

This page compares the public names of NNI 3.0 with what nnilite has. What is here is looked up in the program.
The names in Python are those of NNI's reference, of its own tests, and of lines of public programs that import them;
one that is here is used by a test.
[What differs from NNI](../explanation/what-differs-from-nni.md) describes the differences in behaviour.

| | of NNI | here | here, with a difference | not here |
| --- | --- | --- | --- | --- |
"""
NNICTL = """\
## NNI's own nnictl

NNI's `nnictl` knows experiments by its own list, `~/nni-experiments/.experiment`, which nnilite never writes, so it
does not find those of nnilite. With an entry of one there, written by hand, its commands work that ask the manager
(`experiment show`, `status`, `export`, `trial ls`, `kill`, `update`, `stop`), and so do `log stdout` and `stderr`. Four
cannot work, as they read the configuration from NNI's database instead: `config show`, `log trial`, `resume` and
`view`. They end in `unable to open database file`; the same commands of nnilite's `nnictl` work.
"""


@dataclass(frozen=True)
class Name:
    """One name of NNI: `key` as in the file, and whether it is here."""

    key: str
    here: bool


def page() -> str:
    """Return the page. Raises: ValueError for a name that is missing without a reason, or a reason without a name."""
    data = yaml.safe_load(NAMES.read_text("utf-8"))
    missing, differs = data["missing"], data["differs"]
    rows, parts, used = [], [], set()
    for title, names in _areas(data).items():
        gone = [name for name in names if not name.here]
        odd = [name for name in names if name.here and name.key in differs]
        rows.append(f"| {title} | {len(names)} | {len(names) - len(gone) - len(odd)} | {len(odd)} | {len(gone)} |")
        differences = [(name.key, "differs", differs[name.key]) for name in odd]
        differences += [(name.key, "not here", _find_reason(name.key, missing)) for name in gone]
        used |= {key for key, _, _ in differences}
        if differences:
            lines = "\n".join(f"| `{key}` | {word} | {why} |" for key, word, why in differences)
            parts.append(f"## {title}\n\n| | | |\n| --- | --- | --- |\n{lines}\n")
    unused = sorted({*missing, *differs} - used)
    if unused:
        raise ValueError(f"{NAMES.name} has reasons for names that need none: {', '.join(unused)}")
    return INTRODUCTION + "\n".join(rows) + "\n\n" + "\n".join([*parts, NNICTL])


def _find_reason(key: str, missing: Mapping[str, str]) -> str:
    if key not in missing:
        raise ValueError(f"{key} of NNI is not here, and {NAMES.name} does not say why")
    return missing[key]


def _areas(data: Mapping[str, Any]) -> dict[str, list[Name]]:
    commands, options = _commands()
    routes = {f"{method} {route.path}" for route in NNI_ROUTES for method in route.operations}
    sources = "\n".join(path.read_text("utf-8") for part in ("_keeper", "_tuner_host") for path in _python(part))
    sources += (SOURCES / "_plugins" / "user_algorithms.py").read_text("utf-8")
    return {
        "Commands of nnictl": [Name(name, name in commands) for name in data["commands"]],
        "Options of commands": [
            Name(f"{name} {option}", option in options.get(name, ()))
            for name, known in data["commands"].items()
            for option in known
        ],
        "REST routes": [Name(route, route.replace(" /", " /nni/", 1) in routes) for route in data["routes"]],
        "Fields of the configuration": list(_fields(data["config"])),
        "Tuners and assessors": [Name(name, _is_installed(name)) for name in data["algorithms"]],
        "Names in Python": list(_python_names(data["python"])),
        "Methods of Experiment": [Name(f"Experiment.{name}", hasattr(Experiment, name)) for name in data["experiment"]],
        "Environment variables": [
            Name(name, f'"{name}"' in sources and name not in _NOT_FOR_TRIALS) for name in data["environment"]
        ],
    }


def _python(folder: str) -> Iterator[Path]:
    yield from sorted((SOURCES / folder).glob("*.py"))


def _commands() -> tuple[set[str], dict[str, set[str]]]:
    options: dict[str, set[str]] = {}
    for name in nnictl.COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"nnilite._cli.{name}").add(parser)
        _walk(parser, name, options)
    return set(options), options


def _walk(parser: argparse.ArgumentParser, name: str, found: dict[str, set[str]]) -> None:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        for word, inner in group.choices.items():
            _walk(inner, f"{name} {word}", found)
    if not groups:
        found[name] = {option for action in parser._actions for option in action.option_strings}


def _fields(config: Mapping[str, list[str]]) -> Iterator[Name]:
    for part, names in config.items():
        known = _entries(part)
        for name in names:
            yield Name(f"{part}: {name}", known(name))


def _entries(part: str) -> Callable[[str], bool]:
    own = {"experiment": ExperimentConfig, "tuner": AlgorithmConfig}.get(part)
    try:
        record = record_of(own) if own is not None else find_service_record(part)
    except ConfigError:
        return lambda name: False
    return lambda name: record.entry(name) is not None or (own is None and SHORTCUTS.entry(name) is not None)


def _is_installed(name: str) -> bool:
    for find in (lookup.tuner_class, lookup.assessor_class):
        try:
            find(name)
        except PluginError:
            continue
        return True
    return False


def _python_names(modules: Mapping[str, list[str]]) -> Iterator[Name]:
    sys.path.insert(0, str(SHIM))
    tests = [path.read_text("utf-8") for path in sorted(TESTS.rglob("*.py"))]
    tests = [text for text in tests if "nni." in text]
    for module, names in modules.items():
        for name in names:
            here = _has(module, name)
            if here and not any(_mentions(text, module, name) for text in tests):
                raise ValueError(f"{module}.{name} is here, but no test uses it")
            yield Name(f"{module}.{name}", here)


def _mentions(text: str, module: str, name: str) -> bool:
    # Tests name the modules of tuners and assessors by their last part.
    short = module.removeprefix("nni.algorithms.hpo.")
    return all(re.search(rf"\b{re.escape(word)}\b", text) for word in (short, name))


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False
