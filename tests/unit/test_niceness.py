"""How a trial steps back where all processors are busy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keeper_bench import Bench, zipapp
from nnilite._keeper import niceness
from nnilite._keeper.niceness import Niceness
from other_user import STRANGER, known_user, shared_python
from schedulers import AUTOGROUP, first_of_this_user, group_niceness

pytestmark = pytest.mark.process

TELL = (
    "import os, time; deadline = time.monotonic() + 60\n"
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


PLAIN = "nice; python3 -c 'import os; print(os.sched_getscheduler(0))'; cat /proc/self/autogroup || true"


@pytest.fixture(params=["this user", STRANGER])
def who(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], Path]]:
    """How to start a program as a user, and a folder of that user with the keeper."""
    account = known_user(STRANGER) if request.param == STRANGER else None
    words = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(zipapp(), folder / "keeper.pyz")
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        yield words, folder


def test_without_a_niceness_a_trial_of_any_user_shares_equally(who: tuple[dict[str, Any], Path]) -> None:
    user, folder = who
    spec = {"job": "j", "experiment": "e", "trial": "t", "command": PLAIN, "directory": f"{folder}/attempt"}
    (folder / "spec.json").write_text(json.dumps(spec))
    if user:
        shutil.chown(folder / "spec.json", STRANGER)
    command = [shared_python(), "-I", "-S", str(folder / "keeper.pyz"), "serve"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, start_new_session=True, cwd="/", text=True, **pipes, **user) as server:
        server.stdin.write(json.dumps({"spec": f"{folder}/spec.json"}) + "\n")
        server.stdin.flush()
        assert [json.loads(server.stdout.readline())["event"] for _ in range(2)] == ["started", "ended"]
        if AUTOGROUP.exists():
            assert group_niceness(server.pid) == ("0" if user else first_of_this_user())
        server.stdin.close()
    own, policy, *of_session = (folder / "attempt" / "trial.stdout").read_text().splitlines()
    assert (int(own), int(policy)) == (os.getpriority(os.PRIO_PROCESS, 0), os.SCHED_OTHER)
    assert [line.split()[-1] for line in of_session] == (["0"] if AUTOGROUP.exists() else [])


def test_a_session_that_a_program_shares_with_others_stays_where_it_is(tmp_path: Path) -> None:
    place = tmp_path / "self" / "autogroup"
    place.parent.mkdir()
    place.touch()
    source = f"from nnilite._keeper.niceness import raise_priority; raise_priority({str(tmp_path)!r})"
    for leads, written in [(False, ""), (True, "-10")]:
        subprocess.run([sys.executable, "-c", source], start_new_session=leads, check=True, timeout=60)
        assert place.read_text() == written


def test_a_system_without_autogroups_is_no_trouble(tmp_path: Path) -> None:
    source = f"from nnilite._keeper.niceness import raise_priority; raise_priority({str(tmp_path)!r})"
    ran = subprocess.run(
        [sys.executable, "-c", source], start_new_session=True, capture_output=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert list(tmp_path.iterdir()) == []
