"""Only tests on a dated list run once more, alone; any other failure is final."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.process

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


def give_chances(folder: Path, *tests: str, days_ago: int = 0, reason: str = "the machine is slow") -> None:
    """Write the list of tests that have a second chance."""
    since = datetime.date.today() - datetime.timedelta(days=days_ago)
    (folder / "tests").mkdir(exist_ok=True)
    entries = [f"- {{test: {test!r}, since: {since}, reason: {reason!r}}}" for test in tests]
    (folder / "tests" / "second_chances.yaml").write_text("\n".join(entries))


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests of which two fail in their first round, under xdist, which has its own names for some."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    give_chances(tmp_path, "test_it.py::test_that_fails_once", "test_it.py::test_that_always_fails")
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    # To load all that this project's tests need takes pytest four times as long as these tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def test_what_fails_alone_too_fails_and_what_passes_alone_passes(suite: Path) -> None:
    options = ["-m", "pytest", "-p", "xdist", "-n", "1", "--dist", "loadgroup"]
    first = subprocess.run([sys.executable, *options], cwd=suite, capture_output=True, text=True, timeout=60)
    status, said = second_round(suite, first.returncode)
    assert (status, "1 failed, 1 passed" in said) == (1, True), said
    assert "test_that_always_fails[me@host]" in said


def test_tests_on_the_list_that_pass_alone_are_named(suite: Path) -> None:
    (suite / "test_it.runs").touch()
    failed(suite, ["test_it.py::test_that_fails_once@a@b"])
    status, said = second_round(suite, 1)
    assert status == 0, said
    assert said.endswith("second try; find out why the first failed:\n  test_it.py::test_that_fails_once\n")


@pytest.mark.parametrize("days_ago", [-2, 30, 400])
def test_a_flaky_test_that_is_not_on_the_list_turns_the_run_red(suite: Path, days_ago: int) -> None:
    (suite / "test_it.runs").touch()
    give_chances(suite, "test_it.py::test_that_fails_once", days_ago=days_ago)
    failed(suite, ["test_it.py::test_that_fails_once@a@b"])
    status, said = second_round(suite, 1)
    assert (status, "have no second chance:\n  test_it.py::test_that_fails_once\n" in said) == (1, True), said


def test_one_failure_without_a_chance_spares_the_second_round(suite: Path) -> None:
    failed(suite, ["test_it.py::test_that_fails_once", "test_it.py::test_of_another_kind[x]"])
    status, said = second_round(suite, 1)
    assert (status, "test_that_fails_once" in said) == (1, False), said


def test_a_folder_on_the_list_stands_for_all_its_tests(suite: Path) -> None:
    (suite / "e2e").mkdir()
    (suite / "e2e" / "test_more.py").write_text("def test_that_passes_alone(): pass\n")
    give_chances(suite, "e2e/")
    failed(suite, ["e2e/test_more.py::test_that_passes_alone"])
    assert second_round(suite, 1)[0] == 0
    failed_names = ["e2e/test_more.py::test_that_passes_alone", "test_it.py::test_that_fails_once"]
    (suite / ".pytest_cache/v/cache/lastfailed").write_text(json.dumps(dict.fromkeys(failed_names, True)))
    assert second_round(suite, 1)[0] == 1


def test_a_marker_on_the_list_stands_for_some_of_its_tests(suite: Path) -> None:
    names = [f"test_that_passes_alone_{number}" for number in range(3)]
    lines = [f"@pytest.mark.slow\ndef {name}(): pass\n" for name in names]
    (suite / "test_slow.py").write_text("import pytest\n" + "".join(lines) + "def test_without_it(): pass\n")
    (suite / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: it takes long\n")
    entry = f"{{marker: slow, most: 2, since: {datetime.date.today()}, reason: the machine is slow}}"
    (suite / "tests" / "second_chances.yaml").write_text(f"- {entry}\n")
    failed(suite, [f"test_slow.py::{name}" for name in names[:2]])
    status, said = second_round(suite, 1)
    assert (status, "2 passed" in said) == (0, True), said
    for more in (names[2], "test_without_it"):
        record = dict.fromkeys([f"test_slow.py::{name}" for name in (*names[:2], more)], True)
        (suite / ".pytest_cache/v/cache/lastfailed").write_text(json.dumps(record))
        status, said = second_round(suite, 1)
        assert (status, f"have no second chance:\n  test_slow.py::{more}\n" in said) == (1, True), said


def test_many_failures_are_not_tried_again(suite: Path) -> None:
    failed(suite, [f"test_it.py::test_that_always_fails[{number}]" for number in range(11)])
    assert second_round(suite, 1) == (1, "\n11 tests failed; at most 10 are tried a second time\n")


def test_a_chance_without_a_reason_is_refused(suite: Path) -> None:
    give_chances(suite, "test_it.py::test_that_fails_once", reason="")
    failed(suite, ["test_it.py::test_that_fails_once"])
    status, said = second_round(suite, 1)
    assert (status, "test_that_fails_once has no reason" in said) == (1, True), said


@pytest.mark.parametrize("first", [2, 3, 4, 5, 137])
def test_a_round_that_did_not_come_to_its_end_has_no_second(suite: Path, first: int) -> None:
    failed(suite, ["test_it.py::test_that_always_fails[x]"])
    assert second_round(suite, first) == (first, "")


def test_the_list_of_the_repository_is_well_formed() -> None:
    for entry in yaml.safe_load((SCRIPT.parents[1] / "tests" / "second_chances.yaml").read_text()):
        assert isinstance(entry["since"], datetime.date)
        if "marker" in entry:
            assert (set(entry), entry["marker"]) == ({"marker", "most", "since", "reason"}, "process")
        else:
            assert set(entry) == {"test", "since", "reason"}
            assert (SCRIPT.parents[1] / entry["test"].partition("::")[0]).exists()
