"""What a manager would do first, as a dry run shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite._experiments import registry
from nnilite._manager import assembly
from nnilite._manager.preview import preview
from nnilite.config import from_dict

pytestmark = pytest.mark.process  # the tuner has a process of its own

CONFIG = {
    "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
    "trialCommand": "true",
    "trialConcurrency": 1,
    "tuner": {"name": "GridSearch"},
    "trainingService": {"platform": "local"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "abcdefgh"
    directory.mkdir()
    registry.make_folders(directory)
    return directory


async def test_a_preview_has_the_first_parameters_and_the_job_without_its_token(folder: Path) -> None:
    first = await preview(folder, from_dict(CONFIG, folder).checked(), assembly.Address(port=8080))
    assert (first.parameters, first.unchecked) == ({"x": 1}, "")
    assert "********" in str(first.jobs["local"])
    assert list((folder / "trials").iterdir()) == []


async def test_a_preview_comes_from_the_assembly_of_a_manager(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assembled = []
    assemble = assembly.assemble
    monkeypatch.setattr(assembly, "assemble", lambda *given: assembled.append(assemble(*given)) or assembled[0])
    await preview(folder, from_dict(CONFIG, folder).checked(), assembly.Address(port=8080))
    assert [parts.engine.rules.settings.concurrency for parts in assembled] == [1]
