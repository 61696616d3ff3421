"""How a trial steps back where all processors are busy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from keeper_bench import Bench
from nnilite._keeper import niceness
from nnilite._keeper.niceness import Niceness

AUTOGROUP = Path("/proc/self/autogroup")
TELL = (
    "import os, time; deadline = time.monotonic() + 5\n"
    "path = '/proc/self/autogroup'\n"
    "read = lambda: open(path).read().split()[-1] if os.path.exists(path) else ''\n"
    "while time.monotonic() < deadline and read() not in ('', WANTED): time.sleep(0.01)\n"
    "print(os.getpriority(os.PRIO_PROCESS, 0), read())\n"
)


@pytest.mark.parametrize("by", [0, 7, 40])
def test_a_trial_steps_back_as_far_as_asked_for(tmp_path: Path, by: int) -> None:
    (tmp_path / "tell.py").write_text(TELL.replace("WANTED", repr(str(min(by, 19)))))
    with Bench(tmp_path) as bench:
        assert bench.run(f'"$PYTHON" {tmp_path}/tell.py', niceness=by) == 0
        own, *of_session = bench.text("stdout").split()
    assert int(own) == min(os.getpriority(os.PRIO_PROCESS, 0) + by, 19)
    assert of_session == ([str(min(by, 19))] if AUTOGROUP.exists() else [])


def test_what_the_system_does_not_take_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "1" / "autogroup"
    place.parent.mkdir()
    place.touch()
    answers = iter([BlockingIOError("too often"), BlockingIOError("too often"), None])
    write = os.write

    def write_in_time(file: int, data: bytes) -> int:
        answer = next(answers)
        if answer is not None:
            raise answer
        return write(file, data)

    monkeypatch.setattr(niceness.os, "write", write_in_time)
    monkeypatch.setattr(niceness, "_renice", lambda group, by: None)
    back = Niceness(1, 5, str(tmp_path))
    for _ in range(4):  # the fourth has nothing left to do: there is no further answer
        back.apply()
    assert place.read_text() == "5"


def test_a_system_without_such_groups_and_a_trial_that_has_ended_are_no_trouble(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as program:
        Niceness(program.pid, 5, str(tmp_path))
        assert os.getpriority(os.PRIO_PROCESS, program.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)
        program.kill()
    Niceness(program.pid, 5)
