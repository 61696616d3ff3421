"""The import contracts of pyproject.toml refuse what they are there for: tried on a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is for Python 3.11 and later")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("nnilite", "training_services", "tuners")
FORBIDDEN = {
    "a plugin imports what is not public": (
        "tuners/nnilite_basic/_random.py",
        "nnilite.space._parameter",
        "nnilite_basic._random -> nnilite.space._parameter",
    ),
    "the keeper imports what a worker lacks": (
        "nnilite/_keeper/spec.py",
        "nnilite.units",
        "nnilite._keeper.spec -> nnilite.units",
    ),
    "the hybrid service imports the engine": (
        "nnilite/_engine/hybrid.py",
        "nnilite._engine.engine",
        "nnilite._engine.hybrid -> nnilite._engine.engine",
    ),
    "the rules import the engine": (
        "nnilite/_engine/rules.py",
        "nnilite._engine.engine",
        "nnilite._engine.rules -> nnilite._engine.engine",
    ),
    "the rules import another part of the core": (
        "nnilite/_engine/rules.py",
        "nnilite.units",
        "nnilite._engine.rules -> nnilite.units",
    ),
    "the rules import what the hybrid service is made of": (
        "nnilite/_engine/rules.py",
        "nnilite._engine.member_refusals",
        "nnilite._engine.rules -> nnilite._engine.member_refusals",
    ),
    "the core imports a plugin": ("nnilite/units/__init__.py", "nnilite_local", "nnilite.units -> nnilite_local"),
    "a plugin imports a plugin": (
        "tuners/nnilite_basic/_random.py",
        "nnilite_optuna",
        "nnilite_basic._random -> nnilite_optuna",
    ),
    "a plugin imports the config of experiments": (
        "tuners/nnilite_basic/_random.py",
        "nnilite.config",
        "nnilite_basic._random -> nnilite.config",
    ),
    "a private module is imported from outside": (
        "nnilite/_cli/screen.py",
        "nnilite.config._load",
        "nnilite._cli.screen -> nnilite.config._load",
    ),
    "two modules import each other": (
        "nnilite/config/_explicit_fields.py",
        "nnilite.config._load",
        "in a circle BROKEN",
    ),
    "a module stands in no layer": ("nnilite/_attic.py", "json", "- nnilite._attic"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources and of the contracts, which the tests of this file may break one after the other."""
    folder = tmp_path_factory.mktemp("a copy of 'it'")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "_web"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(tree: Path) -> tuple[int, str]:
    """The exit status and the words of lint-imports. What one run has read is kept for the next."""
    places = [tree, *(tree / name for name in SOURCES[1:])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "PYTHONDONTWRITEBYTECODE": "1"}
    program = [str(Path(sys.executable).with_name("lint-imports")), "--cache-dir", str(tree / "cache")]
    done = subprocess.run(program, cwd=tree, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


@pytest.mark.process
def test_the_sources_as_they_are_keep_all_contracts(tree: Path) -> None:
    status, said = lint(tree)
    assert (status, "0 broken" in said) == (0, True), said


@pytest.mark.process
@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_forbidden_import_is_refused_and_named(tree: Path, case: str) -> None:
    file, imported, named = FORBIDDEN[case]
    path = tree / file
    before = path.read_text() if path.exists() else None
    path.write_text((before or "") + f"\nimport {imported}  # noqa\n")
    try:
        status, said = lint(tree)
    finally:
        path.unlink() if before is None else path.write_text(before)
    assert (status, " ".join(named.split()) in " ".join(said.split())) == (1, True), said
