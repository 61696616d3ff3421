"""What machines are still to be told, and what becomes of it when the service closes or a fault comes in between."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from dataclasses import replace

import pytest

pytest.importorskip("paramiko")

from nnilite.errors import ConfigError, ServiceError
from nnilite.service import Job, JobState
from nnilite.ssh.errors import LinkLost, get_error_text
from nnilite.testing import fake_context
from nnilite_remote import MachineConfig, RemoteConfig, RemoteService, _pending_commands
from nnilite_remote._bookings import Booking
from nnilite_remote._machine import Machine, MachineSupply
from nnilite_remote._pending_commands import CANCEL, FINISH, REMOVE, PendingCommands

HANDLE = {"job": "nni-e-T-0", "machine": "box:", "directory": "/d", "gpus": None, "pid": 1, "start": "1", "boot": "b"}


class Box:
    """A machine that is told things."""

    title = "box"

    def __init__(self, up: bool = True) -> None:
        self.config, self.up, self.told, self.finished = MachineConfig("box"), up, [], None
        self.attempts = self
        self.answers = asyncio.Event()
        self.asked = asyncio.Event()

    async def remove(self, handle):
        await self._hear("remove", handle)

    async def cancel(self, handle):
        await self._hear("cancel", handle)

    async def _hear(self, what, handle):
        if not self.up:
            raise LinkLost("is away")
        self.asked.set()
        await self.answers.wait()
        self.told.append((what, handle["job"]))

    async def close(self, canceled):
        self.finished = [job["job"] for job in canceled]
        return self.up


@contextlib.asynccontextmanager
async def service_with(folder, box):
    service = RemoteService("remote", RemoteConfig([MachineConfig("box")]), fake_context(folder))
    service.machines._known = {"box:": box}
    yield service
    await service.close()


@pytest.mark.parametrize("what", [CANCEL, REMOVE])
async def test_what_is_being_told_is_pending_until_it_has_arrived(tmp_path, what):
    box = Box(up=False)
    async with service_with(tmp_path, box) as service:
        await getattr(service, what)(HANDLE)
        box.up = True
        service.machines._changed()
        service.machines._changed()
        await box.asked.wait()
        assert service.machines._pending.to("box:") == [(what, HANDLE)]
        box.answers.set()
        await asyncio.wait(service.machines._chores)
        assert (box.told, service.machines._pending.to("box:")) == ([(what, "nni-e-T-0")], [])


async def test_a_folder_whose_removal_did_not_arrive_goes_when_the_service_closes(tmp_path):
    box = Box(up=False)
    async with service_with(tmp_path, box) as service:
        await service.remove(HANDLE)
        service.machines.finish_later("box:")
        box.up = True
        service.machines._changed()
        await box.asked.wait()  # and no answer comes before the end
    assert box.finished == ["nni-e-T-0"]
    assert {what for what, _ in service.machines._pending.to("box:")} <= {FINISH}


def machine(folder, **fields):
    config = RemoteConfig([MachineConfig("box")], **fields)
    supply = MachineSupply(
        "EXP",
        "remote",
        folder,
        "keeper",
        lambda: folder,
        lambda _: None,
        lambda: "http://127.0.0.1:9",
        folder / "s",
        1.0,
        True,
        None,
    )
    return Machine(config.machine_list[0], config, supply, lambda: None)


@pytest.mark.parametrize("call", ["add", "settle"])
def test_what_a_full_disk_did_not_take_is_written_by_the_next_call(tmp_path, monkeypatch, call):
    place = tmp_path / "commands"
    first, second, third = ({**HANDLE, "job": f"nni-e-T-{number}"} for number in range(3))
    commands = PendingCommands(place)
    commands.add(CANCEL, first)
    with monkeypatch.context() as full:
        full.setattr(_pending_commands, "write_private", lambda *_: full_disk())
        with pytest.raises(ServiceError, match="cannot be written: No space left"):
            commands.add(CANCEL, second)
        commands.settle(CANCEL, first)
    # The same command again changes nothing that is known, nor does a second word of a machine that it has come.
    commands.add(CANCEL, second) if call == "add" else commands.settle(CANCEL, third)
    later = PendingCommands(place)
    later.load()
    assert list(later.jobs(CANCEL)) == [second["job"]]


def full_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_fault_of_ours_sets_a_machine_aside_and_it_is_tried_again(tmp_path, monkeypatch, caplog):
    again, box = asyncio.Event(), machine(tmp_path)

    async def come_up():
        if box.tried.is_set():
            again.set()
        raise KeyError("cached")

    monkeypatch.setattr("nnilite_remote._machine._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(box, "_bring_up", come_up)
    running = asyncio.create_task(box.run())
    await asyncio.wait_for(box.tried.wait(), 60)
    assert (box.state, box.trouble, box.lasting) == ("down", "an internal error: KeyError('cached')", False)
    await asyncio.wait_for(again.wait(), 60)
    running.cancel()
    await box.close(())
    assert "KeyError" in caplog.text


async def test_a_machine_that_loses_the_code_again_and_again_gets_no_trials_for_a_while(tmp_path, monkeypatch):
    box, sent = machine(tmp_path), []

    async def send(name, *_):
        assert box.avoided
        sent.append(name)

    monkeypatch.setattr(box._session, "upload", send)
    await box.send_code_again()
    assert (box.avoided, sent) == ("", ["keeper", tmp_path.name])
    await box.send_code_again()
    assert (box.avoided, len(sent)) == ("has lost the code again and again", 4)
    monkeypatch.setattr("nnilite_remote._machine._AVOID_S", 0.0)
    await box.send_code_again()
    assert box.avoided == ""


async def test_the_command_that_cleans_up_by_hand_names_the_folder_as_the_shell_there_finds_it(tmp_path):
    command = machine(tmp_path, remote_directory="~/my trials").left_behind("EXP")
    assert "ssh box 'rm -r '\"'\"'my trials/EXP'\"'\"''" in command


async def test_a_machine_that_does_not_answer_is_said_not_to(tmp_path, monkeypatch):
    monkeypatch.setattr("nnilite_remote._machines._POLL_S", 0.01)
    box = Box()
    box.statuses = lambda handles: asyncio.Event().wait()
    async with service_with(tmp_path, box) as service:
        [status] = await service.poll([HANDLE])
    assert status.reason == "box: does not answer"


def test_an_error_without_words_is_told_by_its_kind():
    assert (get_error_text(EOFError()), get_error_text(OSError("no route"))) == ("EOFError", "no route")


async def test_a_job_whose_machine_is_no_longer_in_the_list_is_lost_and_ended_on_the_others(tmp_path):
    box = Box()
    box.answers.set()
    job = Job("nni-e-T-0", "e", "T", 0, 0, {"distributed": {"nodes": 2}})
    async with service_with(tmp_path, box) as service:
        service._bookings.book_all({job.name: Booking("box:", "/d"), f"{job.name}/1": Booking("gone:", "/d")})
        handle = await service.submit(job)
        [status] = await service.poll([handle])
        assert status.state is JobState.LOST
        assert status.reason == "gone:, which may run a part of it, is no longer in machineList"
        assert box.told == [("cancel", job.name)]
        await service.remove(handle)
        assert box.told[1:] == [("remove", job.name)]
        assert not [name for name in (job.name, f"{job.name}/1") if service._bookings.get(name)]


async def test_a_dry_run_refuses_more_nodes_than_machines(tmp_path):
    context = replace(fake_context(tmp_path), defaults={"distributed": {"nodes": 2}})
    service = RemoteService("remote", RemoteConfig([MachineConfig("box")]), context)
    with pytest.raises(ConfigError, match="is 2, but machineList has 1 machines for trials"):
        await service.check_for_dry_run()
