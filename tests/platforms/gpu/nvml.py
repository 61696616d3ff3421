"""A simulated NVML for programs under test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory):
    """A folder with a simulated libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml.c")
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return folder


class Machine:
    """A simulated machine: what `describe` says is what NVML tells, at once."""

    def __init__(self, place: Path, library: Path) -> None:
        self._place = place
        self.environment = {**os.environ, "SIMULATED_GPUS": str(place), "LD_LIBRARY_PATH": str(library)}
        self.describe()

    def describe(self, *lines: str) -> None:
        draft = self._place.with_suffix(".new")
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.replace(self._place)


@pytest.fixture
def machine(tmp_path, nvml_folder):
    return Machine(tmp_path / "gpus $x", nvml_folder)
