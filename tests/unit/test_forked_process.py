"""Copies of a process that go on with another program: what they share with it, and how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnilite._side_processes.forked_process import can_fork

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="elsewhere a new Python is started"),
]

FORK = """
import atexit, os, subprocess, sys, threading
from nnilite._side_processes.forked_process import ForkedProcess, can_fork

def forked(program, kept=2):
    return ForkedProcess(program, stderr=2, kept=kept)

def say(text):
    os.write(2, text.encode())
    return 0
"""


def run(program: str) -> tuple[str, str]:
    """What a program prints on standard output and on standard error, once its copies have ended, too."""
    command = [sys.executable, "-c", FORK + program]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("lambda: 3", 3, ""),
        ("lambda: sys.exit(2)", 2, ""),
        ("lambda: 1 / 0", 1, "ZeroDivisionError"),
        ("lambda: os.kill(os.getpid(), 9)", -9, ""),
        ("lambda: atexit.register(say, 'at the exit') and 0", 0, "at the exit"),
        ("lambda: threading.Thread(target=say, args=('in a thread',)).start() or 0", 0, "in a thread"),
    ],
)
def test_a_copy_ends_as_a_python_ends(program: str, code: int, said: str) -> None:
    out, err = run(f"print(forked({program}).wait())")
    assert out == f"{code}\n"
    assert said in err


def test_a_copy_returns_into_nothing_that_the_other_process_is_at() -> None:
    out, err = run(
        "try:\n    forked(lambda: 1 / 0).wait()\nfinally:\n    say(f'left')\natexit.register(say, ', ended')"
    )
    assert (out, err[err.index("left") :]) == ("", "left, ended")


def test_a_copy_has_no_other_file_than_its_streams_and_the_kept_one() -> None:
    out, err = run(
        "def show():\n"
        "    found = os.listdir('/proc/self/fd')\n"
        "    return say(' '.join(name for name in found if os.path.exists(f'/proc/self/fd/{name}')))\n"
        "other, kept = os.pipe()\nforked(show, kept).wait()\nprint(kept)"
    )
    assert err == f"0 1 2 {out.strip()}"


def test_a_copy_reads_what_is_written_to_it_and_prints_nothing_to_the_terminal() -> None:
    out, err = run(
        "sys.stdout.write('once')\n"
        "copy = forked(lambda: print('not shown') or say(os.read(0, 5).decode() + str(os.getsid(0) == os.getpid())))\n"
        "copy.stdin.write(b'words')\ncopy.wait()"
    )
    assert (out, err) == ("once", "wordsTrue")


def test_a_copy_that_does_not_end_is_waited_for_as_long_as_was_said_and_can_be_killed() -> None:
    out, _ = run(
        "copy = forked(lambda: os.read(0, 1))\ntry:\n    copy.wait(0.0)\n"
        "except subprocess.TimeoutExpired:\n    copy.kill()\nprint(copy.wait(60))\ncopy.kill()"
    )
    assert out == "-9\n"


def test_a_copy_that_other_code_has_waited_for_has_ended_well_as_a_popen_has() -> None:
    out, _ = run("copy = forked(lambda: 3)\nos.waitpid(copy.pid, 0)\ncopy.kill()\nprint(copy.wait(), copy.wait(1))")
    assert out == "0 0\n"


def test_neither_process_looks_for_garbage_in_what_both_have() -> None:
    out, err = run(
        "import gc\nforked(lambda: say(str(gc.get_count()[2:]) + str(gc.get_freeze_count() > 9))).wait()\n"
        "print(gc.get_freeze_count() > 9)"
    )
    assert (out, err) == ("True\n", "(0,)True")


def test_a_process_with_threads_is_not_copied() -> None:
    waits = "over = threading.Event()\nthreading.Thread(target=over.wait).start()\n"
    out, _ = run(f"print(can_fork())\n{waits}print(can_fork())\nover.set()")
    assert out == "True\nFalse\n"


def test_elsewhere_nothing_is_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There it is not known how many threads there are."""
    monkeypatch.setattr("nnilite._side_processes.forked_process._THREADS", tmp_path / "none")
    assert not can_fork()
