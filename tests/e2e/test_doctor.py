"""`nnictl doctor` names the cause of each broken environment, with a cure, and has nothing to say of a sound one."""

from __future__ import annotations

import errno
import json
import re
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite._doctor import this_machine
from nnilite._doctor.rehearsal import find_program, probe
from nnilite._experiments import locking, registry
from nnilite._manager import port_choice
from nnilite.errors import ServiceError
from nnilite.testing.ports import free_port

Found = dict[str, Any]
SOUND = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": f"{sys.executable} trial.py",
    "trialConcurrency": 1,
    "maxTrialNumber": 4,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, without any proxy, and a disk that is good enough, whatever the real one is."""
    monkeypatch.setattr(this_machine, "SLOW_FSYNC_S", 1000.0)
    monkeypatch.setattr(this_machine, "FREE_BYTES", 0)
    monkeypatch.setattr(this_machine, "OPEN_FILES", 1)
    folder = tmp_path / "my 'search' $HOME"
    folder.mkdir()
    (folder / "trial.py").write_text("print(1)")
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return folder


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port on which nobody listens."""
    return free_port()


class Doctor:
    """Runs the doctor in a place, with a config that has some fields changed."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place = place
        self._capsys = capsys

    def looks(self, *options: object, **fields: Any) -> list[Found]:
        path = self.place / "config.yaml"
        path.write_text(yaml.safe_dump({**SOUND, **fields}))
        words = ["doctor", str(path), "--json", *map(str, options)]
        code = run([*words, *([] if "-p" in words else ["-p", "0"])])
        found = json.loads(self._capsys.readouterr().out)
        assert (code != 0) == (found["faults"] > 0)
        return [one for one in found["findings"] if one["level"] != "OK"]

    def check_names(self, check: str, cause: str, cure: str, *options: object, **fields: Any) -> None:
        """Check that the doctor has one finding, or several of one cause, with these words."""
        found = self.looks(*options, **fields)
        assert {one["check"] for one in found} == {check}, found
        assert any(cause in one["what"] and cure in one["cure"] for one in found), found


@pytest.fixture
def doctor(place: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(place, capsys)


def test_a_sound_environment_has_no_finding_and_nothing_is_left(doctor: Doctor) -> None:
    assert doctor.looks() == []
    assert registry.entries() == []
    assert [path.name for path in registry.root().iterdir()] == [".nnilite"]


def test_trials_that_step_back_behind_other_programs(doctor: Doctor) -> None:
    behind = {"platform": "local", "niceness": 3}
    doctor.check_names("config", "niceness 3", "remove it", "--no-trial", trainingService=behind)


# ---------------------------------------------------------------- this machine


def test_a_taken_port(doctor: Doctor, taken: int) -> None:
    doctor.check_names("port", f"port {taken} of 127.0.0.1 is taken", "--port", "--no-trial", "-p", taken)


def test_without_a_port_the_next_free_one_is_found(
    doctor: Doctor, taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (doctor.place / "config.yaml").write_text(yaml.safe_dump(SOUND))
    monkeypatch.setattr(port_choice, "_candidates", lambda directory, first: iter([taken]))
    for words in ([], [str(doctor.place / "config.yaml"), "--no-trial"]):
        assert run(["doctor", "--json", *words]) == 0
        [found] = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["check"] == "port"]
        assert re.search(r"port \d+ is free", found["what"])
        assert f"port {taken} " not in found["what"]


def test_an_address_of_another_machine(doctor: Doctor) -> None:
    found = doctor.looks("--no-trial", "--host", "203.0.113.7")
    assert [(one["check"], "203.0.113.7 is not an address of this machine" in one["what"]) for one in found] == [
        ("port", True)
    ]


def test_a_home_that_cannot_be_written(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", "/proc/nowhere")
    doctor.check_names("disk", "/proc/nowhere cannot be written", "experimentWorkingDirectory", "--no-trial")


def test_a_disk_that_is_nearly_full(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "FREE_BYTES", 1 << 60)
    doctor.check_names("disk", "are free", "free some space", "--no-trial")


def test_a_disk_that_is_full_is_not_the_platform_s_fault(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full/config.json")

    monkeypatch.setattr("nnilite._doctor.this_machine._measure_speed", fail)
    monkeypatch.setattr("nnilite._doctor.one_trial.launch.create", fail)
    disk, platform = doctor.looks()
    assert disk["check"] == "disk"
    assert platform["what"] == "/full/config.json: No space left on device"
    assert disk["cure"] == platform["cure"] == "free some space, or set experimentWorkingDirectory to another disk"


def test_a_disk_whose_fsync_is_slow(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "SLOW_FSYNC_S", 0.0)
    doctor.check_names("disk", "an fsync in", "local disk", "--no-trial")


def test_a_disk_without_locks(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locking, "_lock", refuse)
    doctor.check_names("disk", "cannot be locked", "keep the experiment on a disk with locks", "--no-trial")


def test_a_disk_whose_clock_is_another(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600.0)
    doctor.check_names("clock", "the clock of the disk", "synchronize both clocks", "--no-trial")


def test_a_clock_that_was_never_set() -> None:
    (found,) = this_machine.check_clock(3600.0)
    assert ("1970-01-01" in found.what, "timedatectl" in found.cure) == (True, True)


def test_too_few_open_files(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "OPEN_FILES", 1024)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 4096))
    doctor.check_names("limits", "64 files only", "ulimit -n 1024", "--no-trial")


def test_gpus_that_are_wanted_and_not_there(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise ServiceError("there is no NVIDIA driver")

    monkeypatch.setattr(this_machine, "read_gpus", none)
    local = {"platform": "local", "useActiveGpu": False}
    found = doctor.looks("--no-trial", trialGpuNumber=2, trainingService=local)
    gpus, platform = sorted(found, key=lambda one: one["check"])
    assert (gpus["check"], platform["check"]) == ("gpus", "platform local"), found
    assert "a trial needs 2, and there is no NVIDIA driver" in gpus["what"]
    assert "nvidia-smi" in gpus["cure"]


def test_a_proxy_that_does_not_answer(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, closed: int) -> None:
    monkeypatch.setenv("https_proxy", f"http://user:secret@127.0.0.1:{closed}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    doctor.check_names(
        "proxy", f"https_proxy is 127.0.0.1:{closed}, and does not answer", "unset https_proxy", "--no-trial"
    )


def test_a_proxy_for_loopback_too(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{taken}")
    doctor.check_names("proxy", "also for 127.0.0.1", "NO_PROXY", "--no-trial")


# ---------------------------------------------------------------- the configuration


def test_a_misspelt_field(doctor: Doctor) -> None:
    doctor.check_names("config", "trialConcurency", "did you mean", trialConcurency=3)


def test_a_platform_that_is_not_installed(doctor: Doctor) -> None:
    doctor.check_names("config", "clod", "", trainingService={"platform": "clod"})


def test_a_plugin_whose_library_is_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("nnilite_redis", "redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    found = doctor.looks(trainingService={"platform": "redis"})
    assert any("nnilite[redis]" in one["what"] + one["cure"] for one in found), found


def test_arguments_that_the_tuner_does_not_have(doctor: Doctor) -> None:
    doctor.check_names("config", "sed", "", tuner={"name": "TPE", "classArgs": {"sed": 1}})


def test_a_search_space_that_is_hardly_meant(doctor: Doctor) -> None:
    space = {"x": {"_type": "quniform", "_value": [0, 1, 5]}}
    doctor.check_names("search space", "wider than its range", "make the step smaller", "--no-trial", searchSpace=space)


def test_code_that_is_too_large_to_send(doctor: Doctor, closed: int) -> None:
    (doctor.place / "more.py").write_text("")
    ray = {"platform": "ray", "address": f"http://127.0.0.1:{closed}"}
    found = doctor.looks("--no-trial", trainingService=ray, codeLimits={"maxFiles": 1})
    assert any(one["check"] == "code" and ".nniignore" in one["what"] + one["cure"] for one in found), found


# ---------------------------------------------------------------- the platforms


def test_a_cluster_without_a_kubeconfig(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(doctor.place / "none"))
    doctor.check_names(
        "platform kubernetes", "kubeconfig", "", trainingService={"platform": "kubernetes", "dockerImage": "x"}
    )


def test_a_redis_server_that_does_not_answer(doctor: Doctor, closed: int) -> None:
    redis = {"platform": "redis", "redis": f"redis://127.0.0.1:{closed}"}
    doctor.check_names("platform redis", f"127.0.0.1:{closed}", "", trainingService=redis)


def test_a_host_that_does_not_take_the_password(doctor: Doctor, server: int) -> None:
    service = remote(server)
    doctor.check_names("platform remote", "the password is wrong", "`ssh USER@HOST` works", trainingService=service)


def test_a_host_whose_key_is_not_known(doctor: Doctor, server: int) -> None:
    service = {**remote(server), "hostKeyPolicy": "strict"}
    doctor.check_names("platform remote", "host key", "ssh-keyscan", trainingService=service)


def test_a_program_that_the_worker_does_not_have(doctor: Doctor) -> None:
    doctor.check_names(
        "platform local", "the worker does not have pythn3", "trialCommand", trialCommand="pythn3 trial.py"
    )


def test_a_worker_that_cannot_report(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its way back is blocked: the trial ends well, and its result goes nowhere."""
    blocked = probe("sh").replace('>> "$NNILITE_METRICS"', ">> /dev/null")
    monkeypatch.setattr("nnilite._doctor.rehearsal.probe", lambda command: blocked)
    doctor.check_names("platform local", "its result did not come back", "disk of its worker")


def remote(port: int) -> dict[str, Any]:
    machine = {"host": "127.0.0.1", "port": port, "user": "me", "password": "no", "pythonPath": "/usr/bin"}
    return {"platform": "remote", "machineList": [machine]}


@pytest.fixture
def server() -> Iterator[int]:
    """An SSH server that nobody knows."""
    import threading

    key = paramiko.RSAKey.generate(2048)
    open_transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                transport = paramiko.Transport(connection)
                transport.add_server_key(key)
                open_transports.append(transport)
                try:
                    transport.start_server(server=paramiko.ServerInterface())
                except (paramiko.SSHException, EOFError, OSError):
                    continue

        threading.Thread(target=serve, daemon=True).start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
    for transport in open_transports:
        transport.close()


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python3 trial.py", "python3"),
        ("LR=0.1 A=b ./run.sh x=1", "./run.sh"),
        ("'my program' $HOME", "my program"),
        ("$PYTHON trial.py", "sh"),
        ("(cd x; make)", "sh"),
        ("echo 'no end", "sh"),
        ("", "sh"),
    ],
)
def test_the_program_that_a_command_begins_with(command: str, program: str) -> None:
    assert find_program(command) == program


def test_for_people_each_finding_has_its_cure_below(
    place: Path, capsys: pytest.CaptureFixture[str], taken: int
) -> None:
    assert run(["doctor", "-p", str(taken)]) == 1
    lines = capsys.readouterr().out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("FAULT    port: ")]
    assert lines[at + 1].startswith("         -> choose another with --port")
    assert lines[-1] == "1 fault."


# ---------------------------------------------------------------- the user's own command

RESULT = "echo 'final 0.25' >> \"$NNILITE_METRICS\""


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (f"{RESULT}", None),
        (f"{RESULT}; sleep 600", None),
        ("echo no such data >&2; exit 3", "ended as FAILED: exit code 3"),
        ("true", "ended well, but without a result"),
    ],
)
def test_the_users_own_command_is_run_for_some_seconds_if_asked(
    doctor: Doctor, command: str, cause: str | None
) -> None:
    found = doctor.looks("--run", "2", trialCommand=command)
    assert [one["check"] for one in found] == (["platform local"] if cause else [])
    assert all(cause in one["what"] and one["cure"] for one in found if cause)
    assert registry.entries() == []
