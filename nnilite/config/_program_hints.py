"""Finds why the programs of a trial command would not start: a script, folder or file that is missing."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nnilite._keeper.plain_file import open_code_file
from nnilite.services.trial_command import StartedProgram, read_programs
from nnilite.services.worker_side import is_folder_there, is_there

SCRIPTS = (".py", ".sh", ".r", ".jl", ".js", ".pl", ".rb")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_RUN_BY = {
    ".py": "python3",
    ".sh": "bash",
    ".r": "Rscript",
    ".jl": "julia",
    ".js": "node",
    ".pl": "perl",
    ".rb": "ruby",
}
_OTHER_SIGNS = re.compile(r"[$`*?\[\]{}~=]")
"""With any of these a shell may make the name, or it names nothing."""
_READ_FROM = re.compile(r"--?(?:\w[\w-]*[-_])?(?:config|cfg|conf|params|hparams)(?:[-_](?:file|path))?")
_READ = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
_OURS = ("nni", "nnilite")


def find_program_faults(command: str, code: Path) -> Iterator[str]:
    """Yield sentences on what a command names and is missing in the folder `code`, in which it runs."""
    try:
        if not code.is_dir():
            return
        for program in read_programs(command, code):
            faults = list(dict.fromkeys(_find_faults(program)))
            yield from faults
            if faults:
                return
    except OSError:  # a name that is too long, or a folder of another user
        return


def _find_faults(program: StartedProgram) -> Iterator[str]:
    first, *rest = program.words
    folder = program.folder
    if first == "cd":
        if not is_folder_there(folder / rest[0]):
            yield f"there is no folder {rest[0]} in {folder}"
        return
    if first in {".", "source"}:
        if rest and _is_missing(rest[0], folder):
            yield _say_missing(rest[0], folder)
        return
    yield from _find_own_program(first, folder)
    script = _script_of(program.words)
    if script:
        yield from _find_script(script, folder)
    for word in rest:
        if word.lower().endswith(SCRIPTS) and " " not in word and _is_missing(word, folder):
            yield _say_missing(word, folder)
    yield from _find_read_files(rest, folder)


def _find_own_program(word: str, folder: Path) -> Iterator[str]:
    """Yield why the first word, if it is a file of the folder, does not start."""
    path = folder / word
    runner = _RUN_BY.get(path.suffix.lower(), "")
    if "/" not in word and runner and path.is_file():
        yield f"no shell looks for {word} in its own folder; write {runner} {word}"
    elif "/" in word and not word.startswith(("/", "~")) and not _OTHER_SIGNS.search(word):
        if not is_there(path):
            yield _say_missing(word, folder)
        elif path.is_dir():
            yield f"{word} is a folder, which no shell runs; write python3 and the script in it"
        elif not os.access(path, os.X_OK):
            cure = f"write {runner} {word.removeprefix('./')}" if runner else f"`chmod +x {word}` mends that"
            yield f"{word} may not be executed (it has no x in its mode); {cure}"
        elif path.suffix.lower() != ".sh" and path.is_file() and _has_odd_first_line(path):
            yield f"{word}: its first line ends as on Windows (CRLF); `sed -i 's/\\r$//' {word}` mends that"


def _has_odd_first_line(path: Path) -> bool:
    """Return whether a script names an interpreter with a carriage return at the end, which no system finds."""
    try:
        with open_code_file(path) as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except OSError:
        return False
    return first.startswith(b"#!") and first.endswith(b"\r\n")


_LONGEST_FIRST_LINE = 256


def _script_of(words: tuple[str, ...]) -> str:
    """Return the script that Python or a shell is given, `-m NAME` for a module; "" for none, or an unknown program."""
    name = PurePosixPath(words[0]).name
    is_python = _PYTHON.fullmatch(name) is not None
    if not is_python and name not in {"bash", "sh", "zsh", "dash"}:
        return ""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-m" and is_python:
            return f"-m {rest[0]}" if rest else ""
        if option in {"-c", "-", "-s", "--"}:
            return ""
        if option in {"-W", "-X", "-o"} and rest:
            rest.pop(0)
    return rest[0] if rest else ""


def _find_script(script: str, folder: Path) -> Iterator[str]:
    if script.startswith("-m "):
        module = script.removeprefix("-m ")
        if module.endswith(".py"):
            plain = module.removesuffix(".py")
            name = plain.replace("/", ".")
            yield f"-m takes the name of a module, not of a file; write python3 {module}, or -m {name}"
        return
    if _OTHER_SIGNS.search(script) or Path(script).is_absolute():
        return
    path = folder / script
    if not is_there(path):
        yield _say_missing(script, folder)
    elif path.is_dir() and not is_there(path / "__main__.py"):
        yield f"{script} is a folder without __main__.py, which Python does not run; write the script in it"
    for name in _OURS:
        own = path.parent / f"{name}.py"
        if own.is_file():
            yield f"{own} is what `import {name}` finds instead of the trial's functions; rename it"


def _find_read_files(words: list[str], folder: Path) -> Iterator[str]:
    """Yield the configuration files of the program that are missing; it may make other files itself."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        option, is_joined, value = word.partition("=")
        name = value if is_joined else following
        if _READ_FROM.fullmatch(option) and name.lower().endswith(_READ) and _is_missing(name, folder):
            yield _say_missing(name, folder)


def _is_missing(name: str, folder: Path) -> bool:
    """Return whether a file is certainly not in the folder; False where a shell makes the name, or it is elsewhere."""
    return not _OTHER_SIGNS.search(name) and not Path(name).is_absolute() and not is_there(folder / name)


def _say_missing(name: str, folder: Path) -> str:
    place = (folder / name).parent
    suffix = PurePosixPath(name).suffix
    kinds = suffix if suffix in (*SCRIPTS, *_READ) else (*SCRIPTS, *_READ)
    there = [one.name for one in place.iterdir() if one.name.endswith(kinds)] if place.is_dir() else []
    close = difflib.get_close_matches(PurePosixPath(name).name, sorted(there)[:10_000], 1, 0.75)
    meant = str(PurePosixPath(name).with_name(close[0])) if close else ""
    return f"there is no {name} in {folder}" + (f"; did you mean {meant}?" if meant else "")
