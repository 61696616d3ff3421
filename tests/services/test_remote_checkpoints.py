"""Checkpoints on their way from one machine to another: what is found, what is moved, and what if it cannot be."""

from __future__ import annotations

import asyncio
import io
import tarfile
from types import SimpleNamespace

import pytest

from waiting import others_turn

pytest.importorskip("paramiko")

from nnilite.disk_room import DiskRoom, NoRoom
from nnilite.errors import NoCapacity
from nnilite.ssh import download
from nnilite.ssh.errors import LocalDiskFull, MachineError
from nnilite_remote._attempts import Attempts
from nnilite_remote._host_checkpoints import HostCheckpoints, rank
from nnilite_remote._worker.checkpoints import restore, tidy_up, trace
from nnilite_remote._worker.processes import WorkerRefusal

# on a machine


def attempt(root, number: int | str, ended: bool = True):
    inner = root / "trials" / "t" / str(number) / ".nni"
    inner.mkdir(parents=True)
    if ended:
        (inner / "exit").write_text("{}")


def save(root, name: str = "step"):
    place = root / "checkpoints" / "t"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(name)


def found(root) -> tuple:
    told = trace(str(root), "t")
    return told["attempt"], told["lost"], told["checkpoint"]


def packed(place, *members: tuple[str, bytes | str]) -> str:
    """A tar file; a text is what a link points to."""
    with tarfile.open(place, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return str(place)


def test_a_machine_of_a_further_node_has_lost_it_but_saved_nothing_of_its_attempt(tmp_path):
    attempt(tmp_path, 1)
    save(tmp_path)
    assert found(tmp_path) == (1, False, 1)
    attempt(tmp_path, "2.1", ended=False)
    (tmp_path / "trials" / "t" / ".hidden").mkdir()
    assert found(tmp_path) == (2, True, 1)


def test_a_machine_tells_what_it_has_of_a_trial(tmp_path):
    assert found(tmp_path) == (None, False, None)
    attempt(tmp_path, 0)
    assert found(tmp_path) == (0, False, None)
    attempt(tmp_path, 2, ended=False)
    save(tmp_path)
    assert found(tmp_path) == (2, True, 2)


def test_checkpoints_that_were_brought_count_as_those_of_the_attempt_that_wrote_them(tmp_path):
    save(tmp_path, "old")
    (tmp_path / "checkpoints" / "t.attempt").write_text("{}")
    restore(str(tmp_path), "t", 3, packed(tmp_path / "a.tar", ("deep/step", b"9"), ("deep/latest", "../deep/step")))
    assert found(tmp_path) == (None, False, 3)
    place = tmp_path / "checkpoints" / "t"
    assert (place / "deep" / "latest").read_text() == "9"
    assert not (place / "old").exists()
    assert not (tmp_path / "checkpoints" / "t.attempt").exists(), "it tells of what was here before"
    assert not (tmp_path / "a.tar").exists()


def test_nothing_leads_out_of_the_folder(tmp_path):
    evil = [("../out", b"x"), ("/tmp/nnilite-out", b"x"), ("link", "../../.."), ("abs", "/etc"), ("fine", b"x")]
    restore(str(tmp_path), "t", 0, packed(tmp_path / "a.tar", *evil))
    assert [path.name for path in (tmp_path / "checkpoints" / "t").iterdir()] == ["fine"]
    assert not (tmp_path / "checkpoints" / "out").exists()


def test_a_damaged_archive_leaves_what_was_there(tmp_path):
    save(tmp_path)
    attempt(tmp_path, 0)
    (tmp_path / "a.tar").write_bytes(b"nonsense" * 100)
    with pytest.raises(WorkerRefusal, match="damaged"):
        restore(str(tmp_path), "t", 1, str(tmp_path / "a.tar"))
    assert found(tmp_path) == (0, False, 0)


@pytest.mark.parametrize(("keep", "left"), [(True, ["t"]), (False, [])])
def test_at_the_end_checkpoints_stay_if_they_are_to(tmp_path, keep, left):
    save(tmp_path)
    (tmp_path / "checkpoints" / "t.from").write_text("0")
    (tmp_path / "checkpoints" / "empty").mkdir()
    tidy_up(str(tmp_path / "checkpoints"), keep)
    assert [path.name for path in tmp_path.glob("checkpoints/*")] == left


# between machines


class Box:
    """A machine as the mover sees it."""

    def __init__(
        self, title: str, attempt=None, lost=False, checkpoint=None, trouble: str = "", error=MachineError
    ) -> None:
        self.title = title
        self.attempts = self
        self._error = error
        self.up = True
        self.got = self.refused = 0
        self._trouble = trouble
        self._trace = {"attempt": attempt, "lost": lost, "checkpoint": checkpoint, "directory": f"/{title}"}

    async def trace(self, trial):
        if self._trouble == "silent":
            raise MachineError("did not answer within 3 s")
        return self._trace

    async def give_checkpoints(self, directory, archive):
        assert directory == f"/{self.title}"
        archive.write_text(self.title)

    async def take_checkpoints(self, trial, attempt, archive):
        if self._trouble:
            self.refused += 1
            raise self._error(self._trouble)
        self.got += 1
        self._trace["checkpoint"] = attempt


async def settle(checkpoints: HostCheckpoints, boxes: list[Box], target: Box) -> list[str]:
    """Ask again and again until the trial may start there; what it was told to wait for."""
    waits = []
    while True:
        try:
            checkpoints.transfer("t", target, await checkpoints.traces("t", boxes))
        except NoCapacity as wait:
            waits.append(str(wait))
            await others_turn()
        else:
            return list(dict.fromkeys(waits))


def test_the_newest_checkpoints_are_brought_once(tmp_path):
    boxes = [Box("old", 0, checkpoint=0), Box("new", 1, lost=True, checkpoint=1), Box("target")]
    waits = asyncio.run(settle(HostCheckpoints(tmp_path), boxes, boxes[2]))
    assert waits == ["its checkpoints are being brought from new to target"]
    assert [box.got for box in boxes] == [0, 0, 1]
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_moved_where_the_newest_are_already(tmp_path):
    boxes = [Box("old", 0, checkpoint=0), Box("same", 1, checkpoint=1)]
    assert asyncio.run(settle(HostCheckpoints(tmp_path), boxes, boxes[1])) == []


@pytest.mark.parametrize("error", [MachineError, OSError, RuntimeError])
def test_a_trial_starts_without_them_if_they_cannot_be_moved(tmp_path, caplog, error):
    boxes = [Box("source", 0, lost=True, checkpoint=0), Box("full", trouble="no space", error=error)]
    asyncio.run(settle(HostCheckpoints(tmp_path), boxes, boxes[1]))
    assert boxes[1].refused == 3
    assert "starts on full without its checkpoints on source" in caplog.text


def test_a_trial_waits_while_its_checkpoints_do_not_fit_on_this_machine(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("nnilite_remote._host_checkpoints._ROOM_S", 0.0)
    boxes = [Box("source", 0, lost=True, checkpoint=0), Box("target")]
    full = iter([True] * 5)

    async def give(directory, archive):
        if next(full, False):
            raise LocalDiskFull("the disk of /here has 1 GB free")
        archive.write_text("source")

    boxes[0].give_checkpoints = give
    waits = asyncio.run(settle(HostCheckpoints(tmp_path), boxes, boxes[1]))
    assert waits == ["its checkpoints are being brought from source to target"]
    assert boxes[1].got == 1
    assert "waits: its checkpoints cannot be brought from source to target: the disk of /here has" in caplog.text


def test_what_it_waits_for_is_told_and_not_tried_all_the_time(tmp_path):
    boxes = [Box("source", 0, lost=True, checkpoint=0), Box("target")]
    asked = []

    async def give(directory, archive):
        asked.append(directory)
        raise LocalDiskFull("the disk of /here has 1 GB free")

    async def ask_often() -> list[str]:
        checkpoints, waits = HostCheckpoints(tmp_path), []
        for _ in range(5):
            with pytest.raises(NoCapacity) as wait:
                checkpoints.transfer("t", boxes[1], await checkpoints.traces("t", boxes))
            waits.append(str(wait.value))
            await others_turn()
        return waits

    boxes[0].give_checkpoints = give
    assert (
        asyncio.run(ask_often())[2:]
        == ["its checkpoints cannot be brought from source to target: the disk of /here has 1 GB free"] * 3
    )
    assert len(asked) == 1


def test_a_retried_trial_prefers_the_machine_that_has_its_checkpoints_to_one_that_lost_it(tmp_path):
    boxes = [
        Box("lost", 1, lost=True, checkpoint=1),
        Box("kept", 0, checkpoint=1),
        Box("other"),
        Box("mute", trouble="silent"),
    ]
    traces = asyncio.run(HostCheckpoints(tmp_path).traces("t", boxes))
    assert [rank(box, traces) for box in boxes] == [1, -1, 0, 1]


def test_a_machine_that_answers_nonsense_keeps_no_trial_from_being_tried_again(tmp_path):
    async def ask(*_, **__):
        return {"attempt": "7", "checkpoint": {}, "surprise": 1}

    odd = SimpleNamespace(up=True, title="odd", attempts=Attempts(SimpleNamespace(ask=ask)))
    boxes = [Box("kept", 0, checkpoint=0), odd, Box("target")]
    assert asyncio.run(settle(HostCheckpoints(tmp_path), boxes, boxes[2])) != []
    assert boxes[2].got == 1


@pytest.mark.parametrize("take", [download.save, download.unpack_stream])
def test_what_does_not_fit_on_this_machine_is_known_for_that(take, tmp_path, monkeypatch):
    def refuse(self, size_bytes):
        raise NoRoom("the disk has 1 GB free")

    monkeypatch.setattr(DiskRoom, "need", refuse)
    with io.BytesIO() as archive, tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
        sent = archive.getvalue() + bytes(10_240)
    with pytest.raises(LocalDiskFull, match="1 GB free"):
        take(SimpleNamespace(rest=lambda: sent, read=lambda: b""), tmp_path / "new")
