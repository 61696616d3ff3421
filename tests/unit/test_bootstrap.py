"""The command that becomes the keeper on platforms that only run a command: run for real, by all Pythons there are."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zlib

import pytest

from keeper_bench import HOSTILE, JOB, LIMIT_S, TOKEN, Bench, pythons, zipapp
from nnilite._keeper import bootstrap_program, bootstrap_shell
from nnilite.codedir import pack as pack_code
from nnilite.records import EndCause, Exited, Output, Reported
from nnilite.services.bootstrap import (
    Instructions,
    JobProcess,
    Supply,
    command,
    environment,
    for_one_job,
    pack,
    pack_tightly,
    python_command,
)
from nnilite.services.keeper_folder import read_log
from nnilite.testing import eventually
from nnilite.testing.listener import Handler, Listener

pytestmark = pytest.mark.process

REPORT = '''"$PYTHON" -c "import nnilite; nnilite.report_final_result(7)"'''
SHA256 = hashlib.sha256(zipapp().read_bytes()).hexdigest()


_ALONE = JobProcess()


class JobBench(Bench):
    """A platform that runs a command: a folder that is mounted, environment variables, and a log."""

    def __init__(self, tmp_path, python=sys.executable):
        super().__init__(tmp_path, python)
        self.mount = tmp_path / HOSTILE / "mount"
        self.mount.mkdir(parents=True)
        self.work = tmp_path / HOSTILE / "work"
        self.folder = self.work
        self.message_file = tmp_path / "message"
        programs = self.path(tmp_path / "bin", python3=python)
        self.environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
        self.keeper_supply = Supply(file="keeper", packed=True)
        self.keeper_sha256 = SHA256
        (self.mount / "keeper").write_bytes(pack(zipapp()))

    @staticmethod
    def path(folder, **programs):
        """A PATH on which these are all the Pythons."""
        folder.mkdir()
        for name, place in programs.items():
            (folder / name).symlink_to(place)
        for name in ("date", "sleep"):
            (folder / name).symlink_to(shutil.which(name))
        return str(folder)

    def instructions(self, text, supply=None, code_hash="", settings=(), **spec):
        spec = json.loads(self.spec(text, **spec).read_text())
        return Instructions(spec, self.keeper_supply, self.keeper_sha256, supply, code_hash, **dict(settings)).packed()

    def submit(self, text="", *, process=_ALONE, settings=(), **spec):
        """Start a job whose specification is on the mount."""
        (self.mount / "spec").write_bytes(self.instructions(text, settings=settings, **spec))
        return self.launch(str(self.mount), process=process)

    def launch(self, source, **more):
        words = command(source, str(self.work), message_file=str(self.message_file), **more)
        pipe = subprocess.PIPE
        job = subprocess.Popen(words, env=self.environment, stdout=pipe, stderr=pipe, text=True)
        self._keepers.append(job)
        return job

    @property
    def word(self):
        """What the platform is told of the job's end."""
        return json.loads(self.message_file.read_text())["nnilite"]


@pytest.fixture
def bench(tmp_path):
    with JobBench(tmp_path) as bench:
        yield bench


class Objects(Handler):
    """An object store; `owner`: the content by path, or a list of statuses and contents to be answered in turn."""

    def do_GET(self):
        found = self.owner.get(self.path.partition("?")[0], 404)
        if isinstance(found, list):
            found = found.pop(0)
        if found == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"PK")
            self.close_connection = True
        elif isinstance(found, int):
            self.send(found, "text/plain", b"no")
        else:
            self.send(200, "application/octet-stream", found)


@pytest.fixture
def store():
    objects = {}
    server = Listener(Objects, objects)
    server.start()
    yield server.url, objects
    server.stop()


def package(tmp_path):
    """A code package."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "value.txt").write_text("12")
    return pack_code(tmp_path / "code", tmp_path / "packed")


@pytest.mark.parametrize("python", pythons())
def test_a_mounted_folder_gives_specification_and_keeper(tmp_path, python):
    with JobBench(tmp_path, python) as bench:
        assert bench.submit(REPORT).wait(LIMIT_S) == 0
        assert bench.callback.values == [7]
        assert bench.word["code"] == 0
        assert bench.word["started"] <= bench.word["ended"]
        assert [path.name for path in bench.work.glob(".boot-*")] == []


def test_environment_variables_give_all_and_the_trial_does_not_get_them(bench, tmp_path):
    code = package(tmp_path)
    bench.keeper_supply = Supply(variable="KEEPER", packed=True)
    look = 'env > env; [ "$(cat value.txt)" = 12 ]'
    instructions = bench.instructions(look, Supply(variable="CODE"), code.hash)
    for name, data in (("START", instructions), ("KEEPER", pack(zipapp())), ("CODE", code.archive.read_bytes())):
        bench.environment |= environment(name, data)
    assert bench.launch("env:START").wait(LIMIT_S) == 0
    assert not {"START", "KEEPER", "CODE"} & {
        line.partition("=")[0] for line in (bench.work / "code" / "env").read_text().splitlines()
    }


def test_long_data_is_split_over_several_variables():
    data = os.urandom(200_000)
    found = environment("NAME", data)
    assert list(found) == ["NAME", "NAME_1", "NAME_2"]
    assert base64.b64decode("".join(found.values())) == data
    assert all(len(value) < 128_000 for value in found.values())


def test_an_object_store_gives_all_and_is_asked_again_when_it_is_in_trouble(bench, tmp_path, store):
    url, objects = store
    code = package(tmp_path)
    bench.keeper_supply = Supply(url=f"{url}/keeper?signature=secret")
    objects["/keeper"] = [503, "cut", zipapp().read_bytes()]
    objects["/code"] = code.archive.read_bytes()
    objects["/spec"] = bench.instructions('[ "$(cat value.txt)" = 12 ]', Supply(url=f"{url}/code"), code.hash)
    bench.environment["SPEC_URL"] = f"{url}/spec?signature=secret"
    job = bench.launch("url:SPEC_URL")
    output, complaint = job.communicate(timeout=60)
    assert job.returncode == 0, complaint
    assert "the keeper cannot be fetched from storage yet: HTTP Error 503" in complaint
    assert "secret" not in output + complaint


def test_a_large_package_on_mounted_storage_is_not_copied(bench, tmp_path):
    code = package(tmp_path)
    shutil.copy(code.archive, bench.mount)
    bench.keeper_supply = Supply(file=str(bench.mount / "keeper"), packed=True)
    instructions = bench.instructions("cat value.txt; sleep 60", Supply(file=f"{code.hash}.tar.gz"), code.hash)
    bench.environment |= environment("START", instructions)
    job = bench.launch("env:START", files=str(bench.mount))
    eventually(lambda: bench.text("stdout") == "12")
    assert not list(bench.work.rglob("*.tar.gz"))
    job.terminate()
    assert job.wait(LIMIT_S) == 143


def test_the_manager_gives_the_code_to_the_keeper(bench, tmp_path):
    code = package(tmp_path)
    bench.callback.package = code.archive.read_bytes()
    assert bench.submit('[ "$(cat value.txt)" = 12 ]', code={"download": code.hash}).wait(LIMIT_S) == 0


def test_the_address_of_the_manager_may_lie_beside_the_specification(bench):
    (bench.mount / "callback").write_text(bench.callback.url)
    assert bench.submit(REPORT, callback="http://127.0.0.1:9", callback_file="callback").wait(LIMIT_S) == 0
    assert bench.callback.values == [7]


def test_the_keeper_has_the_process_of_the_job_and_gets_its_signals(bench):
    job = bench.submit("trap 'echo saved; exit 3' TERM; echo up $PPID; while :; do sleep 0.1; done")
    bench.wait_for_start()
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait(LIMIT_S) == 3
    assert bench.text("stdout").split() == ["up", str(job.pid), "saved"]
    assert bench.word["code"] == 3


def test_a_job_that_is_ended_while_it_waits_for_the_keeper_says_so(bench, store):
    url, objects = store
    bench.keeper_supply = Supply(url=f"{url}/keeper")
    objects["/keeper"] = 503
    job = bench.submit("true")
    eventually(lambda: "503" in job.stderr.readline())
    job.terminate()
    assert job.wait(LIMIT_S) == 143
    [end] = read_log(job.stdout.read())
    assert (end.code, end.message) == (None, "canceled before its command was started")
    assert bench.word["message"] == end.message


class EndedWithin(Exception):
    """Whose destructor runs when the platform ends the job."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        os.getpid()  # so that the handler runs in here


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_job_that_is_ended_while_python_drops_exceptions_ends_all_the_same(monkeypatch):
    def fetch():
        EndedWithin()
        raise OSError("busy")

    monkeypatch.setattr(bootstrap_program, "_SIGTERMS", [])
    before = signal.signal(signal.SIGTERM, bootstrap_program._stop)
    try:
        with pytest.raises(bootstrap_program.Stopped, match="canceled before"):
            bootstrap_program.patiently("the code", "storage", fetch, 60)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_keeper_for_one_job_that_is_packed_tightly_runs_it(bench):
    keeper = for_one_job(zipapp().read_bytes())
    (bench.mount / "keeper").write_bytes(pack_tightly(keeper))
    bench.keeper_sha256 = hashlib.sha256(keeper).hexdigest()
    assert bench.submit(REPORT).wait(60) == 0
    assert bench.callback.values == [7]


def test_a_keeper_that_cannot_be_unpacked_is_told_in_one_sentence(bench):
    (bench.mount / "keeper").write_bytes(b"BZh9 is how it begins")
    assert bench.submit("true").wait(LIMIT_S) == 4
    assert "the keeper that the platform has handed over cannot be unpacked: " in bench.word["message"]


@pytest.mark.parametrize(
    ("supply", "sentence"),
    [
        (Supply(file="keeper"), "the keeper that the platform has handed over is damaged, or not ours"),
        (Supply(variable="NOWHERE"), "the platform has not handed over the environment variable NOWHERE"),
        (Supply(url="file:///etc/passwd"), "the platform has handed over something that is not a URL"),
        (Supply(url="http://127.0.0.1:9/a b?s=secret"), "the platform has handed over something that is not a URL"),
    ],
)
def test_what_is_wrong_with_the_keeper_is_told_in_one_sentence(bench, supply, sentence):
    bench.keeper_supply = supply
    job = bench.submit("true")
    output, complaint = job.communicate(timeout=60)
    assert job.returncode == 4
    assert complaint == sentence + "\n"
    [end] = read_log(output)
    assert isinstance(end, Exited)
    assert (end.code, end.message, end.cause) == (None, sentence, EndCause.MACHINE)
    assert bench.word == {"code": None, "message": sentence, "cause": "machine"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"{}", "is damaged: Error -3"), (zlib.compress(b"no JSON"), "is damaged: Expecting value")],
)
def test_a_damaged_specification_is_told_in_one_sentence(bench, content, sentence):
    (bench.mount / "spec").write_bytes(content)
    job = bench.launch(str(bench.mount))
    assert job.wait(LIMIT_S) == 4
    assert sentence in bench.word["message"]


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(bench):
    bench.work.write_text("a file")
    job = bench.submit("true")
    assert job.wait(LIMIT_S) == 4
    assert bench.word["message"] == f"the job's folder {bench.work} cannot be written: File exists"


def test_code_that_is_not_there_is_told_to_the_manager(bench, tmp_path, store):
    url, _ = store
    bench.mount.joinpath("spec").write_bytes(bench.instructions("true", Supply(url=f"{url}/code"), "0" * 64))
    assert bench.launch(str(bench.mount)).wait(LIMIT_S) == 4
    [end] = bench.callback.exits
    assert end.code is None
    assert "the code cannot be fetched from storage: HTTP Error 404" in end.message
    assert bench.word["message"] == end.message


def test_what_a_manager_that_is_away_did_not_take_stands_in_the_log(bench):
    bench.callback.script = ["forever 500"]
    text = "echo out; echo err >&2; " + REPORT
    job = bench.submit(text, send_output=True, linger_s=0.5)
    output, complaint = job.communicate(timeout=60)
    assert job.returncode == 0, complaint
    events = read_log(output)
    assert {event.index: event.value for event in events if isinstance(event, Reported)} == {0: 7}  # again by the recap
    assert [event.data for event in events if isinstance(event, Output)] == [b"out\n", b"err\n"]
    assert [event.code for event in events if isinstance(event, Exited)] == [0]


def test_where_logs_go_with_their_job_nothing_is_given_up_early(bench):
    bench.callback.script = ["500"] * 6
    assert bench.submit(REPORT, settings={"log_stays": False}, linger_s=60).wait(60) == 0
    assert bench.callback.values == [7]


def test_a_job_that_is_being_ended_does_not_wait_for_a_manager_that_takes_nothing(bench):
    bench.callback.script = ["forever 500"]
    job = bench.submit("echo up; sleep 60", settings={"log_stays": False}, linger_s=1000, grace_s=0.1)
    bench.wait_for_start()
    job.terminate()
    output, _ = job.communicate(timeout=60)
    assert [end.code for end in read_log(output) if isinstance(end, Exited)] == [-15]


def test_the_end_is_printed_where_the_platform_tells_no_exit_code_though_the_manager_knows_it(bench):
    output, _ = bench.submit("exit 3", settings={"log_tells_end": True}).communicate(timeout=60)
    assert [end.code for end in bench.callback.exits] == [3]
    assert [(type(event), event.code) for event in read_log(output)] == [(Exited, 3)]


def test_only_the_first_process_of_the_role_that_reports_speaks_for_the_trial(bench):
    roles = {"worker": {"reports": True}, "ps": {"reports": False, "spec": {"command": "echo ps"}}}
    for role, rank, printed in (("worker", "1", "7"), ("ps", "0", "ps")):
        bench.environment["RANK_OF_IT"] = rank
        job = bench.submit(
            "echo 7",
            process=JobProcess(role, "RANK_OF_IT"),
            settings={"roles": roles, "shared": True},
            send_output=True,
        )
        output, _ = job.communicate(timeout=60)
        assert printed in output.splitlines()
        assert (bench.work / f"{role}-{rank}" / "trial.stdout").read_text() == f"{printed}\n"
    assert bench.callback.requests == 0


def test_code_is_prepared_for_a_container_that_runs_a_command_of_the_platform(bench, tmp_path):
    code = package(tmp_path)
    bench.callback.package = code.archive.read_bytes()
    assert bench.submit("exit 9", process=JobProcess(task="prepare"), code={"download": code.hash}).wait(LIMIT_S) == 0
    assert (bench.work / "code" / "value.txt").read_text() == "12"
    assert bench.callback.exits == []


def test_a_job_that_is_started_anew_goes_on_after_what_the_one_before_has_reported(bench):
    trial = (
        '"$PYTHON" -c "import nnilite, os; nnilite.report_intermediate_result(int(os.environ[\'N\']))"; '
        "echo up; [ $N = 1 ] || sleep 60"
    )
    resume = JobProcess(task="resume")
    bench.environment["N"] = bench.environment["ADAPTDL_NUM_RESTARTS"] = "0"
    first = bench.submit(trial, process=resume)
    eventually(lambda: bench.callback.values == [0])
    first.terminate()
    assert first.wait(LIMIT_S) == 143
    assert bench.callback.exits == []
    bench.environment["N"] = bench.environment["ADAPTDL_NUM_RESTARTS"] = "1"
    assert bench.submit(trial, process=resume).wait(LIMIT_S) == 0
    assert bench.callback.values == [0, 1]
    assert [end.code for end in bench.callback.exits] == [0]


@pytest.mark.parametrize(
    ("old", "found"), [(None, ""), ("echo 2.7 0", ", python3 is 2.7"), ("echo 3.6 0", ", python3 is 3.6")]
)
def test_an_image_without_a_python_that_will_do_says_so(bench, tmp_path, monkeypatch, old, found):
    text = shell_of_another_image()
    monkeypatch.setattr("nnilite.services.bootstrap.bootstrap_shell", lambda: text)
    programs = tmp_path / "image"
    bench.environment["PATH"] = bench.path(programs)
    if old:
        (programs / "python3").write_text(f"#!/bin/sh\n{old}\n")
        (programs / "python3").chmod(0o755)
    job = bench.submit("true")
    output, complaint = job.communicate(timeout=60)
    sentence = f"the image has no Python 3.8 or later, which every job needs{found}; install one in the image"
    assert (job.returncode, complaint) == (4, sentence + "\n")
    assert [end.message for end in read_log(output)] == [sentence]
    assert bench.word == {"code": None, "message": sentence}


def shell_of_another_image():
    """The shell's part without the places where this machine has a Python."""
    return bootstrap_shell().replace(" /usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python", "")


def test_a_python_that_is_too_old_is_passed_over(bench, tmp_path):
    programs = tmp_path / "image"
    bench.environment["PATH"] = bench.path(programs, python=sys.executable)
    (programs / "python3").write_text("#!/bin/sh\necho 3.7 0\n")
    (programs / "python3").chmod(0o755)
    assert bench.submit(REPORT).wait(LIMIT_S) == 0


def test_the_command_is_short_holds_no_secret_and_nothing_that_platforms_take_for_variables_of_theirs(bench):
    words = command("/a", "/b")
    assert sum(map(len, words)) < 8_000
    assert TOKEN not in " ".join(words)
    assert JOB not in " ".join(words)
    assert not [word for word in words if "$(" in word or "$$" in word or "<%" in word or "${{" in word]


def test_the_keeper_fits_into_one_environment_variable():
    assert list(environment("KEEPER", pack_tightly(for_one_job(zipapp().read_bytes())))) == ["KEEPER"]


def test_a_long_message_stays_readable_for_a_platform_that_keeps_little(bench):
    bench.submit('"$PYTHON" -c "raise SystemExit(\'\u00fc\' * 5000)"').wait(LIMIT_S)
    assert len(bench.message_file.read_bytes()) <= 4000
    assert bench.word["code"] == 1
    assert bench.word["message"].endswith("\u00fc")


def test_any_program_for_python_can_be_made_a_command():
    words = python_command("import sys; print(sys.argv[1:], __name__)", "it's", "a `b` $c")
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == (
        "[\"it's\", 'a `b` $c'] __main__\n"
    )


def test_a_package_that_is_not_what_its_name_says_is_told_to_the_manager(bench):
    other = io.BytesIO()
    with tarfile.open(fileobj=other, mode="w:gz"):
        pass
    (bench.mount / "code").write_bytes(other.getvalue())
    bench.mount.joinpath("spec").write_bytes(bench.instructions("true", Supply(file="code"), "0" * 64))
    assert bench.launch(str(bench.mount)).wait(LIMIT_S) == 4
    assert "its content does not match its name" in bench.callback.exits[0].message
