"""`nnictl trial show [ID] TRIAL` and its like: which of the arguments is the experiment."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from nnilite._cli import trial, trial_names
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite.errors import ConfigError


def settled(*arguments: str, several: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    trial_names.add(parser, several=several)
    options = parser.parse_args(arguments)
    trial_names.settle(options)
    return options


@pytest.mark.parametrize(
    ("arguments", "experiment", "trial"),
    [
        (["5"], None, "5"),
        (["tabc"], None, "tabc"),
        (["exp", "5"], "exp", "5"),
        (["exp", "tabc"], "exp", "tabc"),
        (["exp", "-T", "5"], "exp", "5"),
        (["-T", "5"], None, "5"),
    ],
)
def test_one_trial(arguments: list[str], experiment: str | None, trial: str) -> None:
    options = settled(*arguments)
    assert (options.id, options.trial) == (experiment, trial)


@pytest.mark.parametrize(
    ("arguments", "experiment", "trials"),
    [
        (["5", "6"], None, ["5", "6"]),
        (["exp", "5", "6"], "exp", ["5", "6"]),
        (["exp", "-T", "5", "6"], "exp", ["5", "6"]),
        (["tabc"], None, ["tabc"]),
    ],
)
def test_several_trials(arguments: list[str], experiment: str | None, trials: list[str]) -> None:
    options = settled(*arguments, several=True)
    assert (options.id, options.trials) == (experiment, trials)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "say which trial"),
        (["5", "6"], "give one trial, after the id of the experiment, not 5 6"),
        (["exp", "5", "6"], "give one trial, after the id of the experiment, not 5 6"),
        (["exp", "5", "-T", "6"], "give only the experiment besides, not exp 5"),
    ],
)
def test_arguments_that_mean_nothing(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settled(*arguments)


def test_settling_twice_changes_nothing() -> None:
    options = settled("exp", "5")
    trial_names.settle(options)
    assert (options.id, options.trial) == ("exp", "5")


@pytest.fixture
def known(home: Path) -> str:
    registry.add("expabc", "mine", home / "expabc", "local", 1.0)
    return "expabc"


@pytest.mark.parametrize("command", ["kill", "remark", "rerun"])
def test_the_experiment_may_come_after_the_trials_as_in_nni(known: str, command: str) -> None:
    parser = argparse.ArgumentParser()
    trial.add(parser)
    options = parser.parse_args([command, "-T", "0", "tabc", known])
    trial_names.settle(options)
    assert (options.id, options.trials) == (known, ["0", "tabc"])
    trial_names.settle(options)
    assert (options.id, options.trials) == (known, ["0", "tabc"])


def test_only_the_id_of_a_known_experiment_is_taken_from_the_trials(known: str) -> None:
    options = settled("-T", "0", known[:-1], several=True)
    assert (options.id, options.trials) == (None, ["0", known[:-1]])
    options = settled("other", "-T", "0", known, several=True)
    assert (options.id, options.trials) == ("other", ["0", known])
    options = settled("-T", known, several=True)
    assert (options.id, options.trials) == (None, [known])


@pytest.mark.parametrize("several", [True, False])
def test_an_experiment_without_a_trial_is_answered_with_the_question_which_one(known: str, several: bool) -> None:
    with pytest.raises(ConfigError, match=f"say which trial of experiment {known}"):
        settled(known, several=several)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("arguments", "hinted"), [(["tabc"], True), (["exp", "-T", "tabc"], False)])
def test_a_trial_in_the_place_of_the_experiment_is_answered_with_its_option(
    arguments: list[str], hinted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "trial", *arguments]) != 0
    said = capsys.readouterr().err
    assert f"There is no experiment {arguments[0]!r}" in said
    assert ("If it is a trial, write `nnictl log trial -T tabc`." in said) is hinted
