"""What a manager tells of its start, and what the process that started it makes of that."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from nnilite._manager.starter import Starter
from nnilite._running import launch


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, int]]:
    ours, theirs = os.pipe()
    with FileIO(ours) as reader:
        yield reader, theirs


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_packing_takes_as_long_as_it_takes(
    pipe: tuple[FileIO, int], process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start may take a minute without a word; while it packs, it says so, and the words come before the answer."""
    monkeypatch.setattr("nnilite._manager.starter._TOLD_EVERY_S", 0.0)
    reader, writer = pipe
    seen: list[tuple[int, int]] = []
    starter = Starter(writer)
    for done in (10, 20, 30):
        starter.packed(done, 30)
    starter.answer({"ready": "yes", "url": "http://127.0.0.1:1"})
    answer = launch._wait(process, reader, tmp_path, lambda *amounts: seen.append(amounts))
    assert answer == {"ready": "yes", "url": "http://127.0.0.1:1"}
    assert seen == [(10, 30), (20, 30), (30, 30)]


def test_a_start_is_seen_behind_words_on_the_packing(pipe: tuple[FileIO, int]) -> None:
    reader, writer = pipe
    starter = Starter(writer)
    starter.packed(10, 10)
    assert not launch._is_ready(reader)
    starter.packed(10, 10)
    starter.answer({"ready": "yes", "url": ""})
    assert launch._is_ready(reader)


def test_a_starter_that_does_not_listen_holds_no_packing_up(pipe: tuple[FileIO, int]) -> None:
    _, writer = pipe
    while select.select([], [writer], [], 0)[1]:
        os.write(writer, b"x" * 4096)
    packing = threading.Thread(target=Starter(writer).packed, args=(1, 1), daemon=True)
    packing.start()
    packing.join(60)
    assert not packing.is_alive()
    os.close(writer)


def test_what_packs_on_after_the_answer_writes_into_no_other_file(pipe: tuple[FileIO, int], tmp_path: Path) -> None:
    """The number of the pipe is given to the next file that is opened."""
    reader, writer = pipe
    starter = Starter(writer)
    starter.answer({"error": "no", "kind": "other"})
    with (tmp_path / "database").open("wb"):
        starter.packed(1, 1)
        starter.answer({"error": "no", "kind": "other"})
    assert (tmp_path / "database").read_bytes() == b""
    assert reader.readline() == b'{"error": "no", "kind": "other"}\n'


def test_a_starter_that_is_gone_does_not_matter(pipe: tuple[FileIO, int]) -> None:
    reader, writer = pipe
    reader.close()
    starter = Starter(writer)
    starter.packed(1, 1)
    starter.answer({"ready": "yes"})
