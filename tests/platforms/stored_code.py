"""A shared storage that has the code, as a folder, for services that bring the code to where their trials run."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from nnilite._checkpoints.shared_storage import SharedStorage
from nnilite._keeper import build
from nnilite.config import SharedStorageConfig
from nnilite.records import Json
from nnilite.service import ServiceContext, TrainingService
from nnilite.testing import ServiceBench


class CodeStorage:
    """The storage of one bench. `folder` is this machine's; workers know it as `mounted`."""

    def __init__(self, folder: Path, mounted: str) -> None:
        self.folder = folder
        self.harm: Callable[[], object] = lambda: None  # what happens to it before a worker reads it
        folder.mkdir()
        fields = {"storage_type": "NFS", "local_mount_point": folder, "remote_mount_point": mounted}
        self._config = SharedStorageConfig(**fields)
        self._shared: SharedStorage | None = None

    def bench(self, folder: Path, make: Callable[[ServiceContext], TrainingService]) -> ServiceBench:
        """A bench whose service has this storage."""
        return ServiceBench(folder, lambda context: make(self.within(context)))

    def within(self, context: ServiceContext) -> ServiceContext:
        """The same surroundings, with this storage."""
        shared = self._shared = SharedStorage(self._config, context.experiment, "all", {})
        shared.prepare(context.directory)

        def stored_code(package: str) -> Mapping[str, Json] | None:
            found = shared.stored_code(package)
            self._open_to_all()
            self.harm()
            return found and {**found, "patience_s": 5}

        package = shared.with_code(context.package)
        return replace(context, package=package, keeper=_keeper(), stored_code=stored_code)

    def _open_to_all(self) -> None:
        """Workers may be other users here; an NFS server may take all for one."""
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)

    def cut(self) -> None:
        """Have the packages in it lose their ends."""
        for path in self.folder.glob("nni/*/code/*.tar.gz"):
            path.write_bytes(path.read_bytes()[:-50])

    def hang(self) -> None:
        """Have who reads its packages wait for ever, as where a file server is away."""
        for path in self.folder.glob("nni/*/code/*.tar.gz"):
            path.unlink()
            os.mkfifo(path)

    def hide(self) -> None:
        """Take the right to look into it from everybody else."""
        self.folder.chmod(0o700)

    @property
    def entry(self) -> dict[str, object]:
        """What specifications say of it."""
        if self._shared is None:
            raise RuntimeError("no service was opened with it")
        return {**self._shared.entry, "patience_s": 1}


def _keeper() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="nnilite-keeper-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder / "keeper.pyz", with_storage=True)
