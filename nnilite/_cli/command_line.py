"""The parser of nnictl's command line: it says what is wrong, at which word, and what would help."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE = 2
"""The exit code for a command line that is wrong."""

_NO_SUCH = {
    "platform clean": "jobs of an experiment are removed when it stops, and `nnictl stop` names what could not be",
    "platform register": "plugins are Python packages: `pip install` them",
    "trial best": "`nnictl trial ls --head 1` shows the best trial",
    **{
        f"trial {word}": "`nnictl log stdout` and `nnictl log stderr` show a trial's output" for word in ("log", "logs")
    },
    **{f"experiment {word}": "it is `nnictl experiment delete`" for word in ("rm", "remove")},
    **{
        f"update {word}": "it stays as at the start; a new experiment learns from this one by `searchFrom: [ID]`"
        for word in ("tuner", "assessor", "command", "trialcommand", "config", "code")
    },
    "trial export": "`nnictl experiment export` writes the results of all trials",
    **{f"experiment {word}": f"it is `nnictl {word}`" for word in ("create", "resume", "stop", "update", "view")},
    **{f"trial {word}": "it is `nnictl trial remark`" for word in ("tag", "tags", "note", "comment", "label")},
    **{
        f"experiment {word}": "the page of all experiments has tags and notes; `nnictl ui` serves it"
        for word in ("tag", "tags", "note", "comment", "label", "remark")
    },
    "trial codegen": "it was for architecture search",
    "log dispatcher": "the output of the tuner is in `nnictl log stderr`",
}
"""What to use instead of commands that users look for in a group."""
_NO_OPTIONS = {
    "nnictl create": "fields such as maxTrialNumber are written in the configuration file",
    "nnictl resume": "it has the configuration of its start, and `nnictl update` changes limits and search space",
}
"""Where stands what users look for among the options of a command."""
_ONE_ARGUMENT = {"nnictl tensorboard": "write the experiment's id alone: `start` was NNI's, and Ctrl-C stops it"}
"""What to write in place of several arguments of a command that takes one."""
_OPTIONS_OF_IDS = ("--id", "-i", "--experiment_id", "--experiment-id", "--trial_id", "--trial-id")

_PLAIN = {int: "a whole number", float: "a number"}
_ARGUMENT = re.compile(r"argument (?P<name>.+?): (?P<what>.+)", re.DOTALL)
_EXPECTED = re.compile(r"expected (?:at least )?(?:one|\d+) arguments?")


def printable(sentence: str) -> str:
    """Return a sentence without what a terminal obeys: it may quote a file from another person."""
    kept = (mark if mark == "\n" or mark.isprintable() else mark.encode("unicode_escape").decode() for mark in sentence)
    return "".join(kept)


class Parser(argparse.ArgumentParser):
    """A parser of argparse that accepts no shortened options, and answers mistakes in sentences with a cure."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the mistake, and exit. The message is argparse's or nnilite's."""
        sentence = self._sentence(message).replace("?.", "?")  # a guess is a question
        self.exit(USAGE, f"{self.format_usage()}ERROR: {printable(sentence)}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, so that the message names the place in the command and its own options."""
        self._refuse_single_dashes(sys.argv[1:] if args is None else args)
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(self._describe_too_much(left))
        return found, left

    def _refuse_single_dashes(self, words: Sequence[str]) -> None:
        """Refuse `-config`, which argparse takes for -c with the value onfig."""
        known = {option for action in self._actions for option in action.option_strings}
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("-") and name not in known and f"-{name}" in known:
                self.error(f"`{self.prog}`: {name} needs two dashes: write -{name}.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if not isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(choices)}{_near(value, choices)}")
        instead = _NO_SUCH.get(f"{self.prog.removeprefix('nnictl ')} {value}")
        are = "is" if len(choices) == 1 else "are"
        hint = f"; {instead}" if instead else _near(value, choices) or f"; there {are} {', '.join(choices)}"
        self.error(f"There is no `{self.prog} {value}`{hint}.")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if isinstance(error.__context__, argparse.ArgumentTypeError):
                raise
            what = _PLAIN.get(action.type, "a value that it takes")  # type: ignore[call-overload]
            raise argparse.ArgumentError(action, f"{arg_string!r} is not {what}") from error

    def _sentence(self, message: str) -> str:
        lacks = message.partition("required: ")[2]
        about = _ARGUMENT.fullmatch(message)
        if lacks == "WHAT":
            known = next(action.choices or () for action in self._actions if action.metavar == "WHAT")
            return f"`{self.prog}` needs one of {', '.join(known)}."
        if lacks:
            return f"`{self.prog}` needs {'; '.join(map(self._describe, lacks.split(', ')))}."
        if message.startswith("one of the arguments "):
            names = message.removeprefix("one of the arguments ").removesuffix(" is required")
            return f"`{self.prog}` needs one of {', '.join(names.split())}."
        if about is None:
            return message
        if _EXPECTED.fullmatch(about["what"]):
            return f"`{self.prog}` needs a value after {self._describe(about['name'])}."
        what = about["what"].replace("not allowed with argument", "does not go with")
        mark = "" if what.endswith("?") else ";"
        return f"`{self.prog}`: {about['name']}: {what}{mark} `{self.prog} --help` shows more."

    def _describe(self, name: str) -> str:
        """Describe an argument: argparse's name of it, with its purpose where that is known."""
        for action in self._actions:
            if name in ("/".join(action.option_strings), action.metavar, action.dest):
                value = f" {action.metavar}" if action.option_strings and isinstance(action.metavar, str) else ""
                return f"{name}{value}" + (f": {action.help}" if action.help else "")
        return name

    def _describe_too_much(self, left: Sequence[str]) -> str:
        words = " ".join(left)
        known = [option for action in self._actions for option in action.option_strings]
        odd = next((word.partition("=")[0] for word in left if word.startswith("-")), "")
        if odd == "--debug":
            return "--debug goes before the command, as in `nnictl --debug experiment list`."
        if odd in _OPTIONS_OF_IDS and any(action.dest == "id" for action in self._actions):
            return f"`{self.prog}` has no option {odd}; write the id alone, without {odd}."
        if odd:
            options = ", ".join(option for option in known if option.startswith("--"))
            elsewhere = _NO_OPTIONS.get(self.prog, f"it has {options}")
            return f"`{self.prog}` has no option {odd}{_near(odd, known) or f'; {elsewhere}'}."
        if f"--{words}" in known:
            return f"`{self.prog}` takes no more arguments, but got {words!r}; did you mean --{words}?"
        cure = _NO_OPTIONS.get(self.prog, "") if "=" in words else _ONE_ARGUMENT.get(self.prog, "")
        return (
            f"`{self.prog}` takes no more arguments, but got {words!r}; {cure or f'`{self.prog} --help` shows more'}."
        )


def nearest(given: str, known: Iterable[str]) -> str:
    """Return the known word that is nearest to the given one; "" if there is none."""
    import difflib  # a command without a mistake does not wait for it

    return next(iter(difflib.get_close_matches(given, list(known), 1)), "")


def _near(given: str, known: Iterable[str]) -> str:
    near = nearest(given, known)
    return f"; did you mean {near}?" if near else ""
