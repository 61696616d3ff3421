"""Running one attempt: what the trial finds, what is told of its end, how it is ended."""

from __future__ import annotations

import ast
import base64
import errno
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from keeper_bench import Bench, pythons, running, until, zipapp
from nnilite._keeper import attempt_run, fork_server, sdk_folder, spec
from nnilite._keeper.command_start import find_cure, is_resource_shortage, split_plain_words
from nnilite._keeper.wake import Wake
from nnilite.records import EndCause
from nnilite.services.keeper_folder import read_events
from waiting import pause

pytestmark = pytest.mark.process

REPORT = '"$PYTHON" -c "import nnilite as n; p = n.get_next_parameter(); {}"'


@pytest.fixture(params=pythons(), ids=lambda path: path.split("/")[-3])
def bench(request, tmp_path):
    with Bench(tmp_path, request.param) as bench:
        yield bench


def test_a_trial_gets_its_parameters_and_its_reports_arrive_before_its_end(bench):
    assert bench.run(REPORT.format("n.report_intermediate_result(p['x']); n.report_final_result(1)")) == 0
    assert bench.callback.values == [0.5, 1]
    assert [type(event).__name__ for event in bench.callback.events] == ["Started", "Exited"]
    assert bench.callback.exits[0].code == 0


def test_a_short_trial_is_told_by_one_request(bench):
    folders = (bench.folder.with_name(str(number)) for number in itertools.count())

    def count_requests() -> int:
        before, bench.folder = bench.callback.requests, next(folders)
        bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"")
        return bench.callback.requests - before

    until(lambda: count_requests() == 1)  # a busy machine makes some longer


def test_nni_code_runs_as_it_is(bench):
    code = "import nni; p = nni.get_next_parameter(); nni.report_final_result({'default': p['x'], 'more': [1]})"
    assert bench.run(f'"$PYTHON" -c "{code}"') == 0
    assert bench.callback.values == [{"default": 0.5, "more": [1]}]


def test_the_environment_is_that_of_nni_and_holds_no_secret(bench):
    bench.run("env -0", env={"MINE": "yes", "HOME": None, "NUMBER": 3}, checkpoint_dir="/some/where")
    env = dict(item.split("=", 1) for item in bench.text("stdout").split("\0") if item)
    assert env["NNI_PLATFORM"] == "local"
    assert (env["NNI_EXP_ID"], env["NNI_TRIAL_JOB_ID"], env["NNI_TRIAL_SEQ_ID"]) == ("exp", "Xy12z", "3")
    assert env["NNI_SYS_DIR"] == env["NNI_OUTPUT_DIR"] == env["NNI_CODE_DIR"] == str(bench.folder)
    assert (env["MINE"], env["NUMBER"], env["NNILITE_CHECKPOINT_DIR"]) == ("yes", "3", "/some/where")
    assert "HOME" not in env
    assert not any("the token" in value for value in env.values())


def test_files_tell_the_whole_story(bench):
    bench.run("echo out; echo err >&2; exit 3")
    assert json.loads((bench.folder / "parameter.cfg").read_text())["parameters"] == {"x": 0.5}
    assert (bench.text("stdout"), bench.text("stderr")) == ("out\n", "err\n")
    assert bench.inner("exit")["code"] == 3
    assert bench.inner("delivered")["complete"] is True
    assert bench.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("command", "code", "status", "says"),
    [
        ("exit 3", 3, 3, "exit code 3"),
        ("kill -9 $$", -9, 137, "killed by SIGKILL"),
        ("no-such-program", 127, 127, "not found"),
        ("echo oh dear >&2; false", 1, 1, "oh dear"),
    ],
)
def test_the_end_is_told_with_code_and_reason(tmp_path, command, code, status, says):
    with Bench(tmp_path) as bench:
        assert bench.run(command) == status
        assert bench.callback.exits[0].code == code
        assert says in bench.callback.exits[0].message


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run("true", code={"in_place": "/no/such/folder"}) == 4
        assert bench.callback.exits[0].code is None
        assert "/no/such/folder" in bench.callback.exits[0].message


def test_a_trial_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with Bench(tmp_path) as bench:
        assert bench.run("true", directory=str(tmp_path / "file" / "0")) == 4
        [exited] = bench.callback.exits
        assert "cannot be written: Not a directory" in exited.message
        assert exited.cause is EndCause.MACHINE


def test_a_start_on_a_full_disk_is_the_fault_of_the_machine(tmp_path):
    with Bench(tmp_path) as bench:
        (bench.folder / ".nni").mkdir(parents=True)
        (bench.folder / ".nni/started.new").symlink_to("/dev/full")
        assert bench.run("true") == 4
        [exited] = bench.callback.exits
        assert "cannot be written: No space left on device" in exited.message
        assert exited.cause is EndCause.MACHINE


def test_a_command_that_cannot_be_started_is_not_the_fault_of_the_machine(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("true", code={"in_place": "/no/such/folder"})
        assert bench.callback.exits[0].cause is EndCause.ITSELF
    numbers = (errno.EAGAIN, errno.ENOMEM, errno.E2BIG)
    assert [is_resource_shortage(OSError(number, "")) for number in numbers] == [True, True, False]
    assert "(`ulimit -u`" in find_cure(OSError(errno.EAGAIN, ""))
    assert "(`ulimit -u`" in find_cure(RuntimeError("can't start new thread"))
    assert [find_cure(error) for error in (OSError(errno.E2BIG, ""), RuntimeError("no user"))] == ["", ""]


def test_a_fork_server_at_the_limit_of_processes_names_the_limit(monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    said = []
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(fork_server, "_load_for", lambda spec: None)
    server = fork_server._ForkServer.__new__(fork_server._ForkServer)
    monkeypatch.setattr(server, "_refuse", lambda path, text: said.append(text), raising=False)
    server._fork(None, "spec.json", None)
    assert "unavailable; raise the limit of processes (`ulimit -u`" in said[0]


CROWDED = """
import sys, threading
start, refused = threading.Thread.start, []

def refuse(thread):
    if len(refused) < 2:
        refused.append(thread)
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = refuse
from nnilite._keeper.program import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("more", [{}, {"storage": {"kind": "folder", "paths": ["/none"], "parts": ["checkpoints"]}}])
def test_a_machine_without_room_for_a_thread_delays_reports_and_ends_no_trial(tmp_path, more):
    with Bench(tmp_path) as bench:
        spec = bench.spec('echo "final 1" >> "$NNILITE_METRICS"', **more)
        done = subprocess.run([sys.executable, "-c", CROWDED, "run", str(spec)], capture_output=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, b"")
        assert (bench.callback.values, [end.code for end in bench.callback.exits]) == ([1], [0])
        assert "pids.max" in (bench.folder / ".nni" / "keeper.log").read_text()


def test_a_forked_keeper_waits_until_it_can_open_files(monkeypatch):
    pipe, refusals = os.pipe, iter(range(2))

    def refuse():
        if next(refusals, None) is not None:
            raise OSError(errno.ENFILE, "Too many open files in system")
        return pipe()

    monkeypatch.setattr(os, "pipe", refuse)
    monkeypatch.setattr(fork_server, "_leave_streams", lambda: None)
    wake = fork_server._leave_server()
    for end in (wake.writer, wake._reader):
        os.close(end)


def test_every_event_of_a_run_names_it_and_another_run_has_another_name(tmp_path):
    runs = set()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        with Bench(tmp_path / name) as bench:
            bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"; echo out", send_output=True)
            events = [*bench.callback.starts, *bench.callback.exits, *read_events(bench.folder)]
            runs |= {event.run for event in events}
    assert len(runs) == 2
    assert all(len(run) == 16 for run in runs)


def test_what_a_killed_keeper_left_is_delivered_as_of_its_run(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.start("echo up; echo 'intermediate 1' >> \"$NNILITE_METRICS\"; sleep 60")
        bench.wait_for_start()
        keeper.kill()
        keeper.wait()
        bench.deliver()
        assert {event.run for event in [*bench.callback.events, *read_events(bench.folder)]} == {run_of(bench)}
        assert bench.callback.values == [1]


def run_of(bench):
    return bench.inner("started")["run"]


def test_a_bad_specification_is_one_sentence(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.start("true", directory="relative")
        assert keeper.wait(60) == 2
        assert keeper.stderr.read() == "keeper: directory must be an absolute path, not 'relative'\n"


def test_the_specification_may_come_on_standard_input(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.keeper("run", "-")
        keeper.communicate(bench.spec("exit 5").read_text(), timeout=60)
        assert keeper.returncode == 5


def test_sigterm_ends_the_whole_process_group(bench):
    keeper = bench.start('sleep 100 & echo up $!; sleep 100 & "$PYTHON" -c "import time; time.sleep(100)"')
    bench.wait_for_start()
    inner = int(bench.text("stdout").split()[1])
    keeper.terminate()
    assert keeper.wait(60) == 143
    assert not running(inner)
    told = bench.callback.exits[0]
    assert (told.message, told.cause) == ("canceled by SIGTERM", EndCause.INTERRUPTED)


def test_a_sigterm_for_the_command_and_its_keeper_is_the_platforms(bench):
    keeper = bench.start("echo up; exec sleep 60")
    pid = bench.wait_for_start()
    keeper.send_signal(signal.SIGSTOP)
    os.killpg(pid, signal.SIGTERM)
    keeper.send_signal(signal.SIGTERM)
    keeper.send_signal(signal.SIGCONT)
    keeper.wait(60)
    told = bench.callback.exits[0]
    assert (told.message, told.cause) == ("canceled by SIGTERM", EndCause.INTERRUPTED)


def test_a_sigterm_that_reaches_the_command_before_its_keeper_is_the_platforms_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt_run, "_SIGTERM_LAG_S", 100.0)
    wake = Wake()

    def signal_both() -> None:
        """The platform signals one process after the other."""
        pid = bench.wait_for_start()
        os.killpg(pid, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}").exists())
        wake._end(signal.SIGTERM, None)
        wake.poke()

    with Bench(tmp_path) as bench:
        platform = threading.Thread(target=signal_both)
        platform.start()
        attempt_run.run(spec.load(str(bench.spec("echo up; exec sleep 60"))), wake)
        platform.join()
        told = bench.callback.exits[0]
        assert (told.message, told.cause) == ("canceled by SIGTERM", EndCause.INTERRUPTED)


def test_a_command_that_somebody_else_ends_by_sigterm_was_not_interrupted(bench):
    keeper = bench.start("echo up; exec sleep 60")
    os.killpg(bench.wait_for_start(), signal.SIGTERM)
    keeper.wait(60)
    assert (bench.callback.exits[0].code, bench.callback.exits[0].cause) == (-15, EndCause.ITSELF)


def test_a_trial_can_save_in_the_grace_though_its_shell_ends_at_once(tmp_path):
    save = '(trap "sleep 0.3; touch saved; exit" TERM; echo up; while :; do sleep 0.05; done) & wait'
    with Bench(tmp_path) as bench:
        keeper = bench.start(save)
        bench.wait_for_start()
        keeper.terminate()
        keeper.wait(60)
        assert (bench.folder / "saved").exists()


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.start("trap '' TERM; echo up; while :; do sleep 0.05; done", grace_s=0.3)
        pid = bench.wait_for_start()
        began = time.monotonic()
        keeper.terminate()
        keeper.wait(60)
        assert time.monotonic() - began >= 0.3
        assert not running(pid)
        assert bench.callback.exits[0].code == -signal.SIGKILL


def test_what_the_command_leaves_running_is_ended(tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run("sleep 100 & echo $!") == 0
        assert not running(int(bench.text("stdout")))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux tells the environment of others")
def test_a_cancel_ends_what_has_left_the_group_too(tmp_path):
    with Bench(tmp_path) as bench:
        keeper = bench.start("setsid bash -c 'echo up $$; sleep 100' & sleep 100")
        bench.wait_for_start()
        inner = int(bench.text("stdout").split()[1])
        keeper.terminate()
        assert keeper.wait(60) == 143
        assert not running(inner)


def test_an_answer_can_cancel(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["cancel"]
        assert bench.run("sleep 100") == 143
        told = bench.callback.exits[0]
        assert (told.message, told.cause) == ("canceled", EndCause.CANCELED)


def test_a_cancel_right_after_the_start_ends_the_trial(tmp_path):
    for delay_s in (0, 0.02, 0.05, 0.1):
        with Bench(tmp_path / str(delay_s)) as bench:
            bench.spec_file.parent.mkdir()
            keeper = bench.start("sleep 100")
            until(lambda bench=bench: (bench.folder / ".nni" / "lock").exists())
            pause(delay_s, "the keeper is somewhere in its start")
            keeper.terminate()
            assert keeper.wait(60) in (4, 143)
            assert "canceled" in bench.callback.exits[0].message


def test_a_time_limit_ends_the_trial_and_says_so(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("sleep 100", max_duration_s=0.2)
        assert bench.callback.exits[0].message == "exceeded its time limit of 0.2 s"


def test_a_fenced_attempt_is_killed_without_a_grace(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["410"]
        assert bench.run("trap 'touch written; exit' TERM; while :; do sleep 0.05; done") == 5
        assert not (bench.folder / "written").exists()
        assert bench.callback.events == []


def test_an_attempt_is_run_once_however_often_it_is_asked_for(tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run("echo again; exit 3") == 3
        assert bench.run("echo again; exit 3") == 3
        assert bench.text("stdout") == "again\n"


def test_two_keepers_are_never_at_work_on_one_attempt(tmp_path):
    with Bench(tmp_path) as bench:
        first = bench.start("echo up; sleep 100")
        bench.wait_for_start()
        assert bench.run("echo up; sleep 100") == 3
        assert bench.deliver() == 3
        assert first.poll() is None


def test_without_a_callback_everything_stays_in_the_folder(tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"; exit 2", callback=None) == 2
        assert bench.inner("exit")["code"] == 2
        assert bench.callback.requests == 0


def test_reporting_to_standard_output_prints_marked_lines(tmp_path):
    command = "echo 'final 1' >> \"$NNILITE_METRICS\"; echo NNILITE_EVENT '{}'; printf 'no line end'"
    with Bench(tmp_path) as bench:
        keeper = bench.start(command, report="stdout", send_output=True)
        lines = keeper.communicate(timeout=60)[0].splitlines()
        events = [json.loads(line[14:]) for line in lines if line.startswith("NNILITE_EVENT ")]
        assert [event["type"] for event in events] == ["started", "metric", "recap", "exit"]
        assert {"NNILITE_EVENT: {}", "no line end"} <= set(lines)
        assert bench.callback.requests == 0


def test_lines_that_are_no_reports_are_said_at_the_end(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("printf 'accuracy=0.5\\nfinal 1' >> \"$NNILITE_METRICS\"")
        assert bench.callback.values == [1]
        assert "1 of the reported lines cannot be read, the first is 'accuracy=0.5'" in bench.callback.exits[0].message


def test_a_trial_that_deletes_its_folder_still_ends(tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run('rm -rf "$NNI_OUTPUT_DIR"; exit 6') == 6
        assert bench.callback.exits[0].code == 6
        assert "must not delete its $NNI_OUTPUT_DIR" in bench.callback.exits[0].message


def test_the_zipapp_is_the_same_bytes_each_time(tmp_path):
    from nnilite._keeper import build

    first, second = build(tmp_path / "a"), build(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_what_travels_in_each_job_is_small(tmp_path):
    from nnilite._keeper import build, for_one_job
    from nnilite.services.bootstrap import pack_tightly

    one_job = for_one_job(build(tmp_path / "a").read_bytes())
    # PAI-DLC takes 64 kB for a whole job: parameters, code and the command are in it, too.
    assert len(base64.b64encode(pack_tightly(one_job))) < 54_000
    with zipfile.ZipFile(io.BytesIO(one_job)) as archive:
        for name in archive.namelist():
            ast.parse(archive.read(name), name, feature_version=(3, 8))


def test_the_keeper_says_its_version(bench):
    from nnilite._version import __version__

    assert bench.keeper("--version").communicate(timeout=60)[0].startswith(f"nnilite keeper {__version__} ")


def test_folders_with_a_colon_do_not_keep_a_trial_from_its_sdk(tmp_path):
    with Bench(tmp_path) as bench:
        bench.folder = tmp_path / "a:b" / "0"
        bench.folder.parent.mkdir()
        copy = shutil.copy(zipapp(), tmp_path / "a:b" / "keeper.pyz")
        spec = bench.spec(REPORT.format("n.report_final_result(p['x'])"))
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        assert subprocess.run([bench.python, "-I", "-S", copy, "run", spec], env=env).returncode == 0
        assert bench.callback.values == [0.5]


def test_an_sdk_folder_that_others_can_write_is_not_used(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run('echo "$PYTHONPATH"')
        shared = Path(bench.text("stdout").strip().split(":")[0])
        shared.chmod(0o777)
        bench.folder = bench.folder.with_name("1")
        try:
            bench.run('echo "$PYTHONPATH"')
        finally:
            shared.chmod(0o700)
        assert bench.text("stdout").startswith(f"{bench.folder}/.nni/sdk")


def test_a_draft_of_the_sdk_that_another_user_has_put_there_is_not_filled(tmp_path, monkeypatch):
    monkeypatch.setattr(sdk_folder, "BUILD", "0123")
    monkeypatch.setattr(sdk_folder, "_files", lambda: {"nnilite/__init__.py": b""})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = tmp_path / f".nnilite-sdk-0123-{os.geteuid()}.{os.getpid()}.new"
    theirs.mkdir(mode=0o777)
    found = Path(sdk_folder._temporary())
    assert list(theirs.iterdir()) == []
    assert (found.name, found.parent.parent) == ("sdk", tmp_path)
    assert (found / "nnilite" / "__init__.py").is_file()


def test_trials_that_may_not_write_bytecode_find_that_of_the_sdk(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copyfile(zipapp(), tmp_path / "keeper.pyz")
    spec = bench.spec(
        REPORT.format("n.report_final_result([n.__cached__, n.__file__, n.get_next_parameter.__code__.co_filename])")
    )
    command = [bench.python, "-I", "-S", "keeper.pyz", "run", str(spec)]
    assert subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == 0
    ((cached, source, named),) = bench.callback.values
    assert (Path(cached).exists(), source) == (True, named)


def test_a_keeper_that_is_started_by_a_relative_path_brings_the_sdk(bench, tmp_path):
    shutil.copyfile(zipapp(), tmp_path / "keeper.pyz")
    spec = bench.spec(REPORT.format("n.report_final_result(1)"))
    command = [bench.python, "-I", "-S", "keeper.pyz", "run", str(spec)]
    assert subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == 0
    assert bench.callback.values == [1]


@pytest.mark.parametrize(
    ("command", "env", "words"),
    [
        ("python train.py --lr=0.1", {}, ["python", "train.py", "--lr=0.1"]),
        ("./train.sh", {}, ["./train.sh"]),
        ("echo hello", {}, []),
        ("LR=1 python train.py", {}, []),
        ("python train.py > log", {}, []),
        ("python 'my train.py'", {}, []),
        ("python train.py; true", {}, []),
        ("python ~/train.py", {}, []),
        ("python train.py\nls", {}, []),
        ("python train.py", {"BASH_ENV": "file"}, []),
        ("python train.py", {"BASH_FUNC_python%%": "() { :; }"}, []),
        ("python train.py", {"PATH": ""}, []),
        ("", {}, []),
    ],
)
def test_only_a_command_of_plain_words_is_started_without_a_shell(command, env, words):
    assert split_plain_words(command, {"PATH": "/bin", **env}) == words


def test_a_program_that_is_started_without_a_shell_is_told_its_folder(bench):
    assert bench.run("env -0", env={"PWD": "/elsewhere"}) == 0
    assert f"PWD={bench.folder}" in bench.text("stdout").split("\0")


def test_a_script_without_an_interpreter_runs_by_the_shell(bench):
    bench.folder.mkdir(parents=True, exist_ok=True)
    (bench.folder / "train").write_text("echo ran\n")
    (bench.folder / "train").chmod(0o755)
    assert bench.run("./train") == 0
    assert bench.text("stdout") == "ran\n"


@pytest.mark.parametrize(("command", "code"), [("no-such-program --at all", 127), ("./.nni", 126)])
def test_the_shell_says_why_a_program_cannot_be_started(bench, command, code):
    assert bench.run(command) == code
    assert "bash" in bench.text("stderr") or "sh" in bench.text("stderr")
