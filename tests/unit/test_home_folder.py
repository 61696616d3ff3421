"""A home folder that cannot be used, as with HOME of another user after `sudo -u`: errors name it and the cure."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

from nnilite._cli.nnictl import run
from nnilite._experiments.documents import read_content
from nnilite._experiments.home_folder import explain_home
from nnilite._plugins import user_algorithms
from nnilite.config import from_dict
from nnilite.errors import ConfigError, UnreadableFile

CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "true",
    "trainingService": {"platform": "local"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of another user, in which this one may not write."""
    monkeypatch.delenv("NNILITE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    return tmp_path


def test_the_folder_of_experiments_in_the_home_of_another_user_has_a_cure(home: Path) -> None:
    with pytest.raises(ConfigError, match="is another user's: set HOME to a folder of your own, as `sudo -H` does"):
        from_dict(CONFIG).checked()


def test_the_folder_of_experiments_in_a_home_that_does_not_exist_has_a_cure(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home / "nobody"))
    with pytest.raises(ConfigError, match="nobody' does not exist: set HOME to a folder of your own"):
        from_dict(CONFIG).checked()


def test_a_file_of_nnilite_that_cannot_be_read_there_has_the_same_cure(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnreadableFile, match=r"\(Permission denied\); the home folder .* is another user's"):
        read_content(home / "registry.json", "remove it")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom the system does not know, as in a container that was started for one, without HOME."""

    def refuse(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "NNILITE_HOME", "NNI_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", refuse)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("command", [["experiment", "list"], ["stop", "--all"], ["create", "config.yaml"], ["doctor"]])
def test_without_any_home_folder_all_commands_say_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert run(command) == 1
    assert "has no home folder: set HOME" in "".join(capsys.readouterr())


@pytest.mark.usefixtures("nobody")
def test_who_has_no_home_folder_needs_that_variable_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    assert from_dict({**CONFIG, "trialConcurrency": 1}).checked().experiment_working_directory == tmp_path
    assert user_algorithms.registered() == []


def test_a_folder_elsewhere_and_a_home_of_ones_own_have_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain_home(Path("/elsewhere")) == ""
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid)
    assert explain_home(home / "x") == ""
