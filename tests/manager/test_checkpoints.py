"""What is kept of the trials' checkpoints on this machine."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite._checkpoints import checkpoint_folders, checkpoint_tidying
from nnilite._checkpoints.checkpoint_folders import CheckpointFolders
from nnilite._checkpoints.checkpoint_rule import CheckpointRule
from nnilite._checkpoints.checkpoint_tidying import CheckpointTidier, keep_tidy, make_after_tidying
from nnilite._engine import messages
from nnilite.errors import NoCapacity
from nnilite.records import Attempt, Trial, TrialState
from nnilite.testing.probes import files_below
from waiting import eventually_async


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two trials with two checkpoints each; the second one of each is newer, trial b's are newer than a's."""
    for age, name in enumerate(["b/2.pt", "b/1 'x'\n.pt", "a/2.pt", "a/1 'x'\n.pt"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 - age, 1000 - age))
    return tmp_path


def left(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in files_below(folder) if path.suffix == ".pt"]


def rules(best: str | None = "a", live: tuple[str, ...] = ()) -> Any:
    known = {trial: SimpleNamespace(trial=SimpleNamespace(attempt=0)) for trial in live}
    return SimpleNamespace(best=best and SimpleNamespace(id=best), live=known)


def tidier(folder: Path, keep: str, size: int | None = None, known: Any = None, **more: Any) -> CheckpointTidier:
    return CheckpointTidier(known or rules(), CheckpointRule(keep, size), CheckpointFolders(folder), **more)


def trial(name: str, state: TrialState = TrialState.SUCCEEDED, attempt: int = 0) -> Trial:
    return Trial(name, 0, {}, state=state, attempt=attempt)


def ended(folder: Path, keep: str, names: str = "b", size: int | None = None, **more: Any) -> list[str]:
    """What is left after the ends of these trials."""
    tidying = tidier(folder, keep, size, rules(**more))
    tidying.committed([messages.SaveTrial(trial(name)) for name in names])
    asyncio.run(tidying.tidy_up())
    return left(folder)


def test_all_are_kept(folder: Path) -> None:
    assert len(ended(folder, "all", "ab")) == 4


def test_the_newest_of_the_ended_trial_is_kept(folder: Path) -> None:
    assert ended(folder, "last") == ["a/1 'x'\n.pt", "a/2.pt", "b/2.pt"]


def test_a_checkpoint_whose_writing_was_cut_off_is_not_the_newest(folder: Path) -> None:
    draft = folder / "b" / ".nnilite-checkpoint-0-77-abcd-2.pt.new"
    draft.write_bytes(b"x")
    assert ended(folder, "last") == ["a/1 'x'\n.pt", "a/2.pt", "b/2.pt"]
    assert not draft.exists()


def test_what_the_newest_entry_links_to_is_kept(folder: Path) -> None:
    (folder / "b" / "latest").symlink_to("1 'x'\n.pt")
    os.utime(folder / "b" / "1 'x'\n.pt", (2000, 2000))
    assert ended(folder, "last")[2:] == ["b/1 'x'\n.pt"]
    assert (folder / "b" / "latest").exists()


def test_none_is_kept(folder: Path) -> None:
    (folder / "b.attempt").write_text("{}")
    assert ended(folder, "none") == ["a/1 'x'\n.pt", "a/2.pt"]
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize("keep", ["none", "last"])
def test_the_note_of_a_trial_that_has_saved_nothing_goes_with_it(folder: Path, keep: str) -> None:
    (folder / "c.attempt").write_text("{}")
    ended(folder, keep, "c")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_a_resume_finds_the_note_of_a_trial_that_has_saved_nothing(folder: Path) -> None:
    (folder / "c.attempt").write_text("{}")
    assert list(CheckpointFolders(folder).holding(["b", "c", "d"])) == ["b", "c"]


def test_those_of_the_best_trial_are_kept_until_another_is_better(folder: Path) -> None:
    known = rules(best="a")
    tidying = tidier(folder, "best", known=known)
    tidying.committed([messages.SaveTrial(trial("a"))])
    asyncio.run(tidying.tidy_up())
    assert len(left(folder)) == 4
    known.best = SimpleNamespace(id="b")
    tidying.committed([messages.SaveTrial(trial("b"))])
    asyncio.run(tidying.tidy_up())
    assert left(folder) == ["b/1 'x'\n.pt", "b/2.pt"]


@pytest.mark.parametrize("keep", ["none", "last", "best"])
def test_a_trial_that_runs_again_keeps_its_files(folder: Path, keep: str) -> None:
    assert len(ended(folder, keep, "ab", best=None, live=("a", "b"), size=1)) == 4


def test_the_trial_that_ended_first_goes_first_and_the_best_last(folder: Path) -> None:
    assert ended(folder, "all", "ab", best="a", size=250) == ["a/1 'x'\n.pt", "a/2.pt"]
    assert ended(folder, "all", "ab", best=None, size=150) == []


def test_what_running_trials_have_counts_and_stays(folder: Path) -> None:
    assert ended(folder, "all", "b", live=("a",), size=250) == ["a/1 'x'\n.pt", "a/2.pt"]


def test_a_trial_without_checkpoints_is_no_problem(tmp_path: Path) -> None:
    assert ended(tmp_path / "nothing", "last") == []
    assert ended(tmp_path / "nothing", "none", size=1) == []


def test_trials_that_ended_under_an_earlier_manager_are_tidied_up(folder: Path) -> None:
    (folder / ".gone-a").mkdir()
    (folder / ".gone-a" / "x.pt").touch()
    asyncio.run(tidier(folder, "none", known=rules(live=("b",)), ended=[("a", 0), ("c", 0)]).tidy_up())
    assert left(folder) == ["b/1 'x'\n.pt", "b/2.pt"]


def test_what_an_attempt_that_was_given_up_has_saved_goes_once_it_is_removed(folder: Path) -> None:
    tidying = tidier(folder, "none")
    tidying.committed([messages.SaveTrial(trial("b", attempt=1))])
    asyncio.run(tidying.tidy_up())
    (folder / "b").mkdir()
    (folder / "b" / "late.pt").touch()
    tidying.committed([messages.SaveRemoval("b", 0, pending=False)])
    asyncio.run(tidying.tidy_up())
    assert left(folder) == ["a/1 'x'\n.pt", "a/2.pt"]


def test_what_cannot_be_deleted_is_told_once_and_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_tidying, "_PAUSE_S", (0.001, 0.001))
    real, tries = checkpoint_folders.remove, []

    def remove(path: Path) -> None:
        tries.append(path)
        if path.name == ".gone-a" and len(tries) < 8:
            raise PermissionError(13, "Permission denied", str(path))
        real(path)

    monkeypatch.setattr(checkpoint_folders, "remove", remove)
    asyncio.run(_until(tidier(folder, "none", ended=[("a", 0), ("b", 0)]), lambda: not list(folder.iterdir())))
    assert [path.name for path in tries[:3]] == [".gone-a", ".gone-b", ".gone-a"], "one failure holds nobody up"
    (said,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "Permission denied" in said
    assert "tried again" in said


def test_a_limit_that_could_not_be_kept_is_kept_the_next_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    tidying = tidier(folder, "all", 250, ended=[("a", 0), ("b", 0)])
    with monkeypatch.context() as disk:
        disk.setattr(checkpoint_folders, "remove", remove)
        with pytest.raises(PermissionError):
            asyncio.run(tidying.tidy_up())
    asyncio.run(tidying.tidy_up())
    assert left(folder) == ["a/1 'x'\n.pt", "a/2.pt"]


async def _until(tidying: CheckpointTidier, condition: Callable[[], bool]) -> None:
    over = asyncio.Event()
    working = asyncio.create_task(keep_tidy([tidying], over))
    await eventually_async(condition)
    over.set()
    await working


class Hanging(CheckpointFolders):
    """A file system that hangs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.answers = threading.Event()

    def look(self, *arguments: Any) -> Any:
        self.answers.wait(100)
        return super().look(*arguments)


def test_a_file_system_that_hangs_holds_up_the_end_for_a_bounded_time_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_tidying, "LAST_S", 0.1)
    place = Hanging(folder)
    tidying = CheckpointTidier(rules(), CheckpointRule("none"), place, ended=[("a", 0), ("b", 0)])
    began = time.monotonic()
    asyncio.run(_until(tidying, lambda: True))
    assert time.monotonic() - began < 20, "the file system would hang for 100 s"
    assert "of 2 trials may still have to be deleted; a resume deletes them" in caplog.text
    place.answers.set()


async def test_a_trial_waits_for_its_start_while_its_old_checkpoints_are_set_aside(folder: Path) -> None:
    known, going = rules(), asyncio.Event()

    async def blocking(work: Any) -> Any:
        if getattr(work, "__name__", "") == "set_aside":
            await going.wait()
        return work()

    tidying = tidier(folder, "none", known=known, blocking=blocking)
    start = make_after_tidying([tidying], lambda trial, attempt: "a job")  # type: ignore[arg-type, return-value]
    tidying.committed([messages.SaveTrial(trial("b"))])
    working = asyncio.create_task(tidying.tidy_up())
    await eventually_async(lambda: tidying.holds("b"))
    known.live["b"] = None
    # Whoever is canceled here does not end the step that has begun.
    working.cancel()
    await asyncio.wait([working])
    with pytest.raises(NoCapacity, match="old checkpoints"):
        start(trial("b"), Attempt("b", 1))
    assert start(trial("a"), Attempt("a", 1)) == "a job"
    going.set()
    await eventually_async(lambda: not tidying.holds("b"))
    assert start(trial("b"), Attempt("b", 1)) == "a job"


async def test_a_folder_of_checkpoints_that_hangs_holds_up_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_tidying, "_SLOW_S", 0.2)
    monkeypatch.setattr(checkpoint_tidying, "_PAUSE_S", (0.01, 0.05))
    answers, real = threading.Event(), CheckpointFolders.look

    def look(place: CheckpointFolders, trial: str, *more: Any) -> Any:
        if trial == "a":
            answers.wait(30)
        return real(place, trial, *more)

    monkeypatch.setattr(CheckpointFolders, "look", look)
    tidying, over = tidier(folder, "none"), asyncio.Event()
    running = asyncio.create_task(tidying.run(over))
    tidying.committed([messages.SaveTrial(trial(name)) for name in "ab"])
    before = threading.active_count()
    await eventually_async(lambda: left(folder) == ["a/1 'x'\n.pt", "a/2.pt"])
    assert threading.active_count() - before < 4
    answers.set()
    await eventually_async(lambda: left(folder) == [])
    over.set()
    await running


def test_links_that_lead_to_each_other_are_older_checkpoints_as_others_are(folder: Path) -> None:
    for name, target in (("c", "d"), ("d", "c")):
        (folder / "b" / name).symlink_to(target)
        os.utime(folder / "b" / name, (1, 1), follow_symlinks=False)
    assert ended(folder, "last") == ["a/1 'x'\n.pt", "a/2.pt", "b/2.pt"]
    assert [path.name for path in (folder / "b").iterdir()] == ["2.pt"]
