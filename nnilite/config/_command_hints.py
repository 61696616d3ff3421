"""Finds probable mistakes in a trial command: missing scripts, NNI's annotations, quotes of a word processor.

Paths of Windows and lines of a notebook are others.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

_SCRIPTS = (".py", ".sh", ".r", ".jl", ".js", ".pl", ".rb")
_CURLY_QUOTES = "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\
\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_ANNOTATION = re.compile(rb"^[ \t]*['\"]{1,3}@nni\.(variable|function_choice|report_)", re.MULTILINE)
_MOST_BYTES = 1 << 20
_MOST_PARSED_BYTES = 200_000
_DRIVE = re.compile(r"(?<![\w/:])[A-Za-z]:[\\/][^\s'\"]*")
_BACKSLASHES = re.compile(r"(?<!\S)[\w.-]+(?:\\[\w.-]+)+\.\w+(?!\S)")
_NOTEBOOK = re.compile(r"\s*(?:[%!]\w|get_ipython\(\))")
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
    hints += list(_find_windows_paths(command))
    scripts = [] if hints else _scripts(command)
    hints += [f"trialCommand: there is no {word} in {code}" for word in scripts if _is_missing(word, code)]
    hints += [
        f"trialCommand: {word} has annotations of NNI, which do nothing by themselves; `nnictl config expand FILE` "
        "makes a program with calls of them"
        for word in scripts
        if _is_annotated(code / word)
    ]
    hints += [f"trialCommand: {word}{fault}" for word in scripts if (fault := _find_fault(code / word))]
    return hints


def _find_windows_paths(command: str) -> Iterator[str]:
    drive, backslashes = _DRIVE.search(command), _BACKSLASHES.search(command)
    if drive is not None:
        yield f"trialCommand: {drive[0]} is a path of Windows, which machines with another system do not have"
    elif backslashes is not None:
        written = backslashes[0].replace("\\", "/").removeprefix("./")
        yield f"trialCommand: {backslashes[0]} is a path for Windows alone; write {written}, which works everywhere"


def _find_fault(script: Path) -> str:
    """Return why Python does not run a script: the end of a sentence; "" if it does, or that is not known."""
    try:
        facts = script.stat()
    except OSError:
        return ""
    if script.suffix.lower() != ".py" or facts.st_size > _MOST_PARSED_BYTES:
        return ""
    return _parse(script, facts.st_mtime_ns)


def parse_program(source: bytes) -> ast.Module:
    """Return the parts of a program. Raises: SyntaxError, ValueError, RecursionError, MemoryError."""
    with warnings.catch_warnings():  # of a backslash that begins nothing
        warnings.simplefilter("ignore")
        return ast.parse(source)


@lru_cache(maxsize=32)
def _parse(script: Path, changed_ns: int) -> str:
    """Do the work of `_find_fault` once for each state of a file."""
    try:
        source = script.read_bytes()
        tree = parse_program(source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        if _NOTEBOOK.match(line):
            return f", line {error.lineno}: {line:.60} is for notebooks, and Python does not run it; remove the line"
        return f", line {error.lineno}: this Python does not run it: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError):
        return ""
    lines = source.splitlines()
    first = next((one for one in tree.body if _NOTEBOOK.match(lines[one.lineno - 1].decode("utf-8", "replace"))), None)
    if first is None:
        return ""
    return f", line {first.lineno}: get_ipython() is there in notebooks alone; remove the line"


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
