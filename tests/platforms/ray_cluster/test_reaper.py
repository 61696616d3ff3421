"""What is left of a cluster is killed, also what was just about to be started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platforms.ray_cluster.cluster import _REAPER
from platforms.ray_cluster.reaper import look, read_environment, reap

MARK = b"NNILITE_TEST_RAY=nnl-ray-it"
OTHERS = b"PATH=/bin\0HOME=/\0"


def entry(proc: Path, pid: int, environment: bytes, code_end: int, program: str = "/bin/it") -> None:
    """Write what /proc has of a process whose name looks like the fields after it."""
    about = proc / str(pid)
    about.mkdir(exist_ok=True)
    (about / "environ").write_bytes(environment)
    fields = ["S", *map(str, range(4, 27)), str(code_end), *map(str, range(28, 53))]
    (about / "stat").write_text(f"{pid} (a) 0 0) {' '.join(fields)}\n")
    (about / "exe").unlink(missing_ok=True)
    if program:
        (about / "exe").symlink_to(program)


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is killed in the folder of processes, which is gone at once."""
    found: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        found.append(pid)
        (tmp_path / str(pid) / "environ").unlink()

    monkeypatch.setattr(os, "kill", kill)
    return found


def test_a_process_in_the_middle_of_execve_may_have_the_mark(tmp_path: Path) -> None:
    entry(tmp_path, 11, OTHERS + MARK + b"\0", 7000)
    entry(tmp_path, 12, b"", 0)
    assert look(MARK, tmp_path) == ([11], [12])


def test_what_has_another_or_no_environment_is_none_of_it(tmp_path: Path) -> None:
    entry(tmp_path, 11, OTHERS + MARK + b"-2\0", 7000)
    entry(tmp_path, 12, b"", 7000)  # started with `env -i`
    entry(tmp_path, 13, b"", 0, program="")  # has ended, or is a thread of the kernel
    (tmp_path / "14").mkdir()  # ends while it is read
    (tmp_path / "meminfo").write_text("")
    assert look(MARK, tmp_path) == ([], [])


def test_what_is_being_started_while_the_rest_is_killed_is_killed_too(
    tmp_path: Path, killed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(tmp_path, 11, MARK, 7000)
    entry(tmp_path, 12, b"", 0)
    pauses = iter([lambda: None, lambda: entry(tmp_path, 12, OTHERS + MARK, 7000), lambda: None])
    monkeypatch.setattr("platforms.ray_cluster.reaper.time.sleep", lambda _: next(pauses)())
    reap(MARK, tmp_path)
    assert killed == [11, 12]


def test_a_process_that_was_just_started_is_never_taken_for_one_without_an_environment() -> None:
    wanted = f"NNILITE_TEST_RAY={os.getpid()}".encode()
    for _ in range(100):
        with subprocess.Popen(["sleep", "300"], env={"NNILITE_TEST_RAY": str(os.getpid())}) as started:
            try:
                assert read_environment(Path(f"/proc/{started.pid}")) in (None, wanted + b"\0")
            finally:
                started.kill()


def test_the_program_kills_a_real_process_with_the_mark_when_its_input_ends() -> None:
    name, _, value = MARK.decode().partition("=")
    with subprocess.Popen(["sleep", "300"], env={**os.environ, name: f"{value}-{os.getpid()}"}) as marked:
        words = [sys.executable, "-S", str(_REAPER), f"{name}={value}-{os.getpid()}"]
        subprocess.run(words, stdin=subprocess.DEVNULL, check=True, timeout=200)
        assert marked.wait(100) == -signal.SIGKILL
