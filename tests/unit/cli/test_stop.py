"""`nnictl stop`: which managers it asks, and what it says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite import _managers, _registry
from nnilite._cli.program import run
from nnilite.errors import NniliteError
from stand_in_manager import PROFILE, Make, StandIn


def test_stop_asks_every_manager_and_waits_for_its_end(
    make: Make, manager: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("abxy")
    manager.says("POST /experiment/stop", {"stopping": True}, 202)
    waited: list[str] = []
    monkeypatch.setattr("nnilite._managers.wait_until_ended", lambda entry: waited.append(entry.id))
    assert run(["stop", "--all"]) == 0
    assert sorted(waited) == ["abcd", "abxy"]
    assert [one.path for one in manager.asked] == ["/api/v1/experiment/stop"] * 2


def test_stop_takes_a_pattern_a_start_or_a_port(make: Make, monkeypatch: pytest.MonkeyPatch, manager: StandIn) -> None:
    make("abcd")
    make("abxy")
    stopped: list[str] = []
    monkeypatch.setattr("nnilite._managers.ask_to_stop", lambda entry: stopped.append(entry.id))
    monkeypatch.setattr("nnilite._managers.wait_until_ended", lambda entry: None)
    assert run(["stop", "abx"]) == 0
    assert run(["stop", "ab*"]) == 0
    assert run(["stop", "abc", "--port", manager.url.rpartition(":")[2]]) == 0
    assert (stopped[0], sorted(stopped[1:3]), stopped[3]) == ("abxy", ["abcd", "abxy"], "abcd")


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--all"], 0), ([], 3), (["zz*"], 3), (["--port", "1"], 3), (["nosuch"], 3)]
)
def test_stop_with_nothing_to_stop(home: Path, arguments: list[str], code: int) -> None:
    assert run(["stop", *arguments]) == code


def test_one_that_cannot_be_stopped_does_not_save_the_others(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("abxy")

    def stubborn(entry: _registry.Entry) -> None:
        if entry.id == "abcd":
            raise NniliteError("It will not.")

    monkeypatch.setattr("nnilite._managers.ask_to_stop", lambda entry: None)
    monkeypatch.setattr("nnilite._managers.wait_until_ended", stubborn)
    assert run(["stop", "--all"]) == 1
    captured = capsys.readouterr()
    assert "abxy is stopped" in captured.out
    assert "ERROR: Experiment abcd: It will not." in captured.err


@pytest.mark.parametrize(
    ("reason", "told"),
    [("paused: the disk is full", "it says: paused: the disk is full"), ("", "manager.log may tell why")],
)
def test_a_manager_that_does_not_end_is_asked_why(make: Make, manager: StandIn, reason: str, told: str) -> None:
    make("abcd")
    manager.says("GET /experiment", {**PROFILE, "reason": reason})
    with pytest.raises(NniliteError, match=told):
        _managers.wait_until_ended(_registry.find("abcd"), timeout_s=0.1)
