"""The preloader in trouble: what it refuses, and that no trial is lost with it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

import processes
from nnilite._keeper.command_start import EndUnknown
from nnilite._keeper.preloaded_start import PreloadedCommand
from nnilite.testing import eventually
from preloader_bench import PARENT, Server
from waiting import pause

pytestmark = pytest.mark.process

COMMAND = f"{sys.executable} trial.py"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    code = tmp_path / "code"
    code.mkdir()
    with Server(tmp_path / "server", code) as server:
        yield server


def write(server: Server, text: str) -> None:
    (server.code / "trial.py").write_text(PARENT + text)


def preload(server: Server) -> int:
    """Start a preloader, and return its process id."""
    assert server.preload(COMMAND, ["json"])["event"] == "preloaded"
    return pid_of_preloader(server)


def pid_of_preloader(server: Server) -> int:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return next(int(pid) for pid in children if processes.read(pid, "cmdline").startswith(b"nnilite preload"))


def install(server: Server, name: str, text: str) -> str:
    """Put a module where installed ones are. Return the command that can import it."""
    place = server.code.parent / "site-packages"
    place.mkdir()
    (place / f"{name}.py").write_text(text)
    return f"PYTHONPATH={place} {COMMAND}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_library", "imported by"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", "a thread"),
        ("import subprocess; child = subprocess.Popen(['sleep', '1'])", "has started a process"),
        ("import os; os._exit(1)", "Python ended while it imported mine"),
    ],
)
def test_what_forks_could_not_use_is_refused_by_its_name(server: Server, text: str, said: str) -> None:
    event = server.preload(install(server, "mine", text), ["mine"])
    assert event["event"] == "not preloaded"
    assert "mine" in event["message"]
    assert said in event["message"]
    assert event["message"].endswith("out of `preload`")


def test_code_of_the_user_is_refused(server: Server) -> None:
    (server.code / "mine.py").write_text("")
    event = server.preload(f"PYTHONPATH={server.code} {COMMAND}", ["mine"])
    assert event["message"].startswith(f"mine is not an installed module but lies in {server.code}")
    event = server.preload(f"PYTHONPATH={server.code} {COMMAND}", ["json", "no_such_module"])
    assert event["message"].startswith(f"no_such_module cannot be imported by {sys.executable}: ModuleNotFoundError")


@pytest.mark.parametrize(
    "command", ["./trial.sh", "python3 -c pass", "python3 a.py > b", "python3 'a b.py'", "bash a.py"]
)
def test_a_command_that_is_no_plain_start_of_python_is_refused(server: Server, command: str) -> None:
    assert f"{command!r} does not simply start Python" in server.preload(command, ["json"])["message"]


def test_trials_start_afresh_after_a_refusal(server: Server) -> None:
    write(server, "print(1)")
    assert server.preload(COMMAND, ["no_such_module"])["event"] == "not preloaded"
    end = server.run(COMMAND)
    assert (end.code, end.stdout, end.is_preloaded) == (0, "1\n", False)


def test_a_preloader_that_was_killed_is_replaced_and_its_trials_go_on(server: Server) -> None:
    write(server, "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint(1)\nraise SystemExit(3)")
    pid = preload(server)
    place = server.begin(COMMAND)
    eventually((place / "parent").exists)
    os.kill(pid, signal.SIGKILL)
    assert server.event()["event"] == "preloaded"
    assert pid_of_preloader(server) != pid
    (server.code / "go").touch()
    end = server.end(place)
    assert (end.code, end.stdout, end.is_preloaded) == (3, "1\n", True)
    assert server.run(COMMAND).is_preloaded


@pytest.mark.parametrize("own", [None, 3])
def test_the_end_of_a_trial_without_a_preloader_is_what_it_has_said_itself(own: int | None) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with ours, theirs, Popen(["sleep", "100"]) as child:
        command = PreloadedCommand(child.pid, ours)
        assert command.poll() is None
        if own is not None:
            theirs.send(f"own {own}".encode())
        theirs.close()
        assert command.poll() is None
        child.kill()
        child.wait()
        with contextlib.nullcontext() if own else pytest.raises(EndUnknown, match="the preloader was killed, and with"):
            assert command.poll() == own
        assert not command.files


def test_ends_are_seen_while_the_preloader_is_stopped(server: Server) -> None:
    write(server, "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nos.kill(os.getpid(), 9)")
    pid = preload(server)
    place = server.begin(COMMAND)
    eventually((place / "parent").exists)
    os.kill(pid, signal.SIGSTOP)
    (server.code / "go").touch()
    assert server.end(place).code == -9
    late = server.run(COMMAND)  # the preloader does not answer
    assert (late.code, late.is_preloaded) == (-9, False)
    assert "the preloader has not answered" in late.noted
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: not Path(f"/proc/{pid}/task/{pid}/children").read_text())  # the late fork has left, too
    assert not (server.folder / "trials/3").exists()


def test_a_preloader_that_is_killed_again_and_again_is_given_up(server: Server) -> None:
    write(server, "print(1)")
    pid = preload(server)
    for _ in range(3):
        os.kill(pid, signal.SIGKILL)
        assert server.event()["event"] == "preloaded"
        pid = pid_of_preloader(server)
    os.kill(pid, signal.SIGKILL)
    assert "again and again" in server.event()["message"]
    assert not server.run(COMMAND).is_preloaded


def test_a_fork_server_goes_on_if_it_cannot_replace_its_preloader(server: Server) -> None:
    write(server, "print(1)")
    pid = preload(server)
    assert server.run(COMMAND).is_preloaded
    keeper = (server.folder / "keeper.pyz").rename(server.folder / "aside")
    os.kill(pid, signal.SIGKILL)
    event = server.event()
    keeper.rename(server.folder / "keeper.pyz")
    assert (event["event"], "keeper.pyz" in event["message"]) == ("not preloaded", True)
    end = server.run(COMMAND)
    assert (end.stdout, end.is_preloaded) == ("1\n", False)


def test_the_preloader_ends_with_the_fork_server_and_after_its_trials(server: Server) -> None:
    write(server, "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nraise SystemExit(3)")
    pid = preload(server)
    place = server.begin(COMMAND)
    eventually((place / "parent").exists)
    server.process.kill()
    server.process.wait()
    pause(0.2, "a preloader that leaves its trial alone would have ended by now")
    assert Path(f"/proc/{pid}").exists()
    (server.code / "go").touch()
    eventually((place / ".nni/exit").exists)
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert server.read(place).code == 3


@pytest.mark.parametrize("env", [{"LEVEL": "4"}, {"PYTHONHASHSEED": "1"}, {"OMP_NUM_THREADS": "7"}, {"LEVEL": None}])
def test_another_environment_starts_afresh(server: Server, env: dict[str, str | None]) -> None:
    write(server, "import os; print(os.environ.get('LEVEL'), os.environ.get('CUDA_VISIBLE_DEVICES'))")
    preload(server)
    assert not server.run(COMMAND, env=env).is_preloaded
    end = server.run(COMMAND, env={"CUDA_VISIBLE_DEVICES": "1,3", "NNI_MORE": "x"})
    assert (end.stdout, end.is_preloaded) == ("3 1,3\n", True)


def test_a_file_in_the_place_of_a_preloaded_module_starts_afresh(server: Server) -> None:
    (server.code / "json.py").write_text("mine = 1")
    write(server, "import json; print(json.mine)")
    preload(server)
    end = server.run(COMMAND)
    assert (end.stdout, end.is_preloaded) == ("1\n", False)
    assert "json.py takes the place of a preloaded module" in end.noted


def test_a_trial_is_found_by_its_environment_and_ended(server: Server) -> None:
    write(server, "import os, time\nif os.fork() == 0:\n    os.setsid()\nprint(1, flush=True)\ntime.sleep(1000)")
    preload(server)
    place = server.begin(COMMAND)
    eventually(lambda: _read(place / "trial.stdout") == b"1\n1\n")
    server.order({"end": f"nni-e-{place.parent.name}-0"})
    assert server.event()["event"] == "told"
    assert server.end(place).code == -15
    assert processes.with_variable(f"NNI_SYS_DIR={place}") == []


def test_a_fork_does_not_touch_each_preloaded_module(tmp_path: Path) -> None:
    # The names and objects of the many are in some 1,700 pages of memory.
    few, many = (_count_page_faults(tmp_path / str(number), number) for number in (1, 50_000))
    assert many < few + 500


def _count_page_faults(folder: Path, modules: int) -> int:
    """Return the page faults of a trial that does nothing, where so many modules are preloaded."""
    (folder / "code").mkdir(parents=True)
    with Server(folder / "server", folder / "code") as server:
        text = f"import sys; sys.modules.update({{f'mine.{{n}}': type(sys)(f'mine.{{n}}') for n in range({modules})}})"
        command = install(server, "mine", text)
        assert server.preload(command, ["mine"])["event"] == "preloaded"
        write(server, "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)")
        end = server.run(command)
        assert end.is_preloaded
        return int(end.stdout)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_random_numbers_differ_from_trial_to_trial(server: Server) -> None:
    write(
        server,
        "import random, numpy, multiprocessing.process as p\n"
        "print(random.random(), numpy.random.random(), bytes(p.current_process().authkey))",
    )
    assert server.preload(COMMAND, ["numpy", "multiprocessing"])["event"] == "preloaded"
    words = [server.run(COMMAND).stdout.split(None, 2) for _ in range(3)]
    assert all(len(set(column)) == 3 for column in zip(*words, strict=True)), words
