"""A trial may put a pipe, a folder or a device in the place of the files of its attempt: nobody waits there."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper_bench import Bench
from nnilite._keeper.plain_file import NotRegularFile, open_regular, write
from nnilite._views.folder_files import read_piece
from nnilite.services.keeper_folder import KeeperFolder, copy_attempt
from nnilite.testing import eventually

FILES = ["exit", "exit.new", "delivered.new", "keeper.log", "metrics", "../trial.stdout"]


@pytest.mark.process
@pytest.mark.parametrize("how", ["mkfifo", "mkdir", "ln -s /dev/zero"])
@pytest.mark.parametrize("name", FILES)
def test_a_trial_with_something_else_in_the_place_of_a_file_ends(tmp_path: Path, name: str, how: str) -> None:
    with Bench(tmp_path) as bench:
        reported = tmp_path / "reported"

        def tell() -> None:
            eventually(lambda: bench.callback.values)
            reported.touch()

        threading.Thread(target=tell).start()
        where = 'cd "$NNI_OUTPUT_DIR/.nni"; echo "final 1" >> metrics'
        waits = f"until test -e {shlex.quote(str(reported))}; do sleep 0.02; done"
        assert bench.run(f"{where}; {waits}; rm -f {name}; {how} {name}; exit 3") == 3
        assert [one.code for one in bench.callback.exits] == [3]
        assert bench.callback.values == [1]


@pytest.mark.process
def test_a_spool_that_is_a_pipe_is_said(tmp_path: Path) -> None:
    with Bench(tmp_path) as bench:
        assert bench.run('cd "$NNI_OUTPUT_DIR/.nni"; rm -f metrics; mkfifo metrics; exit 3') == 3
        assert "it is not a regular file" in bench.callback.exits[0].message


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_nobody_reads_from_what_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "trial.stdout"
    make(path)
    with pytest.raises(NotRegularFile):
        open_regular(str(path))
    assert KeeperFolder(tmp_path).output("stdout", 0, 100) == b""
    assert read_piece(tmp_path, path.name, 0, 100).data == b""


def test_nobody_writes_to_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        write(str(tmp_path / "pipe"), b"x")


def test_pipes_and_links_are_left_out_where_a_trials_folder_is_copied(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    (folder / "deep").mkdir(parents=True)
    os.mkfifo(folder / "deep/pipe")
    (folder / "deep/file").write_text("kept")
    (folder / "link").symlink_to("/dev/zero")
    copy_attempt(folder, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == ["deep", "file"]
