"""`--json`: every command has it, and prints one document."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._cli import screen, trial
from nnilite._cli.nnictl import COMMANDS, run
from stand_in_manager import PROFILE, TRIAL, Make, StandIn


def commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name, parser
    for group in groups:
        for word, one in group.choices.items():
            yield from commands(one, f"{name} {word}")


def test_every_command_can_print_json() -> None:
    without = []
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"nnilite._cli.{name}").add(parser)
        without += [one for one, found in commands(parser, name) if "--json" not in found._option_string_actions]
    assert without == ["completion"]  # what it prints is for a shell


def test_changes_tell_what_they_did_as_json(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make("abcd")
    manager.says("PATCH /experiment", PROFILE)
    manager.says(f"DELETE /trials/{TRIAL['id']}", TRIAL)
    manager.says("POST /trials/rerun", {"trials": [TRIAL]})
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    asked = {
        "update concurrency -v 3": dict,
        f"trial kill -T {TRIAL['id']}": list,
        "trial rerun --status failed": list,
        f"update searchspace -f {tmp_path / 'space.json'}": dict,
    }
    for words, kind in asked.items():
        assert run([*words.split(" "), "--json"]) == 0, words
        assert isinstance(json.loads(capsys.readouterr().out), kind), words
    (sent,) = [one for one in manager.asked if one.path.endswith("/trials/rerun")]
    assert json.loads(sent.body) == {"state": "FAILED"}


def test_a_deletion_tells_as_json_what_is_gone(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "manager", "abcd", "--path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(whole / "log" / "manager.log")}
    assert run(["experiment", "delete", "abcd", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": ["abcd"]}


def test_rows_of_a_narrow_terminal_stay_whole_lines() -> None:
    columns = ("ID", "URL", "NAME", "ENDED")
    cells = [["abcdefgh", "http://127.0.0.1:8080", "n" * 70, "2026-11-22 17:00:00"]]
    wide = screen.fitting(columns, cells, ("ENDED", "NAME"), 200)
    assert wide == {"ID": 8, "URL": 21, "NAME": 70, "ENDED": 19}
    narrow = screen.fitting(columns, cells, ("ENDED", "NAME"), 80)
    assert (narrow["ID"], narrow["URL"]) == (8, 21)
    assert sum(narrow.values()) + 2 * (len(narrow) - 1) <= 80
    assert "ENDED" not in screen.fitting(columns, cells, ("ENDED", "NAME"), 60)


def test_a_metric_of_several_numbers_leaves_room_for_the_parameters() -> None:
    columns = ("NO", "ID", "STATE", "METRIC", "TIME", "PARAMETERS", "REASON")
    metric = "default=0.00349704, loss=0.25, lr_now=0.00029142 (latest)"
    cells = [("10", "lxuktko9", "SUCCEEDED", metric, "1.2s", "lr=0.00309704 bs=64", "exit code 1: ValueError: NaN")]
    widths = screen.fitting(columns, cells, trial.SPARE_COLUMNS, 90)
    assert (widths["METRIC"], widths["PARAMETERS"]) == (24, 19)


def test_numbers_have_all_digits_that_mean_something() -> None:
    assert [screen.exact(one) for one in (0.1 + 0.2, 40.0, 1 / 3, 1e-7, 1e300)] == [
        "0.3",
        "40",
        "0.3333333333333333",
        "1e-07",
        "1e+300",
    ]
