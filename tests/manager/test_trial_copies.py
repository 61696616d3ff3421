"""Files of trials elsewhere: listed there, copied one by one, within the limits, and nothing is left of what fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, open_bench

from nnilite import foreign_files
from nnilite._manager import trial_copies
from nnilite.disk_room import reserve_bytes
from nnilite.errors import Conflict, NotFound, ServiceError
from nnilite.foreign_files import TrialFile, copy_file, copy_folder, list_below
from nnilite.testing import fakes

JOB = "nni-e-t0-0"


class Elsewhere(fakes.FakeService):
    """Keeps what trials write in a folder of its own."""

    lists = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[str] = []

    @property
    def place(self) -> Path:
        return self.context.directory.parent / "elsewhere"

    async def files(self, handle: Any) -> Sequence[TrialFile] | None:
        self.asked.append("list")
        return list_below(self.place) if self.lists else None

    async def fetch_file(self, handle: Any, path: str, target: Path, most_bytes: int) -> None:
        self.asked.append(path)
        await asyncio.to_thread(copy_file, self.place, path, target, most_bytes)

    async def fetch(self, handle: Any, target: Path) -> None:
        self.asked.append("all")
        await asyncio.to_thread(copy_folder, self.place, target)


class Unable(Elsewhere):
    lists = False


class AtHome(Elsewhere):
    """Runs trials in their folders in the experiment's directory."""

    def folder(self, handle: Any) -> Path:
        return self.context.directory / "trials/t0/0"


class Slow(Unable):
    """Copies until somebody ends it."""

    async def fetch(self, handle: Any, target: Path) -> None:
        await super().fetch(handle, target)
        await asyncio.Event().wait()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/model").write_bytes(b"m" * 1000)
    (folder / "link").symlink_to("/etc/passwd")
    return folder


Begin = Callable[[type[Elsewhere]], Awaitable[Bench]]


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    """Run an engine on such a service until its first trial has succeeded."""
    (tmp_path / "e").mkdir()
    async with contextlib.AsyncExitStack() as benches:

        async def begin(service: type[Elsewhere]) -> Bench:
            bench = await benches.enter_async_context(open_bench(tmp_path / "e", service=service))
            await bench.until(lambda: JOB in bench.fake.jobs)
            await bench.run_job(JOB)
            return bench

        yield begin


def copies(tmp_path: Path) -> list[str]:
    found = (tmp_path / "e/trials").rglob("*")
    return sorted(path.name for path in found if path.is_file())


@pytest.mark.usefixtures("place")
async def test_a_list_copies_nothing_and_a_file_is_copied_when_it_is_asked_for_and_once(
    begin: Begin, tmp_path: Path
) -> None:
    bench = await begin(Elsewhere)
    found = await bench.manager.files.list_files("t0", True)
    assert [(one.path, one.size, one.here) for one in found.files] == [("0/deep/model", 1000, False)]
    assert [(one.path, one.kind, one.target) for one in found.others] == [("0/link", "link", "/etc/passwd")]
    assert copies(tmp_path) == []
    for _ in range(2):
        await bench.manager.files.fetch_file("t0", "0/deep/model")
    assert bench.fake.asked == ["list", "deep/model"]
    assert [one.here for one in (await bench.manager.files.list_files("t0", True)).files] == [True]


@pytest.mark.usefixtures("place")
async def test_nothing_is_listed_or_copied_where_the_folder_is_that_of_the_experiment(
    begin: Begin, tmp_path: Path
) -> None:
    bench = await begin(AtHome)
    (tmp_path / "e/trials/t0/0").mkdir(parents=True, exist_ok=True)
    found = await bench.manager.files.list_files("t0", True)
    await bench.manager.files.fetch_file("t0", "0/deep/model")
    await bench.manager.files.fetch_files("t0")
    assert isinstance(bench.fake, AtHome)
    assert (found.files, bench.fake.asked, copies(tmp_path)) == ([], [], [])


async def test_a_file_that_has_changed_is_copied_again(
    begin: Begin, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_copies, "_LISTED_FOR_S", 0.0)
    monkeypatch.setattr(trial_copies, "_ENDED_FOR_S", 0.0)
    bench = await begin(Elsewhere)
    await bench.manager.files.fetch_file("t0", "0/deep/model")
    (place / "deep/model").write_bytes(b"n" * 1000)
    os.utime(place / "deep/model", (1e9, 1e9))
    await bench.manager.files.fetch_file("t0", "0/deep/model")
    assert (tmp_path / "e/trials/t0/0/deep/model").read_bytes() == b"n" * 1000


@pytest.mark.usefixtures("place")
async def test_a_file_over_the_cap_is_refused_with_its_size_and_the_ways_to_it(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_copies, "PAGE_FILE_BYTES", 999)
    bench = await begin(Elsewhere)
    with pytest.raises(Conflict, match=r"has 1000 B, and files over 999 B .*nnictl trial download.*scp"):
        await bench.manager.files.fetch_file("t0", "0/deep/model")
    assert bench.fake.asked == ["list"]
    await bench.manager.files.fetch_files("t0")
    assert copies(tmp_path) == ["model"]


@pytest.mark.parametrize("path", ["0/link", "0/none", "0/../t0/x", "0/.nni/exit", "0", "1/deep/model", "x"])
@pytest.mark.usefixtures("place")
async def test_what_is_not_listed_is_not_asked_for(begin: Begin, path: str) -> None:
    bench = await begin(Elsewhere)
    await bench.manager.files.fetch_file("t0", path)
    assert bench.fake.asked in ([], ["list"])


async def test_a_list_with_names_that_lead_out_loses_them(begin: Begin, place: Path) -> None:
    class Liar(Elsewhere):
        async def files(self, handle: Any) -> Sequence[TrialFile]:
            names = ["../x", "/etc/passwd", "a/../../x", "a//b", "\ud800", ".nni/exit", "spec.json", "fine"]
            return [TrialFile(name, 1) for name in names] * 2

    bench = await begin(Liar)
    assert {one.path for one in (await bench.manager.files.list_files("t0", True)).files} == {"0/fine"}


@pytest.mark.parametrize("service", [Unable, Slow])
async def test_a_folder_that_cannot_be_listed_is_copied_only_if_it_is_small(
    begin: Begin, tmp_path: Path, place: Path, service: type[Elsewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_copies, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(trial_copies, "PAGE_FILE_BYTES", 999 if service is Slow else 20_000)
    bench = await begin(service)
    found = await bench.manager.files.list_files("t0", True)
    if service is Slow:
        assert "has more than 999 B" in found.note
        assert copies(tmp_path) == []
    else:
        assert ([one.path for one in found.files], found.note) == (["0/deep/model"], "")


class Breaks(Unable):
    """Copies all, and breaks off then."""

    async def fetch(self, handle: Any, target: Path) -> None:
        await super().fetch(handle, target)
        raise ServiceError("the connection broke")


@pytest.mark.parametrize("service", [Breaks, Unable], ids=["breaks off", "too much"])
async def test_nothing_is_left_of_a_copy_of_many_files_that_fails(
    begin: Begin, tmp_path: Path, place: Path, service: type[Elsewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The copy that breaks off may take long, and is not too large meanwhile.
    monkeypatch.setattr(trial_copies, "PAGE_FILE_BYTES", 1 << 30 if service is Breaks else 1 << 20)
    monkeypatch.setattr(foreign_files, "LISTED_MAX", 100)
    for number in range(300):  # each counts for a block
        (place / f"deep/{number}").touch()
    bench = await begin(service)
    (tmp_path / "e/trials/t0/0").mkdir(parents=True)
    (tmp_path / "e/trials/t0/0/trial.stdout").write_text("x")
    note = (await bench.manager.files.list_files("t0", True)).note
    assert ("the connection broke" if service is Breaks else "has more than 1 MB") in note
    assert copies(tmp_path) == ["trial.stdout"]
    assert list((tmp_path / "e/.copies").iterdir()) == []
    if service is Breaks:
        with pytest.raises(ServiceError, match="the connection broke"):
            await bench.manager.files.fetch_files("t0")
        assert copies(tmp_path) == ["trial.stdout"]


@pytest.mark.usefixtures("place")
async def test_a_machine_that_is_away_leaves_the_list_of_what_is_here(begin: Begin, tmp_path: Path) -> None:
    class Away(Elsewhere):
        async def files(self, handle: Any) -> Sequence[TrialFile]:
            raise ServiceError("h1 does not answer")

    bench = await begin(Away)
    (tmp_path / "e/trials/t0/0").mkdir(parents=True)
    (tmp_path / "e/trials/t0/0/trial.stdout").write_text("x")
    found = await bench.manager.files.list_files("t0", True)
    assert [one.path for one in found.files] == ["0/trial.stdout"]
    assert found.note == "Only what is on this machine is listed: h1 does not answer."
    with pytest.raises(ServiceError, match="h1 does not answer"):
        await bench.manager.files.fetch_file("t0", "0/deep/model")


@pytest.mark.usefixtures("place")
async def test_a_copy_on_a_full_disk_fails_and_leaves_nothing(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = os.statvfs("/")
    free = reserve_bytes(facts.f_blocks * facts.f_frsize) // facts.f_frsize
    full = os.statvfs_result([free if index in (3, 4) else value for index, value in enumerate(facts[:10])])
    bench = await begin(Elsewhere)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda path: full)
        for fetching in (bench.manager.files.fetch_file("t0", "0/deep/model"), bench.manager.files.fetch_files("t0")):
            with pytest.raises(ServiceError, match="free some disk space"):
                await fetching
    assert copies(tmp_path) == []


async def test_output_that_is_here_is_never_replaced(begin: Begin, tmp_path: Path, place: Path) -> None:
    (place / "trial.stdout").write_text("one two")
    bench = await begin(Elsewhere)
    here = tmp_path / "e/trials/t0/0/trial.stdout"
    here.parent.mkdir(parents=True)
    here.write_text("one")
    with here.open("r+b") as growing:
        await bench.manager.files.fetch_file("t0", "0/trial.stdout")
        growing.seek(7)
        growing.write(b" three")
    assert here.read_text() == "one two three"


async def test_what_a_killed_manager_has_left_of_copies_is_removed(begin: Begin, tmp_path: Path, place: Path) -> None:
    bench = await begin(Elsewhere)
    folder = tmp_path / "e/trials/t0"
    (folder / "0").mkdir(parents=True)
    (folder / "0/.nnilite-00ff.part").write_bytes(b"x" * 1000)
    (folder / ".copy-abc").mkdir()
    (tmp_path / "e/.copies/.copy-abc/files").mkdir(parents=True)
    (tmp_path / "e/.copies/.copy-abc/files/much").write_bytes(b"x" * 1000)
    await bench.manager.files.fetch_file("t0", "0/deep/model")
    assert copies(tmp_path) == ["model"]
    assert [path.name for path in folder.iterdir()] == ["0"]
    await bench.manager.files.fetch_files("t0")
    assert list((tmp_path / "e/.copies").iterdir()) == []


async def test_a_trial_without_a_folder_is_not_found(begin: Begin) -> None:
    class Nothing(Elsewhere):
        async def files(self, handle: Any) -> Sequence[TrialFile]:
            return ()

    bench = await begin(Nothing)
    with pytest.raises(NotFound):
        await bench.manager.files.list_files("t0", True)
