"""Finds probable mistakes in a trial command: a missing script, or quotes of a word processor."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

_SCRIPTS = (".py", ".sh", ".r", ".jl", ".js", ".pl", ".rb")
_CURLY_QUOTES = "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\
\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
# With any of these a shell may make the name, or look for it in another folder.
_SHELL = set("$`*?[]{}~<>|&;()")


def command_hints(command: str, code: Path) -> list[str]:
    """Return sentences on a trial command that runs in a copy of the folder `code`."""
    hints = []
    curly = next((sign for sign in command if sign in _CURLY_QUOTES), None)
    if curly is not None:
        hints.append(
            f"trialCommand: no shell accepts {curly}, a quotation mark of word processors; type ' or \" instead"
        )
    hints += [f"trialCommand: there is no {word} in {code}" for word in _missing_scripts(command, code)]
    return hints


def _missing_scripts(command: str, code: Path) -> list[str]:
    """Return the words that name missing scripts; none where the shell decides on names and folders."""
    if set(command) & _SHELL:
        return []
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its end, of which the shell complains
        return []
    scripts = [word for word in words if word.lower().endswith(_SCRIPTS) and "=" not in word]
    return [word for word in scripts if not PurePosixPath(word).is_absolute() and _is_missing(word, code)]


def _is_missing(script: str, code: Path) -> bool:
    """Return whether a script is certainly not in the folder; False where that cannot be examined."""
    try:
        return code.is_dir() and not (code / script).exists()
    except OSError:  # a name that is too long, or a folder of another user
        return False
