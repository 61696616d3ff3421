"""NNI 3.0 itself, for tests that compare nnilite with it: a Python that has it, made once and kept.

It is in `nni-3.0` of the folder for tests in the user's cache, or of the one that NNILITE_TEST_CACHE names. NNI runs
on Python up to 3.11 with older versions of some libraries. NNILITE_TEST_NNI names another Python that has it.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ["nni==3.0", "hyperopt==0.1.2", "configspace==0.7.1", "statsmodels", "numpy<2", "setuptools<70"]
"""NNI, what its Anneal and BOHB need, and the last versions with which it works."""
_PYTHONS = ">=3.9,<3.12"
_LIMIT_S = 400


def need_python() -> Path:
    """Return a Python that has NNI, or skip the test where there is none."""
    python, why_not = _find_python()
    if python is None:
        pytest.skip(f"there is no NNI 3.0 to compare with: {why_not}")
    return python


@functools.cache
def _find_python() -> tuple[Path | None, str]:
    named = os.environ.get("NNILITE_TEST_NNI")
    if named:
        return Path(named), ""
    own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("NNILITE_TEST_CACHE") or Path(own) / "nnilite-tests") / "nni-3.0"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
            return _make(folder), ""
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return None, said.strip().rpartition("\n")[2]


def _make(folder: Path) -> Path:
    """Install NNI unless that was done before. Raises: OSError, CalledProcessError, TimeoutExpired"""
    python, whole = folder / "venv" / "bin" / "python", folder / "packages"
    if whole.is_file() and whole.read_text() == "\n".join(PACKAGES):
        return python
    shutil.rmtree(folder / "venv", ignore_errors=True)  # half of one, or one with other packages
    _run_uv("venv", "--no-python-downloads", "--python", _PYTHONS, str(folder / "venv"))
    _run_uv("pip", "install", "--python", str(python), *PACKAGES)
    whole.write_text("\n".join(PACKAGES))  # last, as it says that the rest is there
    return python


def _run_uv(*arguments: str) -> None:
    command = [sys.executable, "-m", "uv", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S)
