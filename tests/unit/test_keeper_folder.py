"""What services learn of an attempt from its folder, and how the end of a trial is told, in one place for all."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys

import pytest

from keeper_bench import HOSTILE, Bench, pythons, zipapp
from nnilite._keeper import attempt_run
from nnilite.errors import ConfigError
from nnilite.records import UNSTARTED, EndCause, Exited, Reported
from nnilite.service import Job, JobState
from nnilite.services import worker_side
from nnilite.services.keeper_folder import KeeperFolder, check_folder_names, end_status, identity, is_running
from nnilite.testing import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def bench(tmp_path):
    with Bench(tmp_path) as bench:
        yield bench


def of(bench):
    return KeeperFolder(bench.folder)


@pytest.mark.parametrize(("experiment", "trial", "wrong"), [("e", "../t", "../t"), ("a b", "t", "a b")])
def test_the_error_names_what_cannot_be_the_name_of_a_folder(experiment, trial, wrong):
    with pytest.raises(ConfigError, match=f"^{wrong!r} cannot be the name of a folder"):
        check_folder_names(Job("nni-e-t-0", experiment, trial, 0, 0, {}))


@pytest.mark.parametrize(
    ("exited", "state"),
    [
        ({"code": 0, "cause": ""}, JobState.SUCCEEDED),
        ({"code": 3, "cause": ""}, JobState.FAILED),
        ({"code": None, "message": "no such folder"}, JobState.FAILED),
        ({"code": 0, "cause": "canceled"}, JobState.CANCELED),
        ({"code": -15, "cause": "interrupted", "message": "told to end"}, JobState.CANCELED),
        ({"code": -15, "cause": "duration", "message": "went over its time limit"}, JobState.FAILED),
        ({"code": -9, "cause": "fenced", "message": "given up"}, JobState.LOST),
        ({"code": None, "cause": "machine", "message": "No space left on device"}, JobState.LOST),
        # a keeper of nnilite 0.1, and files that a trial has written to
        ({"code": -15, "message": "canceled"}, JobState.CANCELED),
        ({"code": 1, "cause": "duration", "message": "canceled"}, JobState.FAILED),
        ({"code": "0", "cause": ["canceled"], "message": None}, JobState.FAILED),
    ],
)
def test_the_state_of_a_job_follows_from_its_keepers_record(exited, state):
    status = end_status({**exited, "time": 2.5}, "host", 1.5)
    assert (status.state, status.host, status.started, status.ended) == (state, "host", 1.5, 2.5)


def test_only_a_fault_of_the_machine_says_that_nothing_was_started():
    assert end_status({"cause": "machine", "message": "No space left on device"}).reason.startswith(f"{UNSTARTED}: No")
    assert end_status({"code": 1, "message": "exit code 1"}).reason == "exit code 1"


def test_every_cause_of_a_keeper_is_told_as_an_end():
    assert all(end_status({"code": 1, "cause": cause.value}).state.ended for cause in EndCause)


@pytest.mark.parametrize("code", [10**30, -(10**30), "0", True, 1.5, [0]])
def test_a_code_that_a_trial_has_made_up_is_left_out(code):
    found = end_status({"code": code, "time": 1e300, "message": 5}, started="yesterday")
    assert (found.exit_code, found.started, found.ended, found.reason) == (None, None, None, "5")


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
    assert keeper.wait(60) == 143
    status = folder.status(lambda: is_running(known))
    assert (status.state, status.exit_code) == (JobState.CANCELED, -signal.SIGTERM)
    assert status.started <= status.ended
    assert (folder.has_keeper(), folder.keeper()) == (False, 0)


def test_an_end_that_comes_while_the_status_is_asked_for_is_no_loss(bench):
    keeper = bench.start("true")

    def ends_just_now():
        keeper.wait(60)
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
    eventually(folder._files.started)  # on a busy machine a trial may report before its keeper has noted its start
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
    events = folder.events()
    assert events[-1] == Exited(folder.read_end().ended, 4, folder.read_end().reason, run=events[0].run)
    assert KeeperFolder(bench.folder / "nowhere").output("stdout", 0, 9) == b""


def test_what_a_service_notes_is_found_again(tmp_path):
    folder = KeeperFolder(tmp_path / HOSTILE)
    assert folder.read_note() is None
    folder.create({})
    folder.keep_note({"pid": 1})
    assert folder.read_note() == {"pid": 1}
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
from nnilite.services.worker_side import AttemptFiles, end_state, identity, is_running
files = AttemptFiles(sys.argv[1])
files.create({{"a": 1}})
print(files.spec(), files.has_keeper(), end_state({{"code": 0}}), is_running(identity(__import__("os").getpid())))
"""
    words = [python, "-I", "-S", "-c", program, str(tmp_path / HOSTILE)]
    found = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/")
    assert found.stdout == "{'a': 1} False SUCCEEDED True\n"


def files(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


REPORTING = 'echo intermediate 0.5 >> "$NNILITE_METRICS"; echo final 0.9 >> "$NNILITE_METRICS"; echo out; exit 3'


def test_what_the_manager_has_is_tidied_away_and_the_trials_own_files_stay(bench):
    assert bench.run(REPORTING) == 3
    folder = of(bench)
    folder.forget()
    assert not folder.is_tidied()
    assert folder.tidy()
    assert files(folder.path) == ["parameter.cfg", "trial.stderr", "trial.stdout"]
    assert (folder.is_tidied(), folder.events(), folder.output("stdout", 0, 9)) == (True, [], b"out\n")
    assert not folder.tidy()


def test_a_keepers_log_and_strangers_files_are_not_tidied_away(bench):
    bench.run(REPORTING + "; true")
    inner = of(bench).path / ".nni"
    for name in ("keeper.log", "state"):
        (inner / name).write_text("x")
    assert of(bench).tidy()
    assert files(inner) == ["keeper.log", "state"]


def test_nothing_is_tidied_away_behind_a_link_that_a_trial_has_made(bench, tmp_path):
    bench.run(REPORTING)
    inner, elsewhere = of(bench).path / ".nni", tmp_path / "elsewhere"
    inner.rename(elsewhere)
    inner.symlink_to(elsewhere)
    before = files(elsewhere)
    with pytest.raises(OSError):  # noqa: PT011 - by the system it is ELOOP or ENOTDIR
        of(bench).tidy()
    assert files(elsewhere) == before


@pytest.mark.parametrize("line", ["what is this", "final", "final {"])
def test_a_report_that_nobody_could_read_stays_on_the_disk(bench, line):
    bench.run(f"echo '{line}' >> \"$NNILITE_METRICS\"; {REPORTING}")
    assert not of(bench).tidy()
    assert line in (of(bench).path / ".nni/metrics").read_text()


def test_what_the_manager_does_not_have_is_not_tidied_away(bench):
    bench.callback.script = ["forever 500"]
    bench.run(REPORTING, linger_s=0.2)
    before = files(of(bench).path)
    assert not of(bench).tidy()
    assert files(of(bench).path) == before


def test_nothing_is_tidied_away_under_a_keeper_at_work(bench):
    keeper = bench.start("echo up; sleep 60")
    bench.wait_for_start()
    (of(bench).path / ".nni/delivered").write_text('{"complete": true, "whole": true}')
    assert not of(bench).tidy()
    keeper.terminate()
    assert keeper.wait(60) == 143


@pytest.mark.parametrize("step", range(7))
@pytest.mark.parametrize("trouble", [OSError(errno.EIO, "trouble"), KeyboardInterrupt()])
def test_tidying_that_stops_anywhere_leaves_the_truth_and_goes_on_later(bench, monkeypatch, step, trouble):
    bench.run(REPORTING)
    folder = of(bench)
    whole, left = folder.events(), [step]

    def stops(call):
        def instead(*place, **more):
            left[0] -= 1
            if left[0] < 0:
                raise trouble
            return call(*place, **more)

        return instead

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", stops(os.unlink))
        patch.setattr(os, "rmdir", stops(os.rmdir))
        with pytest.raises(type(trouble)) if step < 6 else contextlib.nullcontext():
            folder.tidy()
    # An end is never told without the reports before it, nor a part of the reports.
    assert folder.events() in (whole, whole[:-1], whole[:1], [])
    assert bench.deliver() == 0
    assert bench.callback.values == [0.5, 0.9]
    assert {end.code for end in bench.callback.exits} == {3}  # the manager knows a repetition by itself
    folder.tidy()
    assert files(folder.path / ".nni") == []


def test_services_know_the_exit_codes_of_a_second_keeper() -> None:
    assert (0, attempt_run.OTHER_KEEPER, attempt_run.FENCED, attempt_run.UNDELIVERED) == worker_side.TAKEN_CARE_OF
