"""A keeper that is killed: what it left is found, ended and delivered, and nothing else is touched."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import processes
from keeper_bench import HOSTILE, Bench, running, until
from nnilite._keeper import process
from nnilite.services import keeper_folder
from waiting import pause

pytestmark = pytest.mark.process

WORK = """"$PYTHON" -c "
import nnilite, time
print('up', flush=True)
with open('own', 'a') as own:
    for i in range(10000):
        nnilite.report_intermediate_result(i)
        own.write(str(i) + chr(10))
        own.flush()
        time.sleep(0.002)
" """


@pytest.mark.parametrize("number", range(8))
def test_after_a_kill_at_any_moment_every_metric_is_delivered_once(tmp_path, number):
    with Bench(tmp_path) as bench:
        bench.callback.script = random.choices(["ok", "drop", "lose", "500"], (6, 1, 1, 1), k=40)
        keeper = bench.start(WORK)
        bench.wait_for_start()
        pause(random.uniform(0, 0.6), "the kill comes at any moment")
        keeper.kill()
        keeper.wait()
        assert bench.deliver() == 0
        reported = [metric.value for metric in keeper_folder.read_metrics(bench.folder)]
        assert bench.callback.values == reported == list(range(len(reported)))
        own = len((bench.folder / "own").read_text().split())
        assert own <= len(reported) <= own + 1
        assert bench.callback.doubled == 0
        assert bench.callback.exits == []


def test_a_command_whose_end_cannot_be_seen_is_not_taken_for_a_success():
    """Run where no other process of a test can be reaped by it."""
    program = """
import os
from nnilite._keeper.command_start import EndUnknown, StartedCommand
try:
    raise SystemExit(f"it says {StartedCommand(os.getppid()).poll()}")
except EndUnknown as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("its exit code cannot be known: No child processes\n", "")


@pytest.mark.parametrize("number", range(6))
def test_a_kill_around_the_start_leaves_nothing_running(tmp_path, number):
    with Bench(tmp_path) as bench:
        keeper = bench.start("echo up; sleep 1000")
        until(lambda: (bench.folder / ".nni" / "exit.new").exists())
        pause(random.uniform(0, 0.05), "the kill comes at any moment")
        keeper.kill()
        keeper.wait()
        assert bench.deliver() == 0
        assert trials_of(bench) == []
        assert bench.run("echo up; sleep 1000") == 6
        assert bench.text("stdout") in ("up\n", "")


def trials_of(bench):
    return [pid for pid in processes.with_variable(f"NNI_SYS_DIR={bench.folder}") if running(pid)]


def test_the_trial_of_a_dead_keeper_is_ended_with_its_whole_group(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.start("sleep 1000 & echo up $!; sleep 1000")
        pid = bench.wait_for_start()
        inner = int(bench.text("stdout").split()[1])
        keeper.kill()
        keeper.wait()
        assert running(pid)
        bench.deliver()
        assert not running(pid)
        assert not running(inner)


def test_the_end_that_a_dead_keeper_wrote_is_delivered(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["forever 500"]
        keeper = bench.start("echo 'final 1' >> \"$NNILITE_METRICS\"; exit 3")
        until(lambda: bench.inner("exit"))
        keeper.kill()
        keeper.wait()
        bench.callback.script = []
        assert bench.deliver() == 0
        assert bench.callback.values == [1]
        assert bench.callback.exits[0].code == 3


def test_a_second_keeper_after_the_end_tells_the_first_ones_exit_code(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("exit 3", linger_s=0)
        assert bench.run("exit 0") == 3


def test_a_reused_pid_is_never_taken_for_the_trial(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("true")
        stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        started = bench.inner("started")
        (bench.folder / ".nni" / "started").write_text(json.dumps({**started, "pid": stranger.pid}))
        assert bench.deliver() == 0
        assert stranger.poll() is None
        stranger.kill()
        stranger.wait()


def test_a_trial_that_left_its_group_is_found_too(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.start("setsid sleep 1000 & echo up; sleep 1000")
        bench.wait_for_start()
        until(lambda: {os.getpgid(int(pid)) for pid in trials_of(bench)} - {bench.inner("started")["pid"]})
        keeper.kill()
        keeper.wait()
        bench.deliver()
        assert trials_of(bench) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux tells the environment of others")
def test_a_process_whose_group_is_in_another_namespace_is_not_taken_for_our_own(tmp_path, monkeypatch):
    marks = {"NNILITE_JOB": "nni-x", "NNI_SYS_DIR": str(tmp_path)}
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **marks}, start_new_session=True) as child:
        try:
            assert until(lambda: process.find_groups("nni-x", str(tmp_path))) == [child.pid]
            monkeypatch.setattr(process, "stat_of", lambda pid: ["S", "1", "0"])
            assert process.find_groups("nni-x", str(tmp_path)) == []
        finally:
            child.kill()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux tells the environment of others")
def test_a_process_that_becomes_another_program_is_found_at_each_moment(tmp_path):
    marks = {"NNILITE_JOB": "nni-x", "NNI_SYS_DIR": str(tmp_path)}
    program = tmp_path / "again"
    program.write_text('exec /bin/sh "$0"\n')
    with subprocess.Popen(["/bin/sh", program], env={**os.environ, **marks}, start_new_session=True) as child:
        try:
            until(lambda: process.find_groups("nni-x", str(tmp_path)))
            looks = [process._environment(child.pid) for _ in range(2000)]
            found = [look is None or b"NNILITE_JOB=nni-x" in look for look in looks]
            assert found.count(False) == 0
            assert [process.find_groups("nni-x", str(tmp_path)) for _ in range(100)] == [[child.pid]] * 100
        finally:
            child.kill()


def test_delivering_twice_doubles_nothing(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"")
        assert bench.deliver() == 0
        assert bench.callback.values == [1]
        assert bench.callback.doubled == 0


def test_delivering_what_was_never_started_is_harmless(tmp_path):
    with Bench(tmp_path) as bench:
        bench.spec("true")
        assert bench.deliver() == 0
        assert bench.callback.events == []


def test_a_late_worker_is_told_that_its_attempt_was_given_up(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"", linger_s=0)
        bench.spec("true")
        bench.callback.script = ["410"]
        assert bench.deliver() == 5


def test_a_damaged_started_file_does_not_stop_the_delivery(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"", callback=None)
        (bench.folder / ".nni" / "started").write_text("{")
        bench.spec("true")
        assert bench.deliver() == 0
        assert bench.callback.values == [1]


def test_a_full_disk_ends_the_trial_with_a_sentence_and_the_end_arrives(tmp_path, small_disk):
    with Bench(small_disk) as bench:
        bench.folder = small_disk / "0"
        bench.spec_file = tmp_path / "spec.json"
        code = "import nnilite\nwhile True: nnilite.report_intermediate_result(1)"
        bench.run(f'cat /dev/zero > filler; "$PYTHON" -Bc "{code}"')
        assert bench.callback.exits[0].code == 1
        assert f"the disk of the trial's folder {bench.folder} is full" in bench.callback.exits[0].message
        assert bench.callback.values == [metric.value for metric in keeper_folder.read_metrics(bench.folder)]
        assert bench.inner("exit")["code"] == 1


def test_a_disk_that_is_full_from_the_start_is_said(tmp_path, small_disk):
    with Bench(small_disk) as bench:
        bench.folder = small_disk / "0"
        bench.spec_file = tmp_path / "spec.json"
        subprocess.run(["dd", "if=/dev/zero", f"of={small_disk}/filler"], stderr=subprocess.DEVNULL)
        assert bench.run("true") == 4
        assert "No space left on device" in bench.callback.exits[0].message


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / HOSTILE.split("\n")[0]
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], stderr=subprocess.DEVNULL)
    if mounted.returncode:
        pytest.skip("a small disk can only be made by root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
