"""`pytest -n` keeps the files of tests in memory that has room, and leaves those of the last failed run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import memory_files

TESTS = Path(__file__).parents[1]
TAKING = f"""
import pathlib, sys
sys.path.insert(0, {str(TESTS)!r})
from harness import memory_files
folder = memory_files.take_folder(pathlib.Path(sys.argv[1]))
folder.mkdir()
print(folder.name, flush=True)
"""
"""A run of tests, up to its first file."""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for memory with room."""
    monkeypatch.setattr(memory_files, "MEMORY", tmp_path)
    monkeypatch.setattr(memory_files, "ROOM", 1)
    return tmp_path


def configured(processes: int | None = 2, folder: str | None = None) -> Any:
    """The config of a run with so many processes, whose user has named this folder."""
    config: Any = SimpleNamespace(option=SimpleNamespace(numprocesses=processes, basetemp=folder), stash={})
    memory_files.pytest_configure(config)
    return config


def run(exit_status: int) -> Path:
    """Run tests that write a file, and end with this status; their folder."""
    config = configured()
    folder = Path(config.option.basetemp)
    folder.mkdir()
    (folder / "file").touch()
    memory_files.pytest_sessionstart(SimpleNamespace(config=config, exitstatus=exit_status))  # type: ignore[arg-type]
    memory_files.pytest_unconfigure(config)
    return folder


def test_what_a_failed_run_leaves_stays_and_what_a_passed_one_leaves_goes(memory: Path) -> None:
    assert not run(exit_status=0).exists()
    assert run(exit_status=1).parent == memory
    assert [path.name for path in memory.glob("*/*")] == ["file"]
    assert len(list(memory.iterdir())) == 2, "the folder of the failed run, and its lock"


@pytest.mark.process
def test_the_folder_of_a_run_that_has_ended_is_removed_by_the_next_one(memory: Path) -> None:
    other = memory / "other"
    other.mkdir()
    ended = memory / subprocess.check_output([sys.executable, "-c", TAKING, str(memory)], text=True).strip()
    assert ended.is_dir()
    lives = Path(configured().option.basetemp)
    assert set(memory.iterdir()) == {lives.with_suffix(".lock"), other}


@pytest.mark.process
def test_the_folder_of_a_run_whose_process_cannot_be_seen_stays(memory: Path) -> None:
    """The run may be that of another container: there its process has another id, or the same as ours."""
    other = subprocess.Popen(
        [sys.executable, "-c", f"{TAKING}\ninput()", str(memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout is not None
        taken = memory / other.stdout.readline().strip()
        assert configured().option.basetemp != str(taken)
        assert taken.is_dir()
        other.communicate("\n")
    configured()
    assert not taken.exists()


def test_a_single_process_and_a_folder_that_is_named_stay_as_they_are(memory: Path) -> None:
    assert configured(processes=None).option.basetemp is None
    named = configured(folder=str(memory / "mine"))
    memory_files.pytest_unconfigure(named)
    assert named.option.basetemp == str(memory / "mine")


@pytest.mark.parametrize("lacks", ["disk", "memory", "folder"])
def test_memory_without_room_is_not_used(memory: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    if lacks == "folder":
        monkeypatch.setattr(memory_files, "MEMORY", memory / "none")
    elif lacks == "memory":
        monkeypatch.setattr(memory_files, "_free_memory", lambda: 0)
    else:
        monkeypatch.setattr(memory_files, "ROOM", 1 << 60)
        monkeypatch.setattr(memory_files, "_free_memory", lambda: 1 << 61)
    assert configured().option.basetemp is None
