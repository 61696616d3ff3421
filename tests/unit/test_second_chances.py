"""A test that fails is run again only where it is marked so, and a mark needs its reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAILS_ONCE = """
import pathlib, pytest
{mark}
def test_it():
    runs = pathlib.Path(__file__).with_suffix(".runs")
    before = runs.exists()
    runs.touch()
    assert before
"""


def pytest_says(folder: Path, mark: str) -> tuple[int, str]:
    """The exit status and the words of pytest, under the project's rules, on a test that fails at its first run."""
    folder.joinpath("test_it.py").write_text(FAILS_ONCE.format(mark=mark))
    plugins = [word for name in ("conftest", "pytest_rerunfailures", "pytest_timeout") for word in ("-p", name)]
    options = ["-c", str(ROOT / "pyproject.toml"), *plugins, "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tests"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    command = [sys.executable, "-m", "pytest", "-q", *options, f"--rootdir={folder}", str(folder / "test_it.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=folder)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mark", "status", "words"),
    [
        ("", 1, "1 failed"),
        ('@pytest.mark.second_chance("its deadline is short")', 0, "1 passed, 1 rerun"),
        ("@pytest.mark.second_chance", 4, "second_chance needs one sentence, the reason"),
        ('@pytest.mark.second_chance(" ")', 4, "second_chance needs one sentence, the reason"),
        ("@pytest.mark.flaky(reruns=3)", 4, "mark it by second_chance(reason), not by flaky"),
    ],
)
def test_only_a_mark_with_a_reason_gives_a_second_chance(tmp_path: Path, mark: str, status: int, words: str) -> None:
    found, said = pytest_says(tmp_path, mark)
    assert (found, words in said) == (status, True), said
