"""Other Pythons that are installed on this machine."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path


@functools.cache
def python_of(version: str) -> str | None:
    """The program of this version, such as "3.8"."""
    by_pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    by_uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    managed = [*by_pyenv.glob(f"{version}.*/bin/python"), *by_uv.glob(f"cpython-{version}.*/bin/python")]
    candidates = [str(path) for path in sorted(managed)]
    candidates += filter(None, [shutil.which(f"python{version}")])
    return next(filter(_starts, candidates), None)


def _starts(python: str) -> bool:
    """Whether it is one: pyenv puts programs on the PATH for Pythons that it cannot find under another HOME."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False, timeout=60).returncode == 0
