"""Disks that are full while files travel to a shared storage, or from it."""

from __future__ import annotations

import http.server
import itertools
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite._keeper.folder import Folder
from nnilite._keeper.patient_storage import PatientStorage
from nnilite._keeper.saver import Saver
from nnilite._keeper.storage import FolderStorage, Storage, StorageError
from nnilite._keeper.storage_http import S3Storage
from nnilite.testing.listener import PromptServer

CONTENT = bytes(3 << 20)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, with less space than CONTENT takes."""
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", folder], stderr=subprocess.DEVNULL)
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def always() -> bool:
    return True


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


class _Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket() -> Iterator[Storage]:
    with PromptServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield S3Storage({"url": f"http://127.0.0.1:{server.server_port}/b", "access_key": "k", "secret": "s"}, {})
        server.shutdown()


@pytest.mark.process
def test_a_full_shared_folder_is_named_and_takes_no_half_of_a_file(full: Path, file: Path) -> None:
    storage = FolderStorage([str(full)], marked=False)
    with pytest.raises(StorageError, match=r"full/a/b: No space left on device; make space on that disk") as refused:
        storage.put("a/b", str(file))
    assert refused.value.away
    assert files_in(full) == []
    file.write_bytes(b"small")
    storage.put("a/b", str(file))
    assert (full / "a" / "b").read_bytes() == b"small"


@pytest.mark.process
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_full_disk_of_this_machine_is_not_blamed_on_the_storage(
    full: Path, file: Path, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    (tmp_path / "nfs").mkdir()
    storage = FolderStorage([str(tmp_path / "nfs")], marked=False)
    storage.put("a/b", str(file))
    storage = request.getfixturevalue("bucket") if kind == "bucket" else storage
    with pytest.raises(StorageError, match=r"full/b on this machine cannot be written: No space .*; make space"):
        storage.get("a/b", str(full / "b"))
    assert files_in(full) == []
    assert storage.get("a/b", str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == CONTENT


@pytest.mark.process
def test_a_full_disk_under_the_trial_is_not_blamed_on_the_storage_and_its_checkpoint_follows(
    full: Path, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "nfs").mkdir()
    (full / "checkpoint").mkdir()
    (full / "checkpoint" / "step").write_text("1")
    folder = Folder(str(full))
    folder.create()
    entry = {"kind": "folder", "paths": [str(tmp_path / "nfs")], "parts": ["checkpoints"], "patience_s": 0.0}
    spec: Any = SimpleNamespace(storage=entry, checkpoint_dir=None, directory=str(full), trial="t", attempt=0)
    saver = Saver(spec, folder)
    subprocess.run(["dd", "if=/dev/zero", f"of={full}/filler"], stderr=subprocess.DEVNULL, check=False)
    assert "list on this machine cannot be written: No space left on device; make space" in saver.finish(True, always)
    (full / "filler").unlink()
    assert saver.finish(True, always) == ""
    assert (tmp_path / "nfs" / "checkpoints" / "t" / "0.json").exists()


def test_a_storage_that_is_full_each_time_at_the_same_byte_is_not_tried_for_ever() -> None:
    shared, tries, looks = PatientStorage({}), itertools.count(), itertools.count()

    def fill() -> None:
        next(tries)
        shared.moved(1 << 20)
        raise StorageError("no space", away=True)

    assert "no space" in shared.run(fill, lambda: next(looks) < 50, patience_s=0.5)


def test_tries_that_come_further_each_time_are_not_given_up() -> None:
    shared, counts = PatientStorage({}), iter(range(1, 7))

    def creep() -> None:
        count = next(counts)
        shared.moved(count)
        if count < 6:
            raise StorageError("cut", away=True)

    assert shared.run(creep, lambda: True, patience_s=4.0) == ""
