"""Real keepers and managers on a disk in trouble: what each fault that was found once must not do again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from e2e.running import ECHO
from keeper_bench import Bench, until
from nni_experiment import NniFolder, NniTrial, make
from nnilite._store.shared import SharedStore
from nnilite.errors import NniliteError
from platforms.disk.disk import OPEN, RENAME, WRITE, Disk
from waiting import pause

pytestmark = [pytest.mark.real]

# By a name that the disk does not know, so that the trial can write where its keeper cannot read.
REPORT = 'ln -s "$NNI_SYS_DIR/.nni" "$NNI_SYS_DIR/x"; echo "intermediate 7" >> "$NNI_SYS_DIR/x/metrics"'


@pytest.fixture
def on(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Under all programs that are started; a zone for each file of an attempt."""
    for name in ("metrics", "exit", "exit.new"):
        disk.watch(name, tmp_path, f"*/.nni/{name}")
    disk.watch("output", tmp_path, "*/trial.stdout")
    disk.watch("config", tmp_path, "*/config.json")
    monkeypatch.setenv("LD_PRELOAD", str(disk.library))
    return disk


def met(disk: Disk, zone: str, operation: int) -> int:
    return disk.counted(zone, operation).failed


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_the_end_does_not_overtake_reports_that_cannot_be_read_now(tmp_path: Path, on: Disk, error: int) -> None:
    on.refuse("metrics", OPEN, error)
    with Bench(tmp_path) as bench:
        keeper = bench.start(REPORT)
        until(lambda: bench.inner("exit") and met(on, "metrics", OPEN) > 3)
        assert bench.callback.exits == []
        on.heal()
        assert keeper.wait(30) == 0
        assert (bench.callback.values, len(bench.callback.exits)) == ([7], 1)


def test_the_end_does_not_overtake_output_that_cannot_be_read_now(tmp_path: Path, on: Disk) -> None:
    with Bench(tmp_path) as bench:
        keeper = bench.start(
            'echo up; until [ -e "$NNI_SYS_DIR/go" ]; do sleep 0.05; done; echo more', send_output=True
        )
        bench.wait_for_start()
        on.refuse("output", OPEN, errno.EMFILE)
        (bench.folder / "go").touch()
        until(lambda: bench.inner("exit") and met(on, "output", OPEN) > 3)
        assert bench.callback.exits == []
        on.heal()
        assert keeper.wait(30) == 0
        assert bench.callback.output["stdout"] == b"up\nmore\n"


def test_reports_that_stay_unreadable_are_given_up_and_that_is_said(
    tmp_path: Path, on: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nnilite._keeper import outbox
    from nnilite._keeper.folder import Folder

    monkeypatch.setattr(outbox, "_PATIENCE_S", 0.05)
    folder = Folder(str(tmp_path / "0"))
    folder.create()
    monkeypatch.setattr("nnilite._keeper.spool.open_regular", unreadable)
    box = outbox.Outbox(folder, {})
    box.closed, box.exited = True, {"type": "exit", "message": ""}
    why = os.strerror(errno.EIO)
    with pytest.raises(OSError, match=why):
        box.batch()
    pause(0.06, "its patience is at an end then")
    assert box.batch().events == [{"type": "exit", "message": f"its metrics cannot be read: {why}", "metrics": 0}]


def unreadable(path: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_an_end_that_could_not_be_written_down_is_written_when_the_disk_is_well(tmp_path: Path, on: Disk) -> None:
    on.refuse("exit", RENAME, errno.EIO)
    with Bench(tmp_path) as bench:
        bench.callback.script = ["forever 500"]
        bench.start("true")
        until(lambda: met(on, "exit", RENAME))
        assert bench.inner("exit") is None
        on.heal()
        assert until(lambda: bench.inner("exit"))["code"] == 0


def test_a_keeper_that_found_no_room_is_not_taken_for_one_that_ran_the_trial(tmp_path: Path, on: Disk) -> None:
    on.refuse("exit.new", WRITE, errno.ENOSPC)
    with Bench(tmp_path) as bench:
        assert bench.run(REPORT) == 4
        on.heal()
        assert bench.run(REPORT) == 0
        assert bench.callback.values == [7]


def test_a_second_keeper_waits_for_an_end_that_cannot_be_read_now(tmp_path: Path, on: Disk) -> None:
    with Bench(tmp_path) as bench:
        bench.callback.script = ["forever 500"]
        first = bench.start(REPORT)
        until(lambda: bench.inner("exit"))
        first.kill()
        first.wait()
        on.refuse("exit", OPEN, errno.EMFILE)
        bench.callback.script = []
        second = bench.keeper("deliver", str(bench.folder), str(bench.spec_file))
        until(lambda: met(on, "exit", OPEN))
        on.heal()
        assert second.wait(30) == 0
        assert (bench.callback.values, [end.code for end in bench.callback.exits]) == ([7], [0])


def test_a_manager_that_cannot_read_its_files_says_so_in_a_sentence(start: Any, on: Disk) -> None:
    running = start(ECHO, maxTrialNumber=1)
    running.kill_manager()
    on.refuse("config", OPEN, errno.EMFILE)
    with pytest.raises(NniliteError, match=r"config\.json .*Too many open files"):
        running.resume()
    on.heal()
    running.resume().wait("DONE")


MAKER = """
import pathlib, sys
from nnilite._nni import nni_copy
from nnilite._store import shared
from nnilite.errors import StoreError
from nnilite.records import ExperimentState
for line in sys.stdin:
    place = pathlib.Path(line.rstrip("\\n"), "nnilite.sqlite")
    try:
        {how}
        print("made", flush=True)
    except StoreError:
        print("refused", flush=True)
"""
NEW = 'shared.create(place, "made", 1.0)'
COPIED = 'nni_copy.make(pathlib.Path("nni"), place, "made", ExperimentState.STOPPED)'


@pytest.mark.parametrize("how", [pytest.param(NEW, id="of a search"), pytest.param(COPIED, id="copied from NNI")])
def test_a_new_database_is_whole_or_not_there_whichever_write_fails(tmp_path: Path, disk: Disk, how: str) -> None:
    make(tmp_path, NniFolder("nni", trials=[NniTrial("abcde", {"x": 0.5})]))
    disk.watch("all", tmp_path, "*nnilite.sqlite*")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with subprocess.Popen([sys.executable, "-c", MAKER.format(how=how)], env=disk.environment(), **pipes) as maker:
        for number in count(1):
            place = tmp_path / f"{number}" / "nnilite.sqlite"
            place.parent.mkdir()
            disk.count_anew()
            disk.refuse("all", WRITE, errno.EIO, only=number)
            maker.stdin.write(f"{place.parent}\n")  # type: ignore[union-attr]
            maker.stdin.flush()  # type: ignore[union-attr]
            is_made = maker.stdout.readline() == "made\n"  # type: ignore[union-attr]
            disk.heal()
            assert place.exists() == is_made, number
            if is_made:
                with closing(SharedStore.open(place)) as store:
                    store.check()
            if not disk.counted("all", WRITE).failed:
                break
        maker.stdin.close()  # type: ignore[union-attr]
    assert number > 20
