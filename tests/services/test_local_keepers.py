"""Which keepers of the local service are at work, whoever knows of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nnilite.services.worker_side import FolderLooks
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._fork_server_client import ForkServerClient, _ServerReports
from nnilite_local._keepers import Keepers, start_of
from nnilite_local._second_keepers import SecondKeepers

JOB = "nni-exp-trial-0"


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    """An attempt whose keeper has not taken its lock yet, as on a slow disk."""
    folder = AttemptFolder(tmp_path)
    Path(folder.spec_file).parent.mkdir(exist_ok=True)
    Path(folder.spec_file).write_text("{}")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> ForkServerClient:
    return ForkServerClient(tmp_path / "keeper.pyz", tmp_path / "log", lambda job, delivered: None)


def has_keeper(server: ForkServerClient, folder: AttemptFolder, pid: int, **more: Any) -> bool:
    second = SecondKeepers(folder.path / "keeper.pyz", lambda: None)
    start = more.get("start") or start_of(pid)
    handle = {"job": JOB, "directory": str(folder.path), "pid": pid, "start": start, "server": "one"}
    return Keepers(server, second, FolderLooks()).has(folder, handle)


@pytest.mark.parametrize("reports", [None, _ServerReports("another", set())])
def test_a_keeper_whose_server_was_killed_may_not_have_begun_yet(
    server: ForkServerClient, folder: AttemptFolder, reports: _ServerReports | None
) -> None:
    server.name, server._server_reports = "one", reports
    assert has_keeper(server, folder, os.getpid())
    assert not has_keeper(server, folder, os.getpid(), start="of another process")
    Path(folder.spec_file).unlink()  # it has ended, and its process may have another job
    assert not has_keeper(server, folder, os.getpid())


def test_no_keeper_counts_as_gone_while_no_file_can_be_opened(
    server: ForkServerClient, folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    start = start_of(os.getpid())
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        has_keeper(server, folder, os.getpid(), start=start)


@pytest.mark.parametrize(("at_work", "expected"), [({JOB}, True), (set(), False)])
def test_a_server_that_runs_knows_its_keepers(
    server: ForkServerClient, folder: AttemptFolder, at_work: set[str], expected: bool
) -> None:
    server.name, server._server_reports = "one", _ServerReports("one", at_work)
    assert has_keeper(server, folder, os.getpid()) is expected
