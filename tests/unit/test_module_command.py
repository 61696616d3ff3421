"""Programs of nnilite's own are started without what lies in the current folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite.services.module_command import module_command

SOURCES = Path(__file__).parents[2]
TAKEN = ("nnilite", "json", "logging", "asyncio", "sqlite3", "runpy", "yaml", "tornado")


@pytest.mark.process
@pytest.mark.parametrize("version", [sys.version_info[:2], (3, 10)])
@pytest.mark.parametrize("module", ["nnilite._webhooks", "nnilite._trackers", "nnilite._manager"])
def test_no_module_comes_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], module: str
) -> None:
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is foreign')")
    monkeypatch.setattr(sys, "version_info", version)
    command = module_command(module, "--help")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m {module}" in done.stdout


def test_no_other_command_runs_a_module() -> None:
    pattern = re.compile(r"sys\.executable, ['\"]-m['\"]")
    folders = (SOURCES / name for name in ("nnilite", "training_services", "tuners"))
    found = [path for folder in folders for path in folder.rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert found == []
