"""The tuner's first process as a copy of the manager's: what user code finds there, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite.testing import eventually
from nnilite.testing.probes import runs

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="elsewhere a new Python is started"),
]

LOOKING = """
import logging, os, signal, sys
from nni.tuner import Tuner

class Looking(Tuner):
    def update_search_space(self, space):
        pass
    def generate_parameters(self, parameter_id, **kwargs):
        logging.getLogger("looking").warning("a word")
        files = [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
        return {
            "arguments": sys.argv[:1], "main": sys.modules["__main__"].__file__, "path": sys.path,
            "folder": os.getcwd(), "logs": os.environ["NNI_LOG_DIRECTORY"], "name": open("/proc/self/comm").read(),
            "leads": os.getsid(0) == os.getpid(), "read": sys.stdin.read(), "files": len(files),
            "streams": [os.readlink(f"/proc/self/fd/{stream}") for stream in (1, 2)],
            "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
            "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "handlers": len(logging.root.handlers),
        }
"""
KEEPING = """
        from logging.handlers import MemoryHandler
        until_the_end = MemoryHandler(1000, target=logging.FileHandler(os.path.dirname(__file__) + "/kept.log"))
        logging.getLogger("looking").addHandler(until_the_end)
"""
START = """
import asyncio, json, logging, os, sys, threading
from pathlib import Path
from nnilite._engine.messages import Ask
from nnilite._manager.tuner_copy import copy_for_tuner
from nnilite._tuner_host.tuner_client import TunerHost, TunerPlan
from nnilite._tuner_host.tuner_process import TunerProcess

folder = Path(sys.argv[1])
plan = TunerPlan({"className": "looking.Looking", "codeDirectory": str(folder)}, None, {}, folder)

async def nothing(*_):
    return []

async def look(process):
    host = TunerHost(plan, nothing, nothing)
    host.adopt(process)
    await host.open(0)
    assert host.pid == process.pid
    facts = await host.call(Ask((1,), 0))
    await host.close()
    return facts
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    (tmp_path / "looking.py").write_text(LOOKING)
    return tmp_path


def run(folder: Path, program: str) -> list[str]:
    """Return the lines that a program prints. It is a file, as `nnictl` is."""
    script = folder / "program.py"
    script.write_text(START + program)
    command = [sys.executable, str(script), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_user_code_finds_in_a_copy_what_it_finds_in_a_new_python(folder: Path) -> None:
    copied, new = run(
        folder,
        "logging.basicConfig()\ncopy = copy_for_tuner(folder)\n"
        "async def copied():\n    return await look(await copy.connect())\n"
        "async def new():\n    return await look(await TunerProcess.start(folder))\n"
        "print(json.dumps(asyncio.run(copied())))\nprint(json.dumps(asyncio.run(new())))",
    )
    assert json.loads(copied) == json.loads(new)
    words = [line[line.index("WARNING") :] for line in (folder / "log/tuner.log").read_text().splitlines()]
    assert words == ["WARNING (looking) a word"] * 2


def test_the_end_of_a_copy_is_told_as_that_of_another_process(folder: Path) -> None:
    (sentence,) = run(
        folder,
        "copy = copy_for_tuner(folder)\n"
        "async def main():\n    process = await copy.connect()\n    os.kill(process.pid, 9)\n"
        "    print(await process.exit_word())\n    await process.end()\nasyncio.run(main())",
    )
    assert "killed by SIGKILL" in sentence


def test_a_copy_that_nobody_takes_ends_with_the_manager(folder: Path) -> None:
    (pid,) = run(folder, "print(copy_for_tuner(folder)._process.pid)")
    eventually(lambda: not runs(int(pid)))


def test_a_copy_without_a_manager_ends_as_python_ends(folder: Path) -> None:
    (folder / "looking.py").write_text(LOOKING.replace("        logging.", KEEPING + "        logging.", 1))
    run(
        folder,
        "copy = copy_for_tuner(folder)\nTunerHost.close = nothing\n"
        "async def main():\n    await look(await copy.connect())\n    os._exit(0)\nasyncio.run(main())",
    )
    eventually(lambda: (folder / "kept.log").read_text() == "a word\n")


def test_a_module_of_the_users_own_is_not_hidden_by_one_that_the_manager_has_imported(folder: Path) -> None:
    code = folder / "code"
    code.mkdir()
    (folder / "looking.py").rename(code / "looking.py")
    program = (
        "from types import SimpleNamespace\nfrom nnilite._manager.assembly import start_tuner_ahead\n"
        "copy = copy_for_tuner(folder)\n"
        "config = SimpleNamespace(tuner=SimpleNamespace(code_directory=folder / 'code'), assessor=None)\n"
        "async def start():\n    process = await start_tuner_ahead(folder, config, copy)\n"
        "    print(process.pid == copy._process.pid)\n    await process.end()\nasyncio.run(start())"
    )
    (code / "logging").mkdir()
    assert run(folder, program) == ["True"]
    (code / "asyncio.py").touch()
    assert run(folder, program) == ["False"]


def test_a_copy_whose_end_cannot_be_awaited_leaves_no_process(folder: Path) -> None:
    refused = (
        "def refuse(pid):\n    raise PermissionError\nos.pidfd_open = refuse\nassert copy_for_tuner(folder) is None\n"
        "try:\n    os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError:\n    print('none')"
    )
    assert run(folder, refused) == ["none"]


@pytest.mark.parametrize(
    "obstacle",
    [
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "del os.pidfd_open",
        "sys.path.insert(0, '')",
        "(folder / 'log').rmdir()",
    ],
)
def test_where_a_copy_would_not_be_the_same_a_new_python_is_started(folder: Path, obstacle: str) -> None:
    assert run(folder, f"{obstacle}\nprint(copy_for_tuner(folder))") == ["None"]
