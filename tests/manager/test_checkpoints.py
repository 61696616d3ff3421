"""What is kept of the trials' checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnilite._store.checkpoint_folders import CheckpointFolders, CheckpointRule

NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two trials with two checkpoints each; the second one of each is newer, trial b's are newer than a's."""
    for age, name in enumerate(["b/2.pt", "b/1 'x'\n.pt", "a/2.pt", "a/1 'x'\n.pt"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 - age, 1000 - age))
    os.utime(tmp_path / "a", (900, 900))
    return tmp_path


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.pt"))


def ended(
    folder: Path, keep: str, best: str = "a", live: frozenset[str] = NOBODY, size: int | None = None
) -> list[str]:
    CheckpointFolders(folder, CheckpointRule(keep, size)).trial_ended("b", best, live)
    return left(folder)


def test_all_are_kept(folder: Path) -> None:
    assert len(ended(folder, "all")) == 4


def test_the_newest_of_the_ended_trial_is_kept(folder: Path) -> None:
    assert ended(folder, "last") == ["a/1 'x'\n.pt", "a/2.pt", "b/2.pt"]


def test_none_is_kept(folder: Path) -> None:
    assert ended(folder, "none") == ["a/1 'x'\n.pt", "a/2.pt"]


def test_those_of_the_best_trial_are_kept(folder: Path) -> None:
    assert ended(folder, "best") == ["a/1 'x'\n.pt", "a/2.pt"]


def test_a_living_trial_is_left_alone(folder: Path) -> None:
    assert ended(folder, "best", best="b", live=frozenset({"a"})) == left(folder)
    assert len(left(folder)) == 4


def test_the_oldest_folder_goes_first_and_the_best_last(folder: Path) -> None:
    assert ended(folder, "all", best="a", size=250) == ["a/1 'x'\n.pt", "a/2.pt"]


def test_a_trial_without_checkpoints_is_no_problem(tmp_path: Path) -> None:
    assert ended(tmp_path / "nothing", "last") == []
