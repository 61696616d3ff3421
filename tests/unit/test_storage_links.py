"""Links in folders that strangers share with us: nothing is written, deleted or kept through them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._checkpoints.shared_storage import SharedStorage
from nnilite._keeper.storage import FolderStorage, StorageError
from nnilite._keeper.tar_stream import unpack_checkpoint
from nnilite._store.async_store import AsyncStore
from nnilite._store.writer import Store
from nnilite.config import SharedStorageConfig
from nnilite.foreign_files import put_file, size_below
from nnilite.records import Output
from packed_files import file, link, packed, snapshot


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file, both of which stay as they are."""
    folder = tmp_path / "outside"
    (folder / "0").mkdir(parents=True)
    for name in ("victim", "trial.stdout"):
        (folder / "0" / name).write_text("as it was")
    before = snapshot(folder)
    yield folder
    assert snapshot(folder) == before


def test_links_in_a_mounted_storage_lead_neither_writes_nor_deletions_out(tmp_path: Path, outside: Path) -> None:
    for name in ("checkpoints", "code"):
        (tmp_path / "storage" / name).mkdir(parents=True)
    (tmp_path / "storage/checkpoints/t").symlink_to(outside)
    (tmp_path / "storage/code").rmdir()
    (tmp_path / "storage/code").symlink_to(outside)
    (tmp_path / "mine").write_text("package")
    storage = FolderStorage([str(tmp_path / "storage")], marked=False)
    storage.delete("checkpoints/t/0/victim")
    assert storage.get("checkpoints/t/0/victim", str(tmp_path / "got")) is False
    storage.put("code/victim", str(tmp_path / "mine"))
    assert (tmp_path / "storage/code/victim").read_text() == "package"
    assert storage.get("code/victim", str(tmp_path / "got")) is True


@pytest.mark.parametrize("replaced", ["nni", "nni/e"])
def test_a_link_in_the_place_of_an_experiment_in_a_mounted_storage_is_not_followed(
    tmp_path: Path, replaced: str
) -> None:
    for folder in (tmp_path / "elsewhere", tmp_path / "elsewhere/e"):
        folder.mkdir()
        (folder / "victim").touch()
    before = snapshot(tmp_path / "elsewhere")
    (tmp_path / "mount" / replaced).parent.mkdir(parents=True)
    (tmp_path / "mount" / replaced).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "mine").write_text("package")
    storage = FolderStorage([str(tmp_path / "mount/nni/e")], marked=False)
    for use in (lambda: storage.put("a", str(tmp_path / "mine")), lambda: storage.delete("victim")):
        with pytest.raises(StorageError):
            use()
    places = {"local_mount_point": tmp_path / "mount", "remote_mount_point": tmp_path / "mount"}
    config = SharedStorageConfig("NFS", local_mounted="usermount", **places)
    with pytest.raises(StorageError, match="cannot be made"):
        SharedStorage(config, "e", "all", {})._make_folder()
    assert snapshot(tmp_path / "elsewhere") == before


def test_the_last_file_of_a_trial_in_a_storage_takes_its_folders_along(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    storage = FolderStorage([str(tmp_path / "storage")], marked=False)
    (tmp_path / "storage").mkdir()
    for name in ("checkpoints/t/0/a", "checkpoints/t/1/b"):
        storage.put(name, str(tmp_path / "mine"))
    storage.delete("checkpoints/t/0/a")
    assert [path.name for path in (tmp_path / "storage/checkpoints/t").iterdir()] == ["1"]
    storage.delete("checkpoints/t/1/b")
    storage.delete("checkpoints/t/1/b")
    assert list((tmp_path / "storage/checkpoints").iterdir()) == []


def test_our_files_in_a_mounted_storage_are_not_written_through_links(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "mount/nni").mkdir(parents=True)
    (tmp_path / "mount/nni/e").symlink_to(outside)
    put_file(tmp_path / "mount", "nni/e/0/victim", b"keeper")
    assert (tmp_path / "mount/nni/e/0/victim").read_bytes() == b"keeper"
    assert size_below(tmp_path / "mount", "nni/e/0/victim") == 6


def test_output_that_comes_from_a_worker_is_not_written_through_links(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "trials/t").mkdir(parents=True)
    (tmp_path / "trials/t/0").symlink_to(outside / "0")
    with contextlib.closing(Store.create(tmp_path / "db", "e", 1.0)) as store:
        kept = AsyncStore(store, tmp_path)
        asyncio.run(kept.append_output(("t", 0), [Output("stdout", 0, b"hello")], sync=True))
        kept.close()
    assert (tmp_path / "trials/t/0/trial.stdout").read_text() == "hello"


def test_checkpoints_keep_links_that_stay_inside_and_no_others(tmp_path: Path, outside: Path) -> None:
    up = [file("d/d/d/x"), link("d/d/d/up", "../../.."), link("b", "d/d/d/up/../../../outside"), link("../c", "d")]
    (tmp_path / "a.tar").write_bytes(packed(*up, file("0/victim"), link("latest", "d/d"), link("z", "/etc")))
    unpack_checkpoint(str(tmp_path / "a.tar"), str(tmp_path / "place"))
    links = {path.name for path in (tmp_path / "place").rglob("*") if path.is_symlink()}
    assert links == {"up", "latest"}
    assert (tmp_path / "place/latest/d/x").read_text() == "x"
