"""The bytecode with which a keeper starts: of this Python's last import of its modules, or none."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nnilite._keeper import _find_bytecode, build
from nnilite._version import __version__
from pythons import python_of

pytestmark = pytest.mark.process


def ask_version(python: str, keeper: Path) -> subprocess.CompletedProcess[str]:
    command = [python, "-I", "-S", str(keeper), "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def without_sources(keeper: Path) -> Path:
    """Write a copy whose sources are no programs, and return its place."""
    copy = keeper.with_name("broken.pyz")
    with zipfile.ZipFile(keeper) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"no source" if f"{name}c" in old.namelist() else old.read(name))
    return copy


def test_a_keeper_starts_from_the_bytecode_that_imports_of_its_modules_have_left(tmp_path: Path) -> None:
    done = ask_version(sys.executable, without_sources(build(tmp_path / "keeper.pyz")))
    assert done.stdout.startswith(f"nnilite keeper {__version__} "), done.stderr


@pytest.mark.parametrize("other", ["3.8", "3.13"])
def test_another_python_starts_a_keeper_from_its_sources(tmp_path: Path, other: str) -> None:
    python = python_of(other)
    if python is None or sys.version.startswith(f"{other}."):
        pytest.skip(f"there is no other Python {other} here")
    keeper = build(tmp_path / "keeper.pyz")
    assert ask_version(python, keeper).stdout.startswith(f"nnilite keeper {__version__} ")
    assert ask_version(python, without_sources(keeper)).returncode != 0


def test_bytecode_of_an_earlier_source_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "kept.py"
    module.write_text("x = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    [found] = _find_bytecode("kept.py", module, b"x = 1\n").values()
    assert found.startswith(importlib.util.MAGIC_NUMBER)
    kept = Path(importlib.util.cache_from_source(str(module)))
    before = kept.read_bytes()
    module.write_text("x = 23\n")
    assert len(_find_bytecode("kept.py", module, b"x = 23\n")) == 1
    assert kept.read_bytes() != before
    module.write_text("x = 456\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert _find_bytecode("kept.py", module, b"x = 456\n") == {}


def test_bytecode_that_a_full_disk_has_cut_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "cut.py"
    module.write_text("def f():\n    return 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert len(_find_bytecode("cut.py", module, module.read_bytes())) == 1
    kept = Path(importlib.util.cache_from_source(str(module)))
    whole = kept.read_bytes()
    for size in range(16, len(whole)):
        kept.write_bytes(whole[:size])
        assert _find_bytecode("cut.py", module, module.read_bytes()) == {}, size


def test_a_keeper_that_does_not_fit_on_the_disk_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nnilite._keeper._write", fail)
    with pytest.raises(OSError, match="No space") as caught:
        build(tmp_path / "keeper.pyz")
    assert caught.value.filename == str(tmp_path / "keeper.pyz")
    assert not list(tmp_path.iterdir())
