"""`make test-pythons`: which Pythons are tested, and what is said of the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test_pythons.py"
MAKE = """#!/bin/sh
echo "$* $NNILITE_TEST_WORKER_PYTHONS" >>"$CALLS"
case "$*" in *"$FAILS"*) exit 2 ;; esac
"""
PROGRAMS = {
    "pyenv/versions/3.12.1/bin/python": "#!/bin/sh\n",
    "uv/cpython-3.13.2-linux-x86_64-gnu/bin/python": "#!/bin/sh\n",
    "bin/python3.9": "#!/bin/sh\n",
    "bin/python3.10": "#!/bin/sh\nexit 127\n",  # what pyenv leaves on the PATH for a Python that it does not find
    "bin/make": MAKE,
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with Python 3.12 by pyenv, 3.13 by uv, 3.9 on the PATH, and a `make` that notes how it is called."""
    for name, text in PROGRAMS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path


def run(machine: Path, fails: str = "nothing") -> tuple[int, list[str]]:
    """The exit status, and the lines of the summary."""
    environment = {
        "PATH": f"{machine}/bin:/nowhere",
        "HOME": str(machine),
        "PYENV_ROOT": f"{machine}/pyenv",
        "UV_PYTHON_INSTALL_DIR": f"{machine}/uv",
        "CALLS": f"{machine}/calls",
        "FAILS": fails,
    }
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, [" ".join(line.split()) for line in done.stdout.partition("\nPython\n")[2].splitlines()]


def test_those_that_are_here_are_tested_and_the_others_are_named(machine: Path) -> None:
    status, summary = run(machine)
    assert status == 0
    assert summary == [
        "3.10 whole package NOT TESTED: install it with pyenv or uv",
        "3.11 whole package NOT TESTED: install it with pyenv or uv",
        "3.12 whole package passed",
        "3.13 whole package passed",
        "3.14 whole package NOT TESTED: install it with pyenv or uv",
        "3.8 workers NOT TESTED: install it with pyenv or uv",
        "3.9 workers passed",
    ]
    assert (machine / "calls").read_text().splitlines() == [
        f"check PYTHON={machine}/pyenv/versions/3.12.1/bin/python VENV=build/pythons/3.12 ",
        f"check PYTHON={machine}/uv/cpython-3.13.2-linux-x86_64-gnu/bin/python VENV=build/pythons/3.13 ",
        "check-workers 3.9",
    ]


def test_one_that_fails_fails_the_run_after_the_others(machine: Path) -> None:
    status, summary = run(machine, fails="pythons/3.12")
    assert (status, summary[2:4]) == (1, ["3.12 whole package FAILED", "3.13 whole package passed"])


def test_a_machine_without_any_of_them_fails(machine: Path) -> None:
    for name in PROGRAMS.keys() - {"bin/make"}:
        (machine / name).unlink()
    status, summary = run(machine)
    assert (status, {line.rpartition(" NOT TESTED")[1] for line in summary}) == (1, {" NOT TESTED"})
