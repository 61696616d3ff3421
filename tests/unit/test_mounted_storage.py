"""What is told of a storage that manager and jobs mount, when it fails or hangs."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnilite.errors import ServiceError
from nnilite.services import delivery
from nnilite.services.delivery import MountedStorage
from nnilite.services.storage_service import StorageService
from nnilite.services.worker_side import FolderLooks


@pytest.fixture
def storage(tmp_path: Path) -> MountedStorage:
    return MountedStorage(tmp_path / "it's mounted", "/mnt", "exp")


def test_a_storage_that_fails_is_named_when_it_is_asked_for_a_file(
    storage: MountedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(delivery, "size_below", fail)
    with pytest.raises(ServiceError, match="it's mounted/nni/exp/code: Stale file handle"):
        storage.has("callback")


class Mounted(StorageService[Any, Any]):
    """A service of which only the storage is used."""

    def __init__(self, storage: MountedStorage) -> None:
        self._folders = FolderLooks(limit_s=0.05)
        self._storage = storage

    def storage(self) -> MountedStorage:
        return self._storage


@pytest.mark.parametrize(
    "ask",
    [
        lambda service, folder: service.files({"job": "nni-exp-t-0"}),
        lambda service, folder: service.fetch_file({"job": "nni-exp-t-0"}, "out", folder, 1),
    ],
)
async def test_a_storage_that_hangs_cannot_be_read_now(
    ask: Callable[[Any, Path], Any], storage: MountedStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(delivery, "list_attempt", lambda *_: goes_on.wait(60))
    monkeypatch.setattr(delivery, "copy_attempt_file", lambda *_: goes_on.wait(60))
    monkeypatch.setattr(Mounted, "__abstractmethods__", frozenset())
    try:
        with pytest.raises(ServiceError, match="the storage cannot be read now: no answer"):
            await ask(Mounted(storage), tmp_path)
    finally:
        goes_on.set()
