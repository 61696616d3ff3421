"""NNI 3.0 itself, for tests that compare nnilite with it: a Python that has it, made once and kept.

It is in `nni-3.0` of the folder for tests in the user's cache, or of the one that NNILITE_TEST_CACHE names. NNI runs
on Python up to 3.11 with older versions of some libraries. NNILITE_TEST_NNI names another Python that has it.
`nni-3.0-models` also has the models of its DNGO and SMAC, which take minutes to compile.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NNI = ("nni==3.0 hyperopt==0.1.2 configspace==0.7.1 statsmodels numpy<2 setuptools<70",)
"""What is installed: NNI, what its Anneal and BOHB need, and the last versions with which it works."""
MODELS = (
    "nni==3.0 numpy<1.24 setuptools<58 wheel cython<3 swig joblib psutil pynisher<1 emcee",
    "--no-build-isolation pyrfr ConfigSpaceNNI",  # are built with NumPy, Cython and SWIG
    "--no-build-isolation --no-deps smac4nni pybnn",  # torch comes from scripts/test-torch
)
_LIMIT_S = 900


def need_python() -> Path:
    """Return a Python that has NNI, or skip the test where there is none."""
    named = os.environ.get("NNILITE_TEST_NNI")
    return Path(named) if named else _need("nni-3.0", ">=3.9,<3.12", NNI)


def kept_answers() -> Path | None:
    """Return the folder for what the NNI of `need_python` has answered; None in long runs, and for a named Python."""
    if {"NNILITE_TEST_NNI", "NNILITE_SIMULATION_RUNS"} & set(os.environ):
        return None
    folder = need_python().parents[1] / "answers"  # in the environment, which is removed before another is made
    folder.mkdir(exist_ok=True)
    return folder


def need_python_with_models() -> Path:
    """Return a Python in which NNI's SMAC works and, with torch on its path, DNGO, or skip the test."""
    return _need("nni-3.0-models", "3.11", MODELS)


def _need(name: str, version: str, steps: tuple[str, ...]) -> Path:
    python, why_not = _find_python(name, version, steps)
    if python is None:
        pytest.skip(f"there is no NNI 3.0 to compare with: {why_not}")
    return python


@functools.cache
def _find_python(name: str, version: str, steps: tuple[str, ...]) -> tuple[Path | None, str]:
    own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("NNILITE_TEST_CACHE") or Path(own) / "nnilite-tests") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
            return _make(folder, version, steps), ""
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return None, said.strip().rpartition("\n")[2]


def _make(folder: Path, version: str, steps: tuple[str, ...]) -> Path:
    """Install NNI unless that was done before. Raises: OSError, CalledProcessError, TimeoutExpired"""
    python, whole = folder / "venv" / "bin" / "python", folder / "packages"
    listed = "\n".join(steps).replace(" ", "\n")
    if whole.is_file() and whole.read_text() == listed:
        return python
    shutil.rmtree(folder / "venv", ignore_errors=True)  # half of one, or one with other packages
    _run_uv(folder, "venv", "--no-python-downloads", "--python", version, str(folder / "venv"))
    for packages in steps:
        _run_uv(folder, "pip", "install", "--python", str(python), *packages.split())
    whole.write_text(listed)  # last, as it says that the rest is there
    return python


def _run_uv(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "uv", "--quiet", *arguments]
    path = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"  # SWIG is there
    how: Any = {"check": True, "capture_output": True, "text": True, "timeout": _LIMIT_S}
    subprocess.run(command, **how, env={**os.environ, "PATH": path})
