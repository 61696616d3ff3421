"""Finds probable mistakes in a trial command: missing scripts, NNI's annotations, quotes of a word processor."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

_SCRIPTS = (".py", ".sh", ".r", ".jl", ".js", ".pl", ".rb")
_CURLY_QUOTES = "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\
\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_ANNOTATION = re.compile(rb"^[ \t]*['\"]{1,3}@nni\.(variable|function_choice|report_)", re.MULTILINE)
_MOST_BYTES = 1 << 20
# With any of these a shell may make the name, or look for it in another folder.
_SHELL = set("$`*?[]{}~<>|&;()")


def find_command_hints(command: str, code: Path) -> list[str]:
    """Return sentences on a trial command that runs in a copy of the folder `code`."""
    hints = []
    curly = next((sign for sign in command if sign in _CURLY_QUOTES), None)
    if curly is not None:
        hints.append(
            f"trialCommand: no shell accepts {curly}, a quotation mark of word processors; type ' or \" instead"
        )
    scripts = _scripts(command)
    hints += [f"trialCommand: there is no {word} in {code}" for word in scripts if _is_missing(word, code)]
    hints += [
        f"trialCommand: {word} has annotations of NNI, which do nothing by themselves; `nnictl config expand FILE` "
        "makes a program with calls of them"
        for word in scripts
        if _is_annotated(code / word)
    ]
    return hints


def _scripts(command: str) -> list[str]:
    """Return the words that name scripts in the folder; none where the shell decides on names and folders."""
    if set(command) & _SHELL:
        return []
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its end, of which the shell complains
        return []
    scripts = [word for word in words if word.lower().endswith(_SCRIPTS) and "=" not in word]
    return [word for word in scripts if not PurePosixPath(word).is_absolute()]


def _is_missing(script: str, code: Path) -> bool:
    """Return whether a script is certainly not in the folder; False where that cannot be examined."""
    try:
        return code.is_dir() and not (code / script).exists()
    except OSError:  # a name that is too long, or a folder of another user
        return False


def _is_annotated(script: Path) -> bool:
    """Return whether a program has annotations that report or that describe parameters."""
    try:
        if not script.is_file():
            return False
        with script.open("rb") as file:
            return _ANNOTATION.search(file.read(_MOST_BYTES)) is not None
    except OSError:
        return False
