"""Wrong command lines: each command says in a sentence what is wrong, at which word, and what would help."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._cli.command_line import Parser
from nnilite._cli.completion import _whole
from nnilite._cli.nnictl import run

BARE = ("unrecognized", "invalid ", "are required", "expected ", "not allowed with", "choose from")
"""Words of argparse, which tell neither what the command is nor what would help."""


def _commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Parser]]:
    """All commands that carry something out, as they are typed, with their parsers."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        names = {below: word for word, below in reversed(group.choices.items())}  # without the other names of the same
        for below, word in names.items():
            yield from _commands(below, (*words, word))
    if not groups:
        assert isinstance(parser, Parser)
        yield words, parser


COMMANDS = dict(_commands(_whole()))
NAMED = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence about a wrong command line, which follows its usage."""
    with pytest.raises(SystemExit) as ended:
        run(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: nnictl")
    sentence = told.partition("ERROR: ")[2].rstrip("\n")
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence
    assert [word for word in BARE if word in sentence] == []
    return sentence


def test_there_are_as_many_commands_as_nnictl_is_known_to_have() -> None:
    assert len(COMMANDS) > 45


@NAMED
def test_an_option_that_a_command_does_not_have(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    needed = [word for action in _needed(COMMANDS[words]) for word in _given(action)]
    said = _said(capsys, *words, *needed, "--no-such-option")
    assert f"`nnictl {' '.join(words)}` has no option --no-such-option; " in said


@NAMED
def test_arguments_that_a_command_needs(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    needed = _needed(COMMANDS[words])
    if needed:
        said = _said(capsys, *words)
        assert said.startswith(f"`nnictl {' '.join(words)}` needs ")
        assert "/".join(needed[0].option_strings) in said


@NAMED
def test_options_without_their_value(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for action in COMMANDS[words]._actions:
        if action.option_strings and action.nargs is None and not isinstance(action, argparse._StoreConstAction):
            said = _said(capsys, *words, action.option_strings[-1])
            assert f"`nnictl {' '.join(words)}` needs a value after {'/'.join(action.option_strings)}" in said


@NAMED
def test_values_of_a_wrong_kind(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for action in COMMANDS[words]._actions:
        if action.nargs == 0 or isinstance(action, argparse._HelpAction):
            continue
        if (action.type not in (None, str, Path) or action.choices) and action.option_strings:
            said = _said(capsys, *words, action.option_strings[-1], "no such value")
            assert f"`nnictl {' '.join(words)}`: {'/'.join(action.option_strings)}: " in said
            assert "no such value" in said.lower()


def _needed(parser: Parser) -> list[argparse.Action]:
    """Its required arguments, and one for each group of which one is required."""
    groups = [group for group in parser._mutually_exclusive_groups if group.required]
    needed = [action for action in parser._actions if action.required]
    return needed + [group._group_actions[0] for group in groups]


def _given(action: argparse.Action) -> list[str]:
    """A required argument with a value that fits."""
    value = next(iter(action.choices)) if action.choices else "1/h" if "--rate" in action.option_strings else "1"
    return [*action.option_strings[:1], str(value)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["platform", "clean"], "There is no `nnictl platform clean`; jobs of an experiment are removed when it stops"),
        (["platform", "clean", "-c", "x.yml"], "There is no `nnictl platform clean`; jobs of an experiment"),
        (["trial", "tag", "0"], "There is no `nnictl trial tag`; it is `nnictl trial remark`."),
        (["experiment", "note"], "There is no `nnictl experiment note`; the page of all experiments has tags"),
        (["trial", "lst"], "There is no `nnictl trial lst`; did you mean list?"),
        (["webui", "open"], "There is no `nnictl webui open`; there is url."),
        (["drill", "interrupt", "--rate", "1/h", "--seed", "x"], "--seed: 'x' is not a whole number; `nnictl drill "),
        (
            ["experiment", "export", "--type", "cvs"],
            "-t/--type: 'cvs' is not one of json, csv, optuna; did you mean csv?",
        ),
        (["stop", "one", "two", "three"], "takes no more arguments, but got "),
        (["tensorboard", "start", "abc"], "write the experiment's id alone: `start` was NNI's"),
        (["experiment", "list", "all"], "takes no more arguments, but got 'all'; did you mean --all?"),
        (["experiment", "stop", "abcd"], "There is no `nnictl experiment stop`; it is `nnictl stop`."),
        (["update", "trialnum", "--id", "abcd", "-v", "3"], "has no option --id; write the id alone, without --id."),
        (["start", "-c", "x.yml"], "There is no command 'start'; did you mean 'create'?"),
        (["version"], "There is no command 'version'; did you mean --version?"),
        (["rm", "abcd"], "There is no command 'rm'; did you mean 'experiment delete'?"),
        (["dashboard"], "There is no command 'dashboard'; `nnictl ui` serves a page of all experiments."),
        (["experiment", "rm", "x"], "There is no `nnictl experiment rm`; it is `nnictl experiment delete`."),
        (["trial", "logs"], "There is no `nnictl trial logs`; `nnictl log stdout` and `nnictl log stderr` show"),
        (["create", "x.yml", "--max-trials", "3"], "has no option --max-trials; fields such as maxTrialNumber are"),
        (["create", "x.yml", "maxTrialNumber=3"], "but got 'maxTrialNumber=3'; fields such as maxTrialNumber are"),
        (["validate", "x.yml"], "`nnictl create --config FILE --dry-run` checks a config."),
        (["create", "-config", "x.yml"], "`nnictl create`: -config needs two dashes: write --config."),
        (["create", "-c", "x.yml", "-port=8081"], "-port needs two dashes: write --port."),
        (["-version"], "`nnictl`: -version needs two dashes: write --version."),
        (["stop", "--debug"], "--debug goes before the command"),
        (["trial", "kill", "-T"], "`nnictl trial kill` needs a value after -T/--trial/--trial-id/--trial_id TRIAL"),
    ],
)
def test_what_helps_is_told(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in _said(capsys, *words)


def test_options_that_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "-H/--head: does not go with -T/--tail" in _said(capsys, "log", "stderr", "-T", "1", "-H", "1")
