"""`nnictl trial remark`, on a stopped experiment: what it changes, and where that is shown."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from nnilite._cli.nnictl import run


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_trials_of_a_stopped_experiment_are_tagged_and_found(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trial", "remark", "abcd", "-T", "done1", "runs1", "--tag", "good", "--tag", "slow"]) == 0
    assert capsys.readouterr().out == "Trial done1: good, slow.\nTrial runs1: good, slow.\n"
    kept = asked(capsys, "trial", "remark", "abcd", "-T", "runs1", "--untag", "slow", "--note", "see\nthe paper")
    assert [(one["tags"], one["note"]) for one in kept] == [(["good"], "see\nthe paper")]
    assert [one["id"] for one in asked(capsys, "trial", "ls", "abcd", "--tag", "good", "--tag", "slow")] == ["done1"]
    assert run(["trial", "ls", "abcd"]) == 0
    header, done, runs = capsys.readouterr().out.splitlines()
    assert "TAGS" in header
    assert "good, slow" in done
    assert "good " in runs
    assert run(["trial", "show", "abcd", "-T", "runs1"]) == 0
    shown = capsys.readouterr().out
    assert "good" in shown
    assert "Note\n  see\n  the paper\n" in shown
    assert asked(capsys, "trial", "show", "abcd", "-T", "runs1")["tags"] == ["good"]


def test_what_changes_nothing_is_not_written(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [first] = asked(capsys, "trial", "remark", "abcd", "-T", "done1", "--tag", "good")
    assert asked(capsys, "trial", "remark", "abcd", "-T", "done1", "--tag", "good", "--untag", "other") == [first]


def test_exports_have_tags_and_notes_where_there_are_some(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def exported(kind: str) -> str:
        assert run(["experiment", "export", "abcd", "-t", kind]) == 0
        return capsys.readouterr().out

    [row] = json.loads(exported("json"))
    assert set(row) == {"parameter", "value", "trialJobId"}
    assert exported("csv").splitlines()[0] == "x,trialJobId,reward"
    asked(capsys, "trial", "remark", "abcd", "-T", "done1", "--tag", "good", "--tag", "slow")
    [row] = json.loads(exported("json"))
    assert row["tags"] == ["good", "slow"]
    [line] = csv.DictReader(io.StringIO(exported("csv")))
    assert line == {"x": "0.5", "trialJobId": "done1", "reward": "0.25", "tags": "good, slow"}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([], 1, "say what to change: --tag, --untag or --note"),
        (["--tag", "a", "--untag", "a"], 1, "--tag and --untag: both name a"),
        (["--tag", "x" * 41], 1, "tags: must be one line of at most 40 characters"),
        (["--tag", "a", "-T", "done1", "none1"], 3, "no trial 'none1'"),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(
    whole: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, sentence: str
) -> None:
    assert run(["trial", "remark", "abcd", "-T", "done1", *words]) == code
    assert sentence in capsys.readouterr().err
    assert all(one["tags"] == [] for one in asked(capsys, "trial", "ls", "abcd"))
