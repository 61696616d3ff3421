"""Tests that failed beside others run once more, alone; what fails again, or in numbers, is a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "second_round.py"
TESTS = """
import pathlib, pytest

@pytest.mark.xdist_group("a@b")
def test_that_fails_once():
    runs = pathlib.Path(__file__).with_suffix(".runs")
    before = runs.exists()
    runs.touch()
    assert before

@pytest.mark.parametrize("word", ["me@host", "x"])
def test_that_always_fails(word):
    assert word == "x"
"""


def second_round(folder: Path, first: int) -> tuple[int, str]:
    """The exit status and the words of the second round in that folder."""
    done = subprocess.run([sys.executable, SCRIPT, str(first)], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def failed(folder: Path, names: list[str]) -> None:
    """Leave the record that pytest leaves of failed tests."""
    cache = folder / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(names, True)))


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests of which two fail in their first round, under xdist, which has its own names for some."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    return tmp_path


def test_what_fails_alone_too_fails_and_what_passes_alone_passes(suite: Path) -> None:
    options = ["-m", "pytest", "-n", "1", "--dist", "loadgroup", "-p", "no:randomly"]
    first = subprocess.run([sys.executable, *options], cwd=suite, capture_output=True, text=True, timeout=60)
    status, said = second_round(suite, first.returncode)
    assert (status, "1 failed, 1 passed" in said) == (1, True), said
    assert "test_that_always_fails[me@host]" in said


def test_tests_that_pass_alone_are_named(suite: Path) -> None:
    (suite / "test_it.runs").touch()
    failed(suite, ["test_it.py::test_that_fails_once@a@b"])
    status, said = second_round(suite, 1)
    assert status == 0, said
    assert said.endswith("second try; look at why the first failed:\n  test_it.py::test_that_fails_once\n")


def test_many_failures_are_not_tried_again(suite: Path) -> None:
    failed(suite, [f"test_it.py::test_{number}" for number in range(11)])
    status, said = second_round(suite, 1)
    assert (status, said) == (1, "11 tests failed; only 10 or fewer are tried a second time\n")


@pytest.mark.parametrize("first", [2, 3, 4, 5, 137])
def test_a_round_that_did_not_come_to_its_end_has_no_second(suite: Path, first: int) -> None:
    failed(suite, ["test_it.py::test_that_always_fails[x]"])
    assert second_round(suite, first) == (first, "")
