"""Print a script that makes a shell complete nnictl's commands, options, files and ids of experiments.

bash, in ~/.bashrc:                eval "$(nnictl completion bash)"
zsh, in ~/.zshrc after compinit:   eval "$(nnictl completion zsh)"
fish:  nnictl completion fish > ~/.config/fish/completions/nnictl.fish
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from nnilite._cli.command_line import Parser
from nnilite._cli.nnictl import COMMANDS
from nnilite.errors import NniliteError

SHELLS = ("bash", "zsh", "fish")

# A shell lists the files that make experiments known; to start Python at each key would take too long.
_IDS = (
    """sh -c 'ls "${NNILITE_HOME:-$HOME/nni-experiments}/.nnilite" 2>/dev/null"""
    """ | sed -n "s/^\\([A-Za-z0-9_-]*\\)[.]json\\$/\\1/p"'"""
)

# zsh would run the command at its start only, and fish would take a part of it for variables of its own.
_FUNCTIONS = {
    "zsh": f'__nnictl_ids() {{\n  local -a ids=(${{(f)"$({_IDS})"}})\n  compadd -a ids\n}}\n',
    "fish": f"function __nnictl_ids\n  {_IDS}\nend\n",
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(command=completion)


def completion(options: argparse.Namespace) -> None:
    import shtab

    parser = _whole()
    for each in _walk_parsers(parser):
        for action in each._actions:
            if action.dest in ("id", "names") and "experiment" in (action.help or ""):
                action.complete = {**shtab.cmd(_IDS), "zsh": "__nnictl_ids", "fish": "(__nnictl_ids)"}
            elif action.type is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
    print(_FUNCTIONS.get(options.shell, "") + shtab.complete(parser, shell=options.shell))


def _whole() -> Parser:
    """Return the parser of nnictl with the options of all commands."""
    parser = Parser(prog="nnictl")
    parser.add_argument("-v", "--version", action="store_true", help="print the version")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    groups = parser.add_subparsers(prog="nnictl", parser_class=Parser)
    for name, text in COMMANDS.items():
        command = groups.add_parser(name, help=text)
        try:
            importlib.import_module(f"nnilite._cli.{name}").add(command)
        except NniliteError:
            # Its arguments are those of a plugin that lacks something; its name alone is completed.
            continue
    return parser


def _walk_parsers(parser: argparse.ArgumentParser) -> list[Any]:
    """Return a parser and all below it."""
    found: list[Any] = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found += _walk_parsers(below)
    return found
