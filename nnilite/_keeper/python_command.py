"""Reads of a trial's command which Python it starts, and with what: `A=1 python3 -u trial.py --fast`."""

from __future__ import annotations

import os

from .command_start import split_plain_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional

_FLAGS = frozenset("bBdEIOPqRsSu")
_WITH_VALUE = ("-W", "-X")
_FOR_OTHERS = "have `trialCommand` start a script or a module with Python, in plain words: python3 trial.py"


class PythonCommand:
    """A command that runs a script or a module with Python.

    `python` is the word for the program, with the options of Python; `words` are the script, or `-m` and the module,
    and its arguments; `variables` are set before these.
    """

    def __init__(self, variables: Dict[str, str], python: List[str], words: List[str]) -> None:
        self.variables = variables
        self.python = python
        self.words = words

    def has_python_of(self, other: PythonCommand) -> bool:
        """Return whether both start the same Python in the same way."""
        return (self.variables, self.python) == (other.variables, other.python)


def read_python_command(command: str, env: Mapping[str, str]) -> Optional[PythonCommand]:
    """Return the parts of a command; None if it is another one, or if a shell has to read it."""
    variables: Dict[str, str] = {}
    rest = command.strip()
    while rest:
        name, given, value = rest.partition(" ")[0].partition("=")
        if not given or not name.isidentifier() or not name.isascii():
            break
        variables[name] = value
        rest = rest.partition(" ")[2].lstrip()
    words = split_plain_words(rest, {**env, **variables})
    plain = all(split_plain_words("python " + value, env) for value in variables.values())
    if not words or not plain or not _is_python(words[0]):
        return None
    at = _count_options(words)
    program = words[at:]
    if not program or (program[0] == "-m" and len(program) < 2):
        return None
    if program[0] != "-m" and (program[0].startswith("-") or not program[0].endswith(".py")):
        return None
    return PythonCommand(variables, words[:at], program)


def describe_other_command(command: str) -> str:
    """Return what is wrong with a command that `read_python_command` cannot read."""
    return "the trial command {!r} does not simply start Python; {}".format(command, _FOR_OTHERS)


def _is_python(word: str) -> bool:
    # What is named relative to the code may be another one for each trial.
    return os.path.basename(word).startswith("python") and (os.path.isabs(word) or "/" not in word)


def _count_options(words: List[str]) -> int:
    """Return how many words the program and the options of Python are."""
    at = 1
    while at < len(words):
        word = words[at]
        if word in _WITH_VALUE:
            at += 2
        elif word[:2] in _WITH_VALUE or (word[:1] == "-" and word[1:] and _FLAGS.issuperset(word[1:])):
            at += 1
        else:
            break
    return at
