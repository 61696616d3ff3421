"""The folder of an experiment's trials: on ext4 without a journal each trial is in another group of the disk."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._experiments.registry import make_folders
from nnilite._keeper import trials_folder
from nnilite._keeper.attempt_files import AttemptFiles
from nnilite._keeper.trials_folder import make_trials_folder

TOPDIR = 0x20000


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of its own, with ext4 that is made with the given features."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    image.write_bytes(b"")
    os.truncate(image, 16 << 20)
    folder.mkdir()
    subprocess.run(["/sbin/mkfs.ext4", "-q", "-O", request.param, image], check=True, timeout=60)
    mounted = subprocess.run(["mount", "-o", "loop", image, folder], stderr=subprocess.DEVNULL, timeout=60)
    if mounted.returncode:
        pytest.skip("a disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True, timeout=60)


def flags(folder: Path) -> int:
    file = os.open(folder, os.O_RDONLY)
    try:
        return int(struct.unpack("i", fcntl.ioctl(file, trials_folder._GET, bytes(4)))[0])
    finally:
        os.close(file)


@pytest.mark.process
@pytest.mark.parametrize(("disk", "wanted"), [("^has_journal", TOPDIR), ("has_journal", 0)], indirect=["disk"])
def test_trials_are_apart_where_a_freed_inode_costs_time(disk: Path, wanted: int) -> None:
    make_folders(disk)
    AttemptFiles(str(disk / "of an agent/trials/a/0")).create({})
    for folder in (disk / "trials", disk / "of an agent/trials"):
        assert flags(folder) & TOPDIR == wanted
        assert folder.stat().st_mode & 0o777 == 0o700
    assert flags(disk / "log") & TOPDIR == 0


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The requests for attributes, of which each is refused; the disk has no journal, as far as the system says."""
    number = tmp_path.stat().st_dev
    (tmp_path / "devices").mkdir()
    (tmp_path / f"devices/{os.major(number)}:{os.minor(number)}").symlink_to("../block/vda1")
    (tmp_path / "ext4/vda1").mkdir(parents=True)
    (tmp_path / "ext4/vda1/options").write_text("rw\nnojournal_checksum\n")
    monkeypatch.setattr(trials_folder, "_DEVICES", str(tmp_path / "devices"))
    monkeypatch.setattr(trials_folder, "_EXT4", str(tmp_path / "ext4"))
    found: list[int] = []

    def refuse(file: int, request: int, *_: object) -> bytes:
        found.append(request)
        raise PermissionError

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    return found


def test_a_folder_is_there_also_if_attributes_are_refused(tmp_path: Path, asked: list[int]) -> None:
    make_trials_folder(str(tmp_path / "e/trials"))
    assert (tmp_path / "e/trials").is_dir()
    assert asked == [trials_folder._GET]


@pytest.mark.parametrize("options", ["rw\ndata=ordered\n", "data=writeback", None])
def test_other_disks_are_left_alone(tmp_path: Path, asked: list[int], options: str | None) -> None:
    path = tmp_path / "ext4/vda1/options"
    path.unlink() if options is None else path.write_text(options)
    make_trials_folder(str(tmp_path / "trials"))
    assert (tmp_path / "trials").is_dir()
    assert asked == []
