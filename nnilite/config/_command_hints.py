"""Finds probable mistakes in a trial command: missing scripts, NNI's annotations, quotes of a word processor.

Paths of Windows and lines of a notebook are others.
"""

from __future__ import annotations

import ast
import re
import shlex
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from nnilite._keeper.plain_file import open_code_file
from nnilite.config._program_hints import SCRIPTS, find_program_faults
from nnilite.services.trial_command import has_open_quote

_CURLY_QUOTES = "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\
\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_ANNOTATION = re.compile(rb"^[ \t]*['\"]{1,3}@nni\.(variable|function_choice|report_)", re.MULTILINE)
_MOST_BYTES = 1 << 20
_MOST_PARSED_BYTES = 200_000
_DRIVE = re.compile(r"(?<![\w/:])[A-Za-z]:[\\/][^\s'\"]*")
_BACKSLASHES = re.compile(r"(?<!\S)[\w.-]+(?:\\[\w.-]+)+\.\w+(?!\S)")
_NOTEBOOK = re.compile(r"\s*(?:[%!]\w|get_ipython\(\))")
_STAND_IN = re.compile(r"\$?\{{1,2}\s*([\w.]+)\s*\}{1,2}|\$(\w+)|%\((\w+)\)s|(?<=[\s=])<(\w+)>(?=\s|$)")
"""Where other programs write the value of a parameter, as in --lr {lr}, ${trialParameters.lr}, $lr or %(lr)s."""
_GETS_PARAMETERS = (
    "the trial gets its parameters from nni.get_next_parameter(); docs/how-to/metrics-from-any-language.md has a trial "
    "that calls a program which takes arguments"
)
_SWEEP_WORD = re.compile(r"\$\{(args(?:_no_\w+|_json\w*)?|trial(?:Parameters|Spec)\.[^{}\s]*)\}")
"""Where W&B and Katib write all parameters, or one of them."""
# With any of these a shell may make the name, or look for it in another folder.
_SHELL = set("$`*?[]{}~<>|&;()")


def find_command_hints(command: str, code: Path, parameters: Iterable[str] = ()) -> list[str]:
    """Return sentences on a trial command that runs in a copy of the folder `code`, for a space of `parameters`."""
    known = set(parameters)
    found = {name: one[0] for one in _STAND_IN.finditer(command) if (name := _name_of(one, known)) in known}
    written = {name: text for name, text in found.items() if not _is_assigned(name, text, command)}
    hints = [
        f"trialCommand: {stand_in} is not replaced by the parameter {name}: {_GETS_PARAMETERS}"
        for name, stand_in in written.items()
    ]
    sweep_word = None if written else _SWEEP_WORD.search(command)
    if sweep_word is not None and f"{sweep_word[1]}=" not in command:
        hints.append(f"trialCommand: {sweep_word[0]} is not replaced: {_GETS_PARAMETERS}")
    hints += [f"trialCommand: {problem}" for problem in _find_early_ends(command)]
    curly = next((sign for sign in command if sign in _CURLY_QUOTES), None)
    if curly is not None:
        hints.append(
            f"trialCommand: no shell accepts {curly}, a quotation mark of word processors; type ' or \" instead"
        )
    hints += [f"trialCommand: {problem}" for problem in _find_odd_signs(command)]
    hints += list(_find_windows_paths(command))
    if hints:
        return hints
    hints = [f"trialCommand: {problem}" for problem in (*_find_lost(command), *find_program_faults(command, code))]
    scripts = _scripts(command)
    hints += [
        f"trialCommand: {word} has annotations of NNI, which do nothing by themselves; `nnictl config expand CONFIG` "
        "makes a program with calls of them"
        for word in scripts
        if _is_annotated(code / word)
    ]
    hints += [f"trialCommand: {word}{fault}" for word in scripts if (fault := _find_fault(code / word))]
    return hints


def _is_assigned(name: str, stand_in: str, command: str) -> bool:
    """Return whether a shell gives the name a value, so that `$name` is that: `lr=$lr` is an argument, as for Hydra."""
    value = rf"(?<![\w.-]){re.escape(name)}=(?![\"']?{re.escape(stand_in)})"
    return f" {name} in " in command or re.search(value, command) is not None


def _name_of(stand_in: re.Match[str], known: set[str]) -> str:
    """Return the parameter that is meant: trialParameters.lr, as Katib writes it, means lr."""
    name = next(name for name in stand_in.groups() if name)
    return name if name in known else name.rpartition(".")[2]


def _find_odd_signs(command: str) -> Iterator[str]:
    """Yield sentences on signs that a shell does not take as they look."""
    if has_open_quote(command):
        yield "has an unmatched quotation mark, so no shell can run it; add the second one"
    dash = next((word for word in command.split() if word[0] in _DASHES), "")
    if dash:
        yield f"{dash} begins with a dash of word processors; type -- instead"
    folded = _FOLDED.search(command)
    if folded is not None:
        yield (
            f"has a backslash before a space, so that the next word begins with that space; remove the \\ before "
            f"{folded[1]}, since YAML joins the lines, or begin the command with a line `trialCommand: |`"
        )
    space = next((sign for sign in command if sign in _ODD_SPACES), "")
    if space:
        yield f"has a {unicodedata.name(space, 'space').lower()}, which shells read as a letter; type a plain space"


_FOLDED = re.compile(r"(?<=\s)\\ +(\S+)")
"""Where a command continues in a next line for a shell, and YAML has made one line of the two."""
_DASHES = "\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}\N{NON-BREAKING HYPHEN}\N{HORIZONTAL BAR}"
_ODD_SPACES = (
    "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}\N{EM SPACE}\N{EN SPACE}\N{ZERO WIDTH SPACE}"
)


def _find_early_ends(command: str) -> Iterator[str]:
    """Yield sentences on commands that end before their program does, or run another one than the trial's."""
    if _BACKGROUND.search(command):
        yield "the & at the end leaves the program in the background, so that the trial ends at once; remove it"
    words = command.split()
    first = PurePosixPath(words[0]).name if words else ""
    if first in _SUBMITTERS:
        yield f"{first} returns while its program still runs, so that the trial ends at once; {_SUBMITTERS[first]}"
    if first == "nnictl":
        yield "each trial would start an experiment; write the command of the program that trains"
    notebook = next((word for word in words[1:] if word.endswith(".ipynb")), "")
    if notebook and first.startswith("python"):
        yield f"{notebook} is a notebook, which Python does not run; `jupyter nbconvert --to script` makes a program"


_BACKGROUND = re.compile(r"(?<![&>])&\s*$")
_SUBMITTERS = {
    **dict.fromkeys(("sbatch", "salloc"), "write the program itself, with platform: slurm"),
    **dict.fromkeys(("bsub", "qsub", "condor_submit"), "write the program itself, or wait for the job"),
    **dict.fromkeys(("tmux", "screen"), "write the program itself: trials run in the background anyway"),
}
"""Programs that hand another one over and return, and what to write instead."""


def _find_lost(command: str) -> Iterator[str]:
    """Yield sentences on what the shell keeps from the trial's program, or from nnilite."""
    path = _SEARCH_PATH.search(command)
    if path is not None and not re.search(r"\$\{?PYTHONPATH\b", command):
        yield (
            f"{path[0]} replaces the folder with the functions for trials, so that Python finds no nnilite unless it "
            f'is installed there; write {path[1]}"{path[2]}:$PYTHONPATH"'
        )
    if _TEE.search(command) and "pipefail" not in command:
        yield (
            "the exit code is that of tee, so a program that fails counts as succeeded; write `set -o pipefail;` in "
            "front, or leave tee out: nnilite keeps the output"
        )


_SEARCH_PATH = re.compile(r"(?<![\w$])(PYTHONPATH=)[\"']?([^\s;&|\"']+)[\"']?")
_TEE = re.compile(r"[^|]\|&?\s*tee\b[^|;&]*$")


def _find_windows_paths(command: str) -> Iterator[str]:
    drive, backslashes = _DRIVE.search(command), _BACKSLASHES.search(command)
    if drive is not None:
        yield f"trialCommand: {drive[0]} is a path of Windows, which machines with another system do not have"
    elif backslashes is not None:
        written = backslashes[0].replace("\\", "/").removeprefix("./")
        yield f"trialCommand: {backslashes[0]} is a path for Windows only; write {written}, which works everywhere"


def _find_fault(script: Path) -> str:
    """Return why Python does not run a script: the end of a sentence; "" if it does, or that is not known."""
    try:
        facts = script.stat()
    except OSError:
        return ""
    if facts.st_size > _MOST_PARSED_BYTES:
        return ""
    if script.suffix.lower() == ".sh":
        return _find_line_ends(script)
    if script.suffix.lower() != ".py":
        return ""
    return _parse(script, facts.st_mtime_ns)


def _find_line_ends(script: Path) -> str:
    """Return that a script of a shell has line ends of Windows, which no shell accepts: the end of a sentence."""
    try:
        with open_code_file(script) as file:
            found = b"\r\n" in file.read(_MOST_PARSED_BYTES)
    except OSError:
        return ""
    return (
        ": its lines end as on Windows (CRLF), which shells do not accept; `sed -i 's/\\r$//'` mends it"
        if found
        else ""
    )


def parse_program(source: bytes) -> ast.Module:
    """Return the parts of a program. Raises: SyntaxError, ValueError, RecursionError, MemoryError."""
    with warnings.catch_warnings():  # warnings about invalid backslash escapes
        warnings.simplefilter("ignore")
        return ast.parse(source)


@lru_cache(maxsize=32)
def _parse(script: Path, changed_ns: int) -> str:
    """Do the work of `_find_fault` once for each state of a file."""
    try:
        with open_code_file(script) as file:
            source = file.read(_MOST_PARSED_BYTES)
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
    scripts = [word for word in words if word.lower().endswith(SCRIPTS) and "=" not in word]
    # A word with spaces is rather a command for another shell.
    return [word for word in scripts if not PurePosixPath(word).is_absolute() and " " not in word]


def _is_annotated(script: Path) -> bool:
    """Return whether a program has annotations that report or that describe parameters."""
    try:
        if not script.is_file():
            return False
        with open_code_file(script) as file:
            return _ANNOTATION.search(file.read(_MOST_BYTES)) is not None
    except OSError:
        return False
