"""An experiment's proposals are asked for again, and the first that differs is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nnilite import Search
from nnilite._cli.nnictl import run
from nnilite._experiments.documents import write_json
from nnilite._experiments.provenance_reading import FILE_NAME

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SPACE = {"x": {"_type": "uniform", "_value": [-5, 5]}, "kind": {"_type": "choice", "_value": ["a", "b"]}}
Told = Callable[[str], tuple[int, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a search whose trials ran three at a time."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "it's a\nfolder" / "bowl"
    search = Search(SPACE, "Evolution", optimize="minimize", seed=3, storage=folder, population_size=4)
    search.run(lambda parameters: parameters["x"] ** 2, trials=15, concurrency=3)
    return folder


@pytest.fixture
def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Replay, and return the exit code and what was printed."""

    def ask(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["experiment", "replay", folder.name, *words])
        printed = capsys.readouterr()
        return code, printed.out or printed.err

    return ask


def change_seed(folder: Path, seed: int | None) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["tuner"]["classArgs"]["seed"] = seed
    write_json(path, config)


def test_a_new_tuner_proposes_the_same_again(told: Told) -> None:
    assert told() == (0, "Experiment bowl: the tuner proposes the same again, all 15 times.\n")


def test_another_seed_shows_at_the_first_proposal(folder: Path, told: Told) -> None:
    change_seed(folder, 4)
    code, text = told()
    assert code == 1
    assert text.startswith("Experiment bowl: 0 proposals are the same, and then that of trial 0 differs.\n")
    assert "\n  x: was " in text
    assert "No package is known to have changed" in text


def test_a_package_that_has_changed_since_is_named(folder: Path, told: Told) -> None:
    change_seed(folder, 4)
    write_json(folder / FILE_NAME, {"starts": [{"python": {"packages": {"optuna": "0.1", "gone-since": "1"}}}]})
    assert "Packages that have changed: optuna 0.1, now " in told()[1]


def test_programs_get_the_difference_as_json(folder: Path, told: Told) -> None:
    change_seed(folder, 4)
    code, text = told("--json")
    found = json.loads(text)
    assert code == 1
    assert (found["same"], found["difference"]["number"]) == (0, 0)
    assert found["difference"]["recorded"] != found["difference"]["proposed"]


def test_without_a_seed_nothing_can_be_replayed(folder: Path, told: Told) -> None:
    change_seed(folder, None)
    code, text = told()
    assert code == 4
    assert "The tuner Evolution had no seed" in text
