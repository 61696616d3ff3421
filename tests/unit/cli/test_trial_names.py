"""`nnictl trial show [ID] TRIAL` and its like: which of the arguments is the experiment."""

from __future__ import annotations

import argparse

import pytest

from nnilite._cli import trial_names
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
