"""What pip finds for each extra, with the versions of pip that the README names, in fresh environments."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pythons import python_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FOR_CONTRIBUTORS = {"bench", "docs", "dev", "demo"}
OLDEST = ("3.10", "22.0.2")  # Ubuntu 22.04
LATER = [("3.11", "23.0.1"), ("3.12", "24.0")]  # Debian 12, Ubuntu 24.04
CPU_LIMIT_S = 120
WALL_LIMIT_S = 900
"""For machines with much else to do, and slow networks: what is measured is the work of the resolver."""

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.timeout(WALL_LIMIT_S + 100)]


@pytest.fixture(scope="module")
def pip_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    made: dict[str, Path] = {}

    def program(python: str, version: str) -> Path:
        if version not in made:
            made[version] = environment(python, version, tmp_path_factory.mktemp("fresh"))
        return made[version]

    return program


def environment(python: str, version: str, folder: Path) -> Path:
    """A fresh environment with this version of pip; the program `pip` of it."""
    found = python_of(python)
    if found is None:
        pytest.skip(f"there is no Python {python} on this machine")
    run(found, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", f"pip=={version}")
    return folder / "bin/pip"


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WALL_LIMIT_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def processor_time(*command: str | Path) -> float:
    """Seconds that a program and its children took of the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - FOR_CONTRIBUTORS))
def test_the_oldest_pip_finds_what_an_extra_needs(
    pip_of: Callable[[str, str], Path], tmp_path: Path, extra: str, record_property: Callable[[str, object], None]
) -> None:
    # It has no --dry-run. To resolve, it has to download nearly everything in any case.
    taken_s = processor_time(pip_of(*OLDEST), "download", "--dest", tmp_path, f".[{extra}]")
    record_property("shown", f"pip {OLDEST[1]} resolved [{extra}] in {taken_s:.0f} s of processor time")
    assert taken_s < CPU_LIMIT_S
    assert next(tmp_path.glob("tornado-*"), None)


@pytest.mark.parametrize(("python", "version"), LATER)
def test_later_pips_find_what_all_needs(
    pip_of: Callable[[str, str], Path], tmp_path: Path, python: str, version: str
) -> None:
    report = tmp_path / "report.json"
    taken_s = processor_time(pip_of(python, version), "install", "--dry-run", "--report", report, ".[all]")
    assert taken_s < CPU_LIMIT_S
    assert '"name": "azure-ai-ml"' in report.read_text()


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_contributors_with_any_python_find_what_dev_needs(tmp_path: Path, python: str) -> None:
    """Every version that is promised: `make check` installs them by uv."""
    uv = Path(sys.executable).with_name("uv")
    words = ("--quiet", "--python-version", python, "--extra", "dev", "--output-file", tmp_path / "found.txt")
    run(uv, "pip", "compile", *words, "pyproject.toml")
    assert "\npytest==" in (tmp_path / "found.txt").read_text()
