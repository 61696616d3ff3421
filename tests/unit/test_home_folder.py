"""A home folder that cannot be used, as with HOME of another user after `sudo -u`: errors name it and the cure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnilite._experiments.documents import read_content
from nnilite._experiments.home_folder import explain_home
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


def test_a_folder_elsewhere_and_a_home_of_ones_own_have_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain_home(Path("/elsewhere")) == ""
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid)
    assert explain_home(home / "x") == ""
