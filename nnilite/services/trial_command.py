"""Reads of a trial command which programs a shell would start, and where: only as far as that is certain.

Folders that the command goes to first (`cd src && python3 train.py`) count. Behind a command that may make files or
change where programs are found, nothing is certain any more.
"""

from __future__ import annotations

import difflib
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nnilite._keeper.command_start import SHELL_WORDS

__all__ = ["StartedProgram", "find_missing_program", "find_other_python", "has_open_quote", "read_programs"]

_SEPARATORS = "();<>|&\n"
_IN_A_ROW = {";", "&&", "\n"}
_SETTING_UP = {"export", "set", "ulimit", "umask", "module", "conda", "source", ".", "echo", "true", "nvidia-smi"}
"""What may come first and makes no file that the trial's program would be."""
_IN_FRONT = {"time", "nohup", "exec", "nice", "command", "env"}
"""Programs that start the one behind them."""
_SHELLS = {"sh", "bash", "dash", "zsh"}
_UNCERTAIN = re.compile(r"[$`*?\[\]{}~\\]")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[\d.]*")


class StartedProgram(NamedTuple):
    """A program that the command starts: its words, and the folder in which it does."""

    words: tuple[str, ...]
    folder: Path
    is_set_up: bool  # whether something before it may have changed where programs are found


def has_open_quote(command: str) -> bool:
    """Return whether a quotation mark has no counterpart, so that no shell runs the command."""
    try:
        shlex.split(command)
    except ValueError as error:
        return "quotation" in str(error)
    return False


def read_programs(command: str, folder: Path) -> Iterator[StartedProgram]:
    """Yield the programs that a command certainly starts, from its beginning, in `folder` or below."""
    is_set_up = False
    for words, ends_certainly in _simple_commands(command):
        words = _without_front(words)
        if not words or _UNCERTAIN.search(words[0].lstrip("~")):
            return
        if words[0] in _SHELLS and len(words) > 2 and words[1] in {"-c", "-lc", "-ec"}:
            yield from read_programs(words[2], folder)
            return
        if words[0] == "cd":
            if len(words) != 2 or _UNCERTAIN.search(words[1]) or not ends_certainly:
                return
            yield StartedProgram(tuple(words), folder, is_set_up)
            folder = folder / words[1]
            continue
        yield StartedProgram(tuple(words), folder, is_set_up)
        if words[0] not in _SETTING_UP or not ends_certainly:
            return
        is_set_up = True


def find_missing_program(command: str, folder: Path) -> str:
    """Return why this machine cannot start the program of a command: the end of a sentence; "" if it can, or may."""
    programs = list(read_programs(command, folder))
    if not programs or programs[-1].is_set_up:
        return ""
    word = programs[-1].words[0]
    if word in SHELL_WORDS or "=" in word or not word.isprintable():
        return ""
    if "/" in word:
        path = Path(word)
        return f"this machine has no {word}" if path.is_absolute() and not path.exists() else ""
    if shutil.which(word) is not None:
        return ""
    common = ["python3", "python", "bash", "sh", "Rscript", "julia", "node", "perl", "mpirun", "torchrun"]
    close = next((one for one in difflib.get_close_matches(word, common, 5, 0.75) if shutil.which(one)), "")
    return f"this machine has no program {word}" + (f"; did you mean {close}?" if close else "")


def find_other_python(command: str, folder: Path) -> str:
    """Return that a command's Python is not that of the project in `folder`: the end of a sentence; "" if it is.

    A Python of any environment, such as one that was activated, is taken for the one that is wanted.
    """
    programs = list(read_programs(command, folder))
    word = programs[-1].words[0] if programs and not programs[-1].is_set_up else ""
    found = shutil.which(word) if _PYTHON.fullmatch(word) else None
    environment = _find_environment(folder)
    if found is None or environment is None or _is_environment(Path(found).absolute().parent.parent):
        return ""
    own = shlex.quote(str(environment / "bin" / word))
    return f"{word} is {found}, which lacks what is installed in {environment}; write {own}, or activate it first"


def _find_environment(folder: Path) -> Path | None:
    """Return the virtual environment of a project: in its folder or, in a repository, further out."""
    repository = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    places = (place for place in (folder, *folder.parents) if place.is_relative_to(repository))
    return next((place / ".venv" for place in places if _is_environment(place / ".venv")), None)


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


def _simple_commands(command: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each command of a line, and whether the next one comes after it whatever it does."""
    reader = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=_SEPARATORS)
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    words: list[str] = []
    certain, to_file = True, False
    try:
        tokens = list(reader)
    except ValueError:  # a quote without its end, of which the shell complains
        return
    for token in tokens:
        if not token or set(token) - set(_SEPARATORS):
            words += [] if to_file else [token]
            to_file = False
            continue
        if set(token) & set("<>"):  # a file that is made may be the program of the next command
            certain, to_file = False, True
            continue
        if "(" in token or ")" in token:
            return
        if words:
            yield words, certain and (token.strip("\n") or "\n") in _IN_A_ROW
        words = []
    if words:
        yield words, certain


def _without_front(words: list[str]) -> list[str]:
    """Return the words from the program on: without variables, and without programs that start it."""
    while words and (_VARIABLE.match(words[0]) or (words[0] in _IN_FRONT and len(words) > 1)):
        words = words[1:]
    return [] if words and words[0].startswith("-") else words
