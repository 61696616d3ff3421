"""Logs stay small, whoever writes to them, and go on where they were cut."""

from __future__ import annotations

import argparse
import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nnilite._cli import log as cli_log
from nnilite._manager import log_limits
from nnilite._manager.log_limits import LogLimits, keep_logs_small
from waiting import eventually_async

LIMIT = 64_000


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogLimits:
    monkeypatch.setattr(log_limits, "MOST_LOG_BYTES", LIMIT)
    (tmp_path / "log").mkdir()
    return LogLimits(tmp_path, [tmp_path / "fork-server.log", tmp_path / "log" / "tracker-mlflow.log"])


@pytest.mark.parametrize("name", ["log/manager.log", "log/tuner.log", "fork-server.log", "log/tracker-mlflow.log"])
def test_a_log_keeps_its_beginning_and_its_end(limits: LogLimits, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with path.open("ab", buffering=0) as log:
        log.write(b"the beginning\n" + b"x" * 10 * LIMIT + b"\nthe end\n")
        limits.look()
        assert path.stat().st_size <= LIMIT
        log.write(b"and what came later\n")
    text = path.read_bytes()
    assert text.startswith(b"the beginning\n")
    assert text.endswith(b"\nthe end\nand what came later\n")
    assert b" bytes of output left out here: a log has at most 0 MB]\n" in text


def test_files_that_a_tuner_keeps_beside_its_log_are_left_alone(limits: LogLimits, tmp_path: Path) -> None:
    (tmp_path / "log" / "own.log").write_bytes(b"x" * 2 * LIMIT)
    limits.look()
    assert (tmp_path / "log" / "own.log").stat().st_size == 2 * LIMIT


@pytest.mark.process
def test_whoever_prints_without_end_neither_waits_nor_fills_the_disk(limits: LogLimits, tmp_path: Path) -> None:
    path = tmp_path / "log" / "tuner.log"
    code = "import os\nfor _ in range(4000): os.write(1, b'x' * 10_000)\n"
    with path.open("ab") as out, subprocess.Popen([sys.executable, "-c", code], stdout=out) as program:
        while program.poll() is None:
            limits.look()
    limits.look()
    assert program.returncode == 0
    assert path.stat().st_size <= LIMIT


async def test_a_log_that_cannot_be_cut_is_said_once(
    limits: LogLimits, monkeypatch: pytest.MonkeyPatch, kept_log: pytest.LogCaptureFixture
) -> None:
    looks = []

    def failing(self: LogLimits) -> None:
        looks.append(self)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log_limits, "_LOOK_S", 0.001)
    monkeypatch.setattr(LogLimits, "look", failing)
    keeping = asyncio.create_task(keep_logs_small(limits))
    await eventually_async(lambda: len(looks) > 3)
    keeping.cancel()
    said = [record for record in kept_log.records if record.levelno == logging.ERROR]
    assert len(said) == 1
    assert "a log cannot be cut" in said[0].getMessage()


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[[Callable[[Path], None]], bytes]:
    """What is printed by who follows a log that is changed in between, after the ten lines that it has at first."""

    def run(change: Callable[[Path], None]) -> bytes:
        path = tmp_path / "tuner.log"
        path.write_bytes(b"before the cut\n" * 10)

        def steps() -> Iterator[bool]:
            yield False
            change(path)
            yield False
            with path.open("ab") as more:
                more.write(b"after the cut\n")
            yield True

        monkeypatch.setattr(cli_log, "POLL_S", 0.0)
        options = argparse.Namespace(json=False, stream="tuner", head=None, tail=None, follow=True)
        ended = steps()
        with closing(cli_log._FollowedLog(path)) as log:
            cli_log._print(options, log.read, lambda: next(ended), log.find_place)
        return capsysbinary.readouterr().out.removeprefix(b"before the cut\n" * 10)

    return run


def test_who_follows_a_log_reads_on_after_a_cut(printed: Any) -> None:
    assert printed(lambda path: path.write_bytes(b"before the cut\n" * 5)) == b"after the cut\n"


def test_who_follows_a_log_that_is_rotated_by_a_copy_misses_no_line(printed: Any) -> None:
    assert printed(lambda path: path.write_bytes(b"new\n")) == b"new\nafter the cut\n"


def test_who_follows_a_log_that_is_moved_reads_the_next_one(printed: Any) -> None:
    def move(path: Path) -> None:
        path.rename(path.with_suffix(".1"))
        path.write_bytes(b"new\n")

    assert printed(move) == b"new\nafter the cut\n"


@pytest.mark.process
def test_the_log_of_the_fork_server_is_emptied_when_preloaded_modules_fill_it(tmp_path: Path) -> None:
    path = tmp_path / "fork-server.log"
    path.write_bytes(b"x" * 2_000_000)
    code = "from nnilite._keeper.fork_server import _limit_log; _limit_log(); import os; os.write(2, b'later\\n')"
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", code], stderr=log, check=True)
    assert path.read_bytes() == b"[nnilite: 2000000 bytes of this log are left out: it was too large]\nlater\n"
