"""Runs the tests with each Python that nnilite is for: `make test-pythons`.

The whole package by `make check`, in an environment of its own for each version, which stays in `build/pythons`. What
runs on workers by `make check-workers`. The summary has a line for each version, also for those that neither pyenv, nor
uv, nor the PATH has here: these are not tested, and do not fail the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pythons import python_of  # noqa: E402

WHOLE_PACKAGE = ("3.10", "3.11", "3.12", "3.13", "3.14")
WORKERS_ONLY = ("3.8", "3.9")


def check(version: str, python: str) -> bool:
    """Whether all tests that start no process pass with this Python."""
    return make("check", f"PYTHON={python}", f"VENV=build/pythons/{version}")


def check_workers(version: str, _: str) -> bool:
    """Whether what runs on workers does so with this Python; the tests themselves run with the one of `.venv`."""
    return make("check-workers", NNILITE_TEST_WORKER_PYTHONS=version)


def make(*arguments: str, **variables: str) -> bool:
    environment = {**os.environ, **variables}
    # What the calling make was told, such as its own VENV, is not for this one.
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS"):
        environment.pop(name, None)
    print("\n$ make", *arguments, *(f"{name}={value}" for name, value in variables.items()), flush=True)
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    results: dict[str, str] = {}
    for run, versions in ((check, WHOLE_PACKAGE), (check_workers, WORKERS_ONLY)):
        for version in versions:
            python = python_of(version)
            results[version] = "NOT TESTED" if python is None else "passed" if run(version, python) else "FAILED"
    print("\nPython")
    for version, result in results.items():
        part = "workers" if version in WORKERS_ONLY else "whole package"
        missing = ": install it with pyenv or uv" if result == "NOT TESTED" else ""
        print(f"{version:5} {part:14} {result}{missing}")
    return int("passed" not in results.values() or "FAILED" in results.values())


if __name__ == "__main__":
    sys.exit(main())
