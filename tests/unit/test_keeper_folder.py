"""What services learn of an attempt from its folder, and how the end of a trial is told, in one place for all."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from keeper_bench import HOSTILE, Bench, pythons, zipapp
from nnilite import worker_side
from nnilite.keeper_folder import KeeperFolder, end_status, identity, is_running
from nnilite.records import EndCause, Exited, Reported
from nnilite.service import JobState
from nnilite.testing import eventually


@pytest.fixture
def bench(tmp_path):
    with Bench(tmp_path) as bench:
        yield bench


def of(bench):
    return KeeperFolder(bench.folder)


@pytest.mark.parametrize(
    ("exited", "state"),
    [
        ({"code": 0, "cause": ""}, JobState.SUCCEEDED),
        ({"code": 3, "cause": ""}, JobState.FAILED),
        ({"code": None, "message": "no such folder"}, JobState.FAILED),
        ({"code": 0, "cause": "canceled"}, JobState.CANCELED),
        ({"code": -15, "cause": "interrupted", "message": "told to end"}, JobState.CANCELED),
        ({"code": -15, "cause": "duration", "message": "went over its time limit"}, JobState.FAILED),
        ({"code": -9, "cause": "fenced", "message": "given up"}, JobState.FAILED),
        # a keeper of nnilite 0.1, and files that a trial has written to
        ({"code": -15, "message": "canceled"}, JobState.CANCELED),
        ({"code": 1, "cause": "duration", "message": "canceled"}, JobState.FAILED),
        ({"code": "0", "cause": ["canceled"], "message": None}, JobState.FAILED),
    ],
)
def test_the_state_of_a_job_follows_from_its_keepers_record(exited, state):
    status = end_status({**exited, "time": 2.5}, "host", 1.5)
    assert (status.state, status.host, status.started, status.ended) == (state, "host", 1.5, 2.5)


def test_every_cause_of_a_keeper_is_told_as_an_end():
    assert all(end_status({"code": 1, "cause": cause.value}).state.ended for cause in EndCause)


def test_a_folder_tells_of_its_job_from_its_start_to_its_end(bench):
    folder = of(bench)
    assert folder.status(lambda: True).state is JobState.WAITING
    assert folder.status(lambda: False).state is JobState.LOST
    keeper = bench.start("echo up; read line < fifo || sleep 60")
    bench.wait_for_start()
    known = identity(keeper.pid)
    assert folder.status(lambda: is_running(known), "here").state is JobState.RUNNING
    assert folder.was_begun()
    assert folder.has_keeper()
    assert folder.keeper() == keeper.pid
    keeper.terminate()
    assert keeper.wait(30) == 143
    status = folder.status(lambda: is_running(known))
    assert (status.state, status.exit_code) == (JobState.CANCELED, -signal.SIGTERM)
    assert status.started <= status.ended
    assert (folder.has_keeper(), folder.keeper()) == (False, 0)


def test_an_end_that_comes_while_the_status_is_asked_for_is_no_loss(bench):
    keeper = bench.start("true")

    def ends_just_now():
        keeper.wait(30)
        return True

    assert of(bench).status(ends_just_now).state is JobState.SUCCEEDED


def test_the_commands_of_a_folder_run_a_trial_and_deliver_what_a_killed_keeper_has_left(tmp_path, bench):
    folder = KeeperFolder(tmp_path / HOSTILE / "another")
    report = '"$PYTHON" -c "import nnilite; nnilite.report_final_result(7)"; sleep 60'
    folder.create(
        {
            "job": "j",
            "experiment": "e",
            "trial": "t",
            "command": report,
            "directory": str(folder.path),
            "env": {"PYTHON": sys.executable},
            "grace_s": 1,
        }
    )
    assert folder.spec_file.stat().st_mode & 0o777 == 0o600
    keeper = subprocess.Popen(folder.run_command(zipapp()))
    eventually(lambda: [event for event in folder.events() if isinstance(event, Reported)])
    keeper.kill()
    keeper.wait()
    trial = folder._files.started()["pid"]
    assert subprocess.run(folder.deliver_command(zipapp()), timeout=60, check=False).returncode == 0
    assert worker_side.started_at(trial) == ""
    assert folder.status(lambda: False).state is JobState.LOST
    folder.forget_spec()
    folder.forget_spec()
    assert folder.spec() == {}


def test_output_is_read_piece_by_piece_and_events_are_whole(bench):
    assert bench.run("printf 0123456789; exit 4") == 4
    folder = of(bench)
    assert (folder.output("stdout", 2, 3), folder.output("stdout", 20, 3)) == (b"234", b"")
    assert folder.events()[-1] == Exited(folder.ended().ended, 4, folder.ended().reason)
    assert KeeperFolder(bench.folder / "nowhere").output("stdout", 0, 9) == b""


def test_what_a_service_notes_is_found_again(tmp_path):
    folder = KeeperFolder(tmp_path / HOSTILE)
    assert folder.note() is None
    folder.create({})
    folder.keep_note({"pid": 1})
    assert folder.note() == {"pid": 1}
    assert sorted(path.name for path in folder.path.iterdir()) == ["job.json", "spec.json"]


@pytest.mark.parametrize("python", pythons())
def test_a_program_on_a_worker_has_the_same_without_nnilite_there(tmp_path, python):
    program = f"""
import sys, types
for name, text in {worker_side.sources()!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0] if text else name
    module.__path__ = []
    exec(compile(text, name, "exec"), module.__dict__)
from nnilite.worker_side import AttemptFiles, end_state, identity, is_running
files = AttemptFiles(sys.argv[1])
files.create({{"a": 1}})
print(files.spec(), files.has_keeper(), end_state({{"code": 0}}), is_running(identity(__import__("os").getpid())))
"""
    words = [python, "-I", "-S", "-c", program, str(tmp_path / HOSTILE)]
    found = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/")
    assert found.stdout == "{'a': 1} False SUCCEEDED True\n"
