"""What a trial on a Redis worker has saved last is stored before its end is told: another attempt may need it."""

from __future__ import annotations

import asyncio
import errno
import os
import tarfile
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite.errors import ServiceError
from nnilite.service import Job, JobState, JobStatus
from nnilite.services.keeper_folder import KeeperFolder
from nnilite_redis import RedisConfig
from nnilite_redis._api import Pool
from nnilite_redis._connection import RedisAddress
from nnilite_redis._convert import task_of
from nnilite_redis._file_store import TooLarge
from nnilite_redis._mailbox import PoolMessage
from nnilite_redis._worker import pool_worker
from nnilite_redis._worker.attempt import WorkerAttempt
from nnilite_redis._worker.checkpoints import Checkpoints
from nnilite_redis._worker.request_handlers import Handlers
from nnilite_redis._worker.task import read_task
from waiting import eventually_async, pause_async

JOB = Job("nni-Ex-Tr-0", "Ex", "Tr", 0, 3, {"token": "secret", "parameters": None, "checkpoint_dir": "/manager"})


class Store:
    """A place for files that stores one when it may go on. `kept` has what was in each archive that it took."""

    def __init__(self) -> None:
        self.goes_on, self.asked = asyncio.Event(), 0
        self.kept: list[str] = []
        self.trouble: Exception | None = None  # of the next try

    async def put(self, name: str, path: Path, what: str) -> None:
        self.asked += 1
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        with tarfile.open(path) as archive:
            content = archive.extractfile("step")
            assert content is not None
            step = content.read().decode()
        await self.goes_on.wait()
        self.kept.append(step)


class Worker:
    """A worker with one attempt that has begun."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.told = Store(), 0
        config = RedisConfig("redis://127.0.0.1:1")
        self.attempt = WorkerAttempt(read_task(task_of(JOB, config, "code.tar.gz", "keeper-1")), folder, None)
        self.attempt.path.mkdir(parents=True)
        (self.attempt.path / "job.json").write_text("{}")
        pool = Pool(RedisAddress(config.redis), "p")
        holdings: Any = SimpleNamespace(get={JOB.name: self.attempt}.get)
        self.handlers = Handlers(pool, holdings, Checkpoints(folder), folder, "w", lambda: None)
        monkeypatch.setattr(pool, "client", SimpleNamespace(exists=self._exists))
        monkeypatch.setattr("nnilite_redis._worker.request_handlers.files_of", lambda *_: self.store)
        monkeypatch.setattr(self.attempt, "has_running_keeper", lambda: True)
        monkeypatch.setattr(KeeperFolder, "read_end", lambda _: self.end)
        monkeypatch.setattr(KeeperFolder, "started", lambda _: 1.0)
        self.end: JobStatus | None = None

    async def _exists(self, _: str) -> int:
        return 1

    async def ask(self, *_: object) -> PoolMessage:
        self.told += 1
        return PoolMessage({"status": 200})

    def save_step(self, step: str) -> None:
        place = self.handlers.checkpoints.place(self.attempt.task)
        place.mkdir(parents=True, exist_ok=True)
        (place / "step").write_text(step)

    async def hand_on(self) -> None:
        mail: Any = self
        await self.handlers.hand_on(mail, JOB.name, PoolMessage({}))

    async def begin(self, work: Coroutine[Any, Any, object], asked: int) -> asyncio.Task[object]:
        """Begin this work, which goes on when the store has been asked so often."""
        task = asyncio.ensure_future(work)
        await eventually_async(lambda: self.store.asked >= asked or task.done())
        return task


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(tmp_path, monkeypatch)


async def test_no_request_of_a_keeper_goes_ahead_of_the_last_files(worker: Worker) -> None:
    worker.save_step("last")
    worker.end = JobStatus(JobState.SUCCEEDED, exit_code=0, ended=time.time())
    requests = [await worker.begin(worker.hand_on(), 1) for _ in range(2)]
    await pause_async(0.05, "both have to wait")
    worker.end = JobStatus(JobState.SUCCEEDED, exit_code=0, ended=time.time() - 3600)
    assert worker.told == 0
    assert worker.attempt.report()["state"] == "RUNNING"
    worker.store.goes_on.set()
    await asyncio.gather(*requests)
    assert (worker.store.kept, worker.told) == (["last"], 2)
    assert worker.attempt.report()["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("error", "time_left", "kept"),
    [
        (ServiceError("the connection broke"), True, ["last"]),
        (ServiceError("the connection broke"), False, []),
        (TooLarge("the checkpoint has 1 GB"), True, []),
    ],
)
async def test_a_last_checkpoint_that_is_not_taken_is_tried_again_where_that_may_help(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, error: Exception, time_left: bool, kept: list[str]
) -> None:
    worker.save_step("last")
    worker.end = JobStatus(JobState.SUCCEEDED, exit_code=0, ended=time.time())
    worker.store.goes_on.set()
    worker.store.trouble = error
    if not time_left:
        monkeypatch.setattr("nnilite_redis._worker.request_handlers._STORE_S", 0.0)
    if kept:
        with pytest.raises(ServiceError, match="cannot be stored now"):
            await worker.hand_on()
        worker.end = JobStatus(JobState.SUCCEEDED, exit_code=0, ended=time.time() - 3600)
        assert worker.attempt.report()["state"] == "RUNNING"
        assert worker.told == 0
    await worker.hand_on()
    assert (worker.store.kept, worker.told) == (kept, 1)
    worker.end = JobStatus(JobState.SUCCEEDED, exit_code=0, ended=time.time() - 3600)
    assert worker.attempt.report()["state"] == "SUCCEEDED"


async def test_a_disk_in_trouble_does_not_end_the_looks_at_what_trials_save(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[WorkerAttempt] = []

    async def save(_: Handlers, attempt: WorkerAttempt) -> None:
        saved.append(attempt)

    def begun(_: WorkerAttempt) -> bool:
        in_loop = threading.current_thread() is threading.main_thread()  # and not in a look at its status
        if in_loop and next(troubles, False):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return True

    troubles = iter([True, True])
    monkeypatch.setattr(WorkerAttempt, "begun", property(begun))
    monkeypatch.setattr(Handlers, "save_checkpoints", save)
    other = pool_worker.Worker(pool_worker.WorkerOptions(RedisAddress("redis://127.0.0.1:1"), "p", tmp_path), "w")
    other._holdings.attempts[JOB.name] = worker.attempt
    looks = asyncio.ensure_future(other._look())
    await eventually_async(lambda: saved or looks.done())
    looks.cancel()
    assert saved == [worker.attempt]
