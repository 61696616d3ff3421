"""What users install: the wheel and the source distribution, in fresh environments, by the oldest and newest Python.

Every day a wheel is made of the source distribution, which lacks a file first, and installed by the oldest Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pythons import python_of

ROOT = Path(__file__).resolve().parents[2]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
CONFIG = """
searchSpace: {x: {_type: uniform, _value: [0, 1]}}
trialCommand: python3 -c 'import nni; nni.report_final_result(nni.get_next_parameter()["x"])'
trialConcurrency: 1
maxTrialNumber: 2
tuner: {name: Random}
trainingService: {platform: local}
"""

pytestmark = [pytest.mark.real]


def call(*command: str | Path, folder: Path = ROOT, **variables: str) -> str:
    """What a program prints. Fails with its complaint."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "hatchling", "build", "-d", folder)
    return folder


def ensure_environment(version: str, folder: Path) -> Path:
    """The programs of a fresh environment."""
    if UV is None:
        pytest.skip("uv, which makes environments, is not installed")
    python = python_of(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    call(UV, "venv", "--quiet", "--python", python, folder)
    return folder / "bin"


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("3.10", "*.tar.gz"),
        pytest.param("3.10", "*.whl", marks=pytest.mark.long),
        pytest.param("3.13", "*.tar.gz", marks=pytest.mark.long),
        pytest.param("3.13", "*.whl", marks=pytest.mark.long),
    ],
)
def test_what_is_built_searches_in_a_fresh_environment(built: Path, tmp_path: Path, version: str, package: str) -> None:
    programs = ensure_environment(version, tmp_path / "fresh")
    [found] = built.glob(package)
    call(str(UV), "pip", "install", "--quiet", "--python", programs / "python", found)
    own = {"NNILITE_HOME": str(tmp_path / "home"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "config.yaml").write_text(CONFIG)
    create = (programs / "nnictl", "create", "--config", "config.yaml", "--port", "0", "--foreground")
    call(*create, folder=tmp_path, **own)
    [kept] = json.loads(call(programs / "nnilite", "experiment", "list", "--all", "--json", folder=tmp_path, **own))
    trials = json.loads(call(programs / "nnictl", "trial", "ls", kept["id"], "--json", folder=tmp_path, **own))
    assert [trial["state"] for trial in trials] == ["SUCCEEDED", "SUCCEEDED"]
    where = call(programs / "python", "-c", "import nnilite; print(nnilite.__file__)", folder=tmp_path, **own)
    package_folder = Path(where.strip()).parent
    assert package_folder.is_relative_to(tmp_path / "fresh")
    assert all((package_folder / name).is_file() for name in ("py.typed", "_web/index.html", "_web/hub.html"))


@pytest.mark.long  # it depends on pyproject.toml and hatchling alone, and builds five packages
def test_the_same_sources_make_the_same_packages(tmp_path: Path) -> None:
    """By `build`, which makes the wheel of the source distribution, from the clone, and elsewhere on another day."""
    made_at = {"SOURCE_DATE_EPOCH": "1790000000"}
    call(sys.executable, "-m", "build", "--no-isolation", "-o", tmp_path / "first", **made_at)
    call(sys.executable, "-m", "hatchling", "build", "-d", tmp_path / "second", **made_at)
    [source] = (tmp_path / "first").glob("*.tar.gz")
    shutil.unpack_archive(source, tmp_path / "unpacked", filter="data")
    [folder] = (tmp_path / "unpacked").iterdir()
    for path in folder.rglob("*"):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "third", folder=folder, **made_at)
    first, second, third = (digests(tmp_path / name) for name in ("first", "second", "third"))
    assert len(first) == 2
    assert second == first
    assert third.items() < first.items()


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.*")}


def test_an_index_would_take_the_packages(built: Path) -> None:
    """Twine reads what an index reads: metadata, and the README that it shows."""
    said = call(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *built.iterdir())
    assert said.count("PASSED") == 2
