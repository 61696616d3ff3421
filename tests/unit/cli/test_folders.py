"""`nnictl experiment delete`, `save` and `load`: what they may touch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nnilite import _registry
from nnilite._cli.program import run
from stand_in_manager import Make


def test_a_running_experiment_is_not_deleted(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("abcd")
    assert run(["experiment", "delete", "abcd", "--yes"]) == 4
    assert folder.exists()


def test_a_stopped_experiment_is_deleted_after_a_yes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make("abcd", running=False)
    monkeypatch.setattr("nnilite._cli.screen.confirm", lambda question: False)
    run(["experiment", "delete", "abcd"])
    assert folder.exists()
    monkeypatch.setattr("nnilite._cli.screen.confirm", lambda question: True)
    run(["experiment", "delete", "abcd"])
    assert not folder.exists()
    assert _registry.entries() == []


def test_what_a_stop_has_left_behind_is_said_again_before_that_is_forgotten(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("abcd", running=False)
    _registry.write_json(folder / "manager.json", {"state": "STOPPED", "left": "box was away: `ssh box rm -r x`"})
    run(["experiment", "delete", "abcd", "-y"])
    assert "WARNING: box was away: `ssh box rm -r x`." in capsys.readouterr().err


def test_a_folder_that_is_no_experiments_is_never_deleted(home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    _registry.add("abcd", "", precious, "local", 1.0)
    assert run(["experiment", "delete", "abcd", "-y"]) == 1
    assert precious.exists()


def test_a_saved_experiment_comes_back_elsewhere(make: Make, tmp_path: Path) -> None:
    folder = make("abcd", running=False, state="DONE")
    code = tmp_path / "my code"
    code.mkdir()
    (code / "trial.py").write_text("print(1)")
    _registry.write_json(
        folder / "config.json", {"trialCodeDirectory": str(code), "trainingService": {"platform": "x"}}
    )
    (folder / "log" / "manager.log").write_text("hello")
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip"), "-s"]) == 0
    run(["experiment", "delete", "abcd", "-y"])
    assert run(["experiment", "load", "-p", str(tmp_path / "a.zip"), "-l", str(tmp_path / "new")]) == 0
    entry = _registry.find("abcd")
    assert (entry.directory / "log" / "manager.log").read_text() == "hello"
    config = json.loads((entry.directory / "config.json").read_text())
    assert (Path(config["trialCodeDirectory"]) / "trial.py").read_text() == "print(1)"


@pytest.mark.timeout(20)
def test_a_zip_file_in_the_code_directory_does_not_hold_itself(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make("abcd", running=False)
    (tmp_path / "my code").mkdir()
    (tmp_path / "my code" / "trial.py").write_text("print(1)")
    _registry.write_json(folder / "config.json", {"trialCodeDirectory": str(tmp_path / "my code")})
    monkeypatch.chdir(tmp_path / "my code")
    assert run(["experiment", "save", "abcd", "--code"]) == 0
    names = zipfile.ZipFile("nni_experiment_abcd.zip").namelist()
    assert [name for name in names if name.startswith("code/")] == ["code/trial.py"]


@pytest.mark.parametrize("command", [["experiment", "save", "-p"], ["experiment", "export", "-f"]])
def test_a_target_whose_folder_is_missing_is_named_as_it_was_given(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    make("abcd", running=command[1] == "export")
    target = tmp_path / "missing" / "target"
    assert run([*command, str(target), "abcd"]) == 1
    assert f"{target}: its folder does not exist\n" in capsys.readouterr().err


def test_what_belongs_to_one_manager_is_not_saved(make: Make, tmp_path: Path) -> None:
    folder = make("abcd", running=False)
    (folder / "token").write_text("secret")
    (folder / "log" / "link").symlink_to("/etc/passwd")
    run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")])
    assert (tmp_path / "a.zip").stat().st_mode & 0o777 == 0o600
    assert set(zipfile.ZipFile(tmp_path / "a.zip").namelist()) == {"nnilite.json"}


@pytest.mark.parametrize("name", ["experiment/../../out", "/etc/out", "elsewhere/out", "experiment"])
def test_a_zip_file_cannot_write_outside_its_folders(
    home: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("nnilite.json", json.dumps({"format": 1, "id": "abcd"}))
        archive.writestr(name, "evil")
    assert run(["experiment", "load", "-p", str(tmp_path / "bad.zip")]) == 1
    assert "no experiment has" in capsys.readouterr().err
    assert not (home / "abcd").exists()


@pytest.mark.parametrize(
    "about", [None, {}, {"format": 1, "id": "../x"}, {"format": 2, "id": "abcd"}, {"format": 1, "id": 3}]
)
def test_foreign_zip_files_are_refused(
    home: Path, tmp_path: Path, about: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        if about is not None:
            archive.writestr("nnilite.json", json.dumps(about))
    assert run(["experiment", "load", "-p", str(tmp_path / "bad.zip")]) == 1
    assert "was not written by" in capsys.readouterr().err
