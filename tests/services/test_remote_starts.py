"""A start whose outcome is not known: the manager must ask that machine again, and no other one may run the trial."""

from __future__ import annotations

import errno
import json
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("paramiko")

from nnilite.errors import ServiceError
from nnilite.service import Job
from nnilite.ssh.errors import MachineError, OutcomeUnknown
from nnilite.testing import fake_context
from nnilite_remote import MachineConfig, RemoteConfig, RemoteService
from nnilite_remote._bookings import Booking
from nnilite_remote._worker.agent import Agent, _remove_empty
from nnilite_remote._worker.attempt import HostedAttempt

pytestmark = pytest.mark.process

DIES = "import sys\nsys.stdin.buffer.readline()\n"
"""A fork server that takes an order and ends: it may have forked the keeper by then."""
SILENT = "import sys\nfor line in sys.stdin: pass\n"


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes an agent with this program as its keeper's; what it says."""

    def make(program: str) -> tuple[Agent, queue.SimpleQueue[dict[str, Any]]]:
        cache = tmp_path / "root" / "cache"
        cache.mkdir(parents=True)
        (cache / "keeper.py").write_text(program)
        settings = {"experiment": "e", "key": "k", "directory": str(tmp_path / "root"), "keeper": "keeper.py"}
        found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        monkeypatch.setattr(Agent, "say", lambda _, message: found.put(message))
        agent = Agent({**settings, "service": "remote"})
        (tmp_path / "root" / "e").mkdir()
        agents.append(agent)
        return agent, found

    agents: list[Agent] = []
    yield make
    for server in [agent._starter._server for agent in agents]:
        if server is not None:
            server.kill()
            for thread in [one for one in threading.enumerate() if "_listen" in one.name]:
                thread.join(20)
            with server:
                pass


def order(tmp_path: Path, number: int = 1, again: bool = False) -> dict[str, Any]:
    spec = {"directory": str(tmp_path / "root" / "e" / "trials" / "T" / "0"), "job": "nni-e-T-0"}
    return {"id": number, "do": "start", "spec": spec, "again": again}


def test_a_fork_server_that_ends_may_have_started_the_keeper(tmp_path: Path, said: Any) -> None:
    agent, messages = said(DIES)
    agent._answer(order(tmp_path))
    answer = messages.get(timeout=60)
    assert answer["id"] == 1
    assert answer["unsure"] is True
    assert "the fork server has ended" in answer["error"]


def test_a_keeper_that_is_still_being_started_is_no_refusal(tmp_path: Path, said: Any) -> None:
    agent, messages = said(SILENT)
    agent._answer(order(tmp_path))
    agent._answer(order(tmp_path, 2, again=True))
    answer = messages.get(timeout=60)
    assert (answer["id"], answer["unsure"]) == (2, True)
    server = agent._starter._server
    assert server is not None
    server.kill()
    server.wait()
    assert not agent._starter.is_starting(HostedAttempt(order(tmp_path)["spec"]).spec)


@pytest.mark.parametrize("again", [False, True])
def test_a_disk_in_trouble_hides_what_was_started(
    tmp_path: Path, said: Any, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    agent, messages = said(SILENT)

    def broken(_: HostedAttempt) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(HostedAttempt, "find_started", broken)
    agent._answer(order(tmp_path, again=again))
    assert messages.get(timeout=60).get("unsure", False) is again


class Box:
    """A machine that answers a start with an error."""

    title, up, silent_s, root = "box", True, 0.0, "/r"

    def __init__(self, error: MachineError) -> None:
        self.config, self.attempts, self.error = MachineConfig("box"), self, error
        self.asked: list[bool] = []

    async def start(self, spec: Any, terms: Any, again: bool) -> Any:
        self.asked.append(again)
        raise self.error

    def avoid(self, why: str) -> None:
        """It is not chosen for a while."""

    async def close(self, canceled: Any) -> bool:
        return True


@pytest.mark.parametrize(("kind", "stays"), [(OutcomeUnknown, True), (MachineError, False)])
async def test_only_a_start_that_certainly_failed_frees_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[MachineError], stays: bool
) -> None:
    service, box = RemoteService("remote", RemoteConfig([MachineConfig("box")]), fake_context(tmp_path)), Box(kind("x"))
    service.machines._known = {"box:": box}  # type: ignore[dict-item]
    monkeypatch.setattr(service, "_spec", lambda *_: {})
    job = Job("nni-e-T-0", "e", "T", 0, 0, {})
    service._bookings.book(job.name, Booking("box:", "/r/e/trials/T/0"))
    with pytest.raises(ServiceError):
        await service.submit(job)
    assert box.asked == [True]
    assert (service._bookings.get(job.name) is not None) is stays
    kept = json.loads((tmp_path / "remote-jobs.json").read_text())
    assert (job.name in kept) is stays
    await service.close()


def test_keepers_that_call_the_manager_themselves_know_its_certificate(tmp_path: Path) -> None:
    service = RemoteService("remote", RemoteConfig([MachineConfig("box")]), fake_context(tmp_path))
    service._packed = lambda: SimpleNamespace(archive=tmp_path / "code.tar.gz")  # type: ignore[assignment,return-value]
    machine: Any = SimpleNamespace(
        root="/r", callback_route=SimpleNamespace(address="https://m"), callback_file="/r/callback"
    )
    job = Job("nni-e-T-0", "e", "T", 0, 0, {"callback": "https://m", "callback_ca": "a certificate"})
    spec = service._spec(job, machine, Booking("box:", "/r/e/trials/T/0"))
    assert (spec["callback"], spec["callback_ca"]) == ("https://m", "a certificate")


def test_what_another_machine_on_the_same_disk_removes_meanwhile_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiment"
    (folder / "trials").mkdir(parents=True)
    names = os.listdir

    def too_many(place: str) -> list[str]:
        return [*names(place), *(["callback-other"] if place == str(folder) else [])]

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", too_many)
        _remove_empty(str(folder), False)
    assert not folder.exists()
    _remove_empty(str(folder), False)
