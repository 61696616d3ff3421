"""Folders and files of nnilite under a umask that lets others write, as 002 does where users share a group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._checkpoints.shared_storage import SharedStorage
from nnilite._experiments import page_preferences, registry
from nnilite._experiments.new_folders import make_own_folder
from nnilite._plugins import user_algorithms
from nnilite._plugins.user_algorithms import Registered
from nnilite._running import launch
from nnilite.config import SharedStorageConfig
from nnilite.errors import ConfigError
from nnilite.search import Search
from other_user import STRANGER, known_user


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "above" / "home"))
    monkeypatch.setenv("NNI_CONFIG_DIR", str(tmp_path / "config" / "nnilite"))
    before = os.umask(0)
    yield tmp_path
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    return sorted(str(path.relative_to(folder)) for path in found)


def test_no_other_user_can_replace_an_experiment_or_what_makes_it_known(home: Path) -> None:
    launch.make_folder(registry.root() / "abc")
    registry.add("abc", "", registry.root() / "abc", "local", 1.0)
    page_preferences.keep_columns("trials", ["x"])
    assert open_to_others(home) == []
    assert (registry.root() / "abc").stat().st_mode & 0o777 == 0o700


def test_no_other_user_can_register_a_tuner_for_this_one(home: Path) -> None:
    user_algorithms.register(Registered("mine", "tuner", "mine.Tuner", "/code"))
    assert open_to_others(home) == []


def test_no_other_user_can_replace_a_stored_search(home: Path) -> None:
    Search({"x": {"_type": "choice", "_value": [1, 2]}}, storage=home / "searches" / "first")
    assert open_to_others(home) == []


@pytest.mark.process
@pytest.mark.parametrize("name", ["theirs", "theirs/new", "theirs/a/new", "link"])
def test_what_another_user_has_laid_where_all_may_make_folders_is_refused(tmp_path: Path, name: str) -> None:
    stranger = known_user(STRANGER).pw_uid
    tmp_path.chmod(0o1777)
    (tmp_path / "theirs").mkdir(0o777)
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    for laid in ("theirs", "link"):
        os.lchown(tmp_path / laid, stranger, stranger)
    with pytest.raises(PermissionError, match="is another user's, who could replace what is in it"):
        make_own_folder(tmp_path / name)
    with pytest.raises(ConfigError, match=r"theirs/abc' cannot be made .*another user's"):
        launch.make_folder(tmp_path / "theirs/abc")
    assert not any((tmp_path / "theirs").iterdir())


def prepared_storage(mount: Path) -> Path:
    """Prepare the shared storage of an experiment, and return its folder there."""
    for folder in (mount, mount.parent / "scratch"):
        folder.mkdir(exist_ok=True)
    places = {"local_mount_point": mount, "remote_mount_point": mount}
    config = SharedStorageConfig("NFS", local_mounted="usermount", **places)
    SharedStorage(config, "e", "all", {}).prepare(mount.parent / "scratch")
    return mount / "nni" / "e"


def test_no_other_user_can_replace_an_experiment_in_a_mounted_storage(home: Path) -> None:
    folder = prepared_storage(home / "mount")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.process
@pytest.mark.parametrize("name", ["nni", "nni/e"])
def test_a_part_of_a_mounted_storage_that_another_user_has_laid_is_refused(tmp_path: Path, name: str) -> None:
    stranger = known_user(STRANGER).pw_uid
    mount = tmp_path / "mount"
    (mount / name).mkdir(parents=True)
    os.chown(mount / name, stranger, stranger)
    (mount / name).parent.chmod(0o1777)
    with pytest.raises(ConfigError, match="another user's, who could replace what is in it"):
        prepared_storage(mount)


def test_a_place_that_takes_no_folder_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="/proc/nni-experiments"):
        make_own_folder(Path("/proc/nni-experiments/abcd"))


def test_a_folder_that_is_there_keeps_its_rights(home: Path) -> None:
    (home / "shared").mkdir(0o777)
    make_own_folder(home / "shared")
    assert (home / "shared").stat().st_mode & 0o777 == 0o777
    (home / "file").touch()
    with pytest.raises(FileExistsError):
        make_own_folder(home / "file")
