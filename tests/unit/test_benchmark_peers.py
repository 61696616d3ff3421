"""The table of nnilite beside others, and what it says of those that cannot be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import Cost, Peer

XARGS = peers.PEERS[0]


def test_the_table_compares_with_the_first() -> None:
    found = [(Peer("script", "a"), Cost(0.0084, 0.012)), (Peer("other", "b"), Cost(1.2, 0.0301))]
    assert peers.shown(found).splitlines()[2:] == [
        "| script | 8.4 ms | 12 ms | 1.0 |",
        "| other | 1,200 ms | 30.1 ms | 2.5 |",
    ]


@pytest.mark.process
def test_one_that_fails_is_said_to_and_the_others_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PROGRAMS", tmp_path)
    (tmp_path / "scripts_by_xargs.py").write_text("raise SystemExit(3)")
    reason = peers.measured(XARGS, tmp_path)
    assert reason == "not measured: python ended with 3"
    assert peers.shown([(XARGS, reason)]).splitlines()[2] == f"| {XARGS.name} | {reason} | | |"


@pytest.mark.process
def test_one_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PROGRAMS", tmp_path)
    monkeypatch.setattr(peers, "_LIMIT_S", 0.3)
    (tmp_path / "scripts_by_xargs.py").write_text("import time; time.sleep(100)")
    assert peers.measured(XARGS, tmp_path) == "not measured: it had not ended after 0 s"


def test_what_a_trial_costs_leaves_the_start_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "run", lambda peer, python, trials: Cost(5 + trials * 0.25, 3 + trials * 0.5))
    assert peers.measured(XARGS, tmp_path) == Cost(0.25, 0.5)
