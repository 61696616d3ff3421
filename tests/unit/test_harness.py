"""What the test run itself checks: a planted process that outlives it, or one without its marker, turns it red."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import process_starts
from harness.left_processes import EXIT_STATUS

pytestmark = pytest.mark.process

TESTS = Path(__file__).resolve().parents[1]
_NAMES = ("process_starts", "process_folders", "left_processes", "durations", "group_ends", "named_files")
PLUGINS = [f"-pharness.{name}" for name in _NAMES]
LEAVES_ONE = """
import subprocess, pytest
from nnilite.testing import eventually

@pytest.mark.process
def test_that_leaves_a_process(tmp_path):
    left = subprocess.Popen(["sleep", "300"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = f"/proc/{left.pid}/cmdline"
    eventually(lambda: open(seen, "rb").read().startswith(b"sleep"))  # the system has begun the program
    print("left", left.pid)
    left.returncode = 0  # nobody waits for it
"""
STARTS_ONE = """
import subprocess, pytest

def test_without_the_marker():
    subprocess.run(["true"])

@pytest.mark.process
def test_with_it():
    subprocess.run(["true"])

def test_that_starts_none():
    pass
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range(200))
def test_of_many(number):
    pass
"""

SHARED = """
import pytest

ended = []

@pytest.fixture(scope="session")
def real_ray():
    yield
    ended.append("it")

@pytest.fixture
def job(real_ray):
    yield
    assert not ended

@pytest.mark.xdist_group("ray")
def test_of_the_group(job):
    pass

@pytest.mark.xdist_group("ray")
def test_that_ends_the_group(job):
    assert not ended

def test_of_no_group():
    assert ended == ["it"]

def test_that_wants_it_again(real_ray):
    assert ended == ["it"]

def test_that_is_the_last():
    assert ended == ["it"]
"""


OF_A_FOLDER = """
import pytest

@pytest.fixture
def of_the_folder():
    return 1
"""


def run(folder: Path, text: str, *named: str) -> tuple[int, str]:
    """Run these tests with the plugins of this repository; return the exit status and what is printed."""
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  process: x\n")
    command = [sys.executable, "-m", "pytest", "-s", *PLUGINS, f"--basetemp={folder / 'run'}", *named]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "NNILITE_TEST_RUN"))}
    environment = {**own, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", "NNILITE_TEST_GRACE_S": "0.5"}
    # To load all that this project's tests need takes longer than these tests.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


def test_a_process_that_outlives_the_run_is_listed_and_fails_it(tmp_path: Path) -> None:
    status, said = run(tmp_path, LEAVES_ONE)
    left = re.search(r"left (\d+)", said)
    assert left is not None, said
    os.kill(int(left[1]), signal.SIGKILL)
    assert (status, f"{left[1]}: sleep 300" in said) == (EXIT_STATUS, True), said


def test_failed_tests_do_not_hide_a_process_that_is_left(tmp_path: Path) -> None:
    status, said = run(tmp_path, LEAVES_ONE + "    assert False\n")
    left = re.search(r"left (\d+)", said)
    assert left is not None, said
    os.kill(int(left[1]), signal.SIGKILL)
    assert status == EXIT_STATUS, said


def test_a_test_that_starts_a_process_without_its_marker_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, STARTS_ONE)
    assert (status, "3 passed, 1 error" in said) == (1, True), said
    assert "ERROR test_it.py::test_without_the_marker" in said


def test_python_may_end_with_the_hook_that_notes_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_starts, "STARTS", None)  # as Python leaves the names of modules at its end
    sys.audit("open", "a file", "r", 0)


def test_a_folder_whose_tests_all_start_processes_is_read_where_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    (tmp_path / "tests" / "e2e" / "test_one.py").write_text(
        "import subprocess\n\ndef test_it():\n    subprocess.run('true')\n"
    )
    status, said = run(tmp_path, "def test_of_above():\n    pass\n")
    assert (status, "2 passed" in said) == (0, True), said
    (tmp_path / "tests" / "e2e" / "test_one.py").write_text("what cannot be read")
    status, said = run(tmp_path, "def test_of_above():\n    pass\n", "-m", "not process and not long")
    assert (status, "1 passed" in said) == (0, True), said


def test_the_durations_of_each_folder_are_printed_after_a_long_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, MANY)
    table = re.search(r"durations, over all processes =+\n +[\d.]+ s +200 tests", said)
    assert (status, table is not None) == (0, True), said


def test_what_a_group_shares_ends_with_the_group(tmp_path: Path) -> None:
    status, said = run(tmp_path, SHARED)
    assert (status, "5 passed" in said) == (0, True), said


def test_tests_have_the_fixtures_of_their_folder_in_whatever_order_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "conftest.py").write_text(OF_A_FOLDER)
    inner = [f"inner/test_{name}.py" for name in ("one", "two")]
    for file in inner:
        (tmp_path / file).write_text("def test_that_uses_it(of_the_folder):\n    pass\n")
    status, said = run(tmp_path, "def test_of_above():\n    pass\n", inner[0], "test_it.py", inner[1])
    assert (status, "3 passed" in said) == (0, True), said
