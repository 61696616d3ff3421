"""Whose the folder on a login host is: the script that makes it follows the rule of `nnilite._keeper.folder_owner`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nnilite.services.cluster import shell_scripts
from other_user import STRANGER, known_user

pytestmark = pytest.mark.process


@pytest.fixture
def stranger(tmp_path: Path) -> int:
    tmp_path.chmod(0o1777)
    return known_user(STRANGER).pw_uid


def prepare(folder: Path | str) -> str:
    """What the script complains about; "" if it has made the folder."""
    command = ["/bin/sh", "-c", shell_scripts.PREPARE, "nnilite", str(folder), "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert bool(done.returncode) == bool(done.stderr), done
    assert done.stderr or done.stdout == f"{Path(folder).resolve()}\n"
    return done.stderr


def test_an_own_folder_is_made_and_used_again(tmp_path: Path, stranger: int) -> None:
    for _ in range(2):
        assert prepare(f"{tmp_path}/a 'b'$/c/") == ""
    assert (tmp_path / "a 'b'$/c/cache").is_dir()


@pytest.mark.parametrize("place", ["theirs", "theirs/new", "link/new", "link"])
def test_one_in_a_folder_or_link_that_another_user_has_laid_is_refused(
    tmp_path: Path, stranger: int, place: str
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("mine")
    for name in ("theirs", "link"):
        os.lchown(tmp_path / name, stranger, stranger)
    assert "is another user's, who could replace what trials run" in prepare(tmp_path / place)
    assert not list(tmp_path.glob("**/cache"))


def test_one_that_was_made_by_hand_in_a_folder_of_another_user_is_used(tmp_path: Path, stranger: int) -> None:
    (tmp_path / "theirs/mine").mkdir(parents=True)
    os.chown(tmp_path / "theirs", stranger, stranger)
    assert prepare(tmp_path / "theirs/mine") == ""
