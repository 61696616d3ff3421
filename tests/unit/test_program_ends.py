"""How programs end: with their exit code, all output, and after what plugins have left to be done at the exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LEFT = """
import atexit, runpy, sys
from nnilite._manager import standby


class Part:
    def __del__(self):
        print("it is taken apart")

standby.part = Part()
standby.await_arguments = lambda: atexit.register(print, "it is done") and []
sys.argv[1:] = ["--stand-by", "1"]
runpy.run_module("nnilite._manager", run_name="__main__", alter_sys=True)
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def test_a_manager_that_is_told_nothing_ends_well() -> None:
    done = run("-m", "nnilite._manager", "--stand-by", "1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_manager_that_cannot_begin_says_so_and_fails(tmp_path: Path) -> None:
    done = run("-m", "nnilite._manager", "--directory", str(tmp_path / "nothing"), "--mode", "resume")
    assert done.returncode == 1
    assert "nothing" in done.stderr


def test_what_a_plugin_has_left_for_the_exit_is_done_and_modules_stay_as_they_are() -> None:
    done = run("-c", LEFT)
    assert (done.returncode, done.stdout) == (0, "it is done\n"), done.stderr


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("lambda: 3", 3, ""),
        ("lambda: sys.exit(2)", 2, ""),
        ("sys.exit", 0, ""),
        ("lambda: sys.exit('it is refused')", 1, "it is refused"),
        ("lambda: 1 / 0", 1, "ZeroDivisionError"),
        ("lambda: print('a') or threading.Thread(target=lambda: print('b')).start() or 0", 0, ""),
    ],
)
def test_a_program_ends_with_its_exit_code(program: str, code: int, said: str) -> None:
    done = run(
        "-c",
        f"import sys, threading; from nnilite._side_processes.quick_end import run_program; run_program({program})",
    )
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ("a\nb\n" if "print" in program else "")


def test_a_program_whose_output_cannot_be_written_fails() -> None:
    program = "from nnilite._side_processes.quick_end import run_program; run_program(lambda: print('a') or 0)"
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, timeout=120, check=False, env=env)
    assert done.returncode == 120


def test_a_program_learns_how_its_commands_end_though_its_parent_ignores_their_ends() -> None:
    """Without that, Python takes each end for a success."""
    ignore = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    parent = f"import os, signal, sys; {ignore}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    program = "import subprocess; from nnilite._side_processes.quick_end import run_program; run_program(lambda: %s)"
    done = run("-c", parent, "-c", program % "subprocess.run(['false']).returncode + 4")
    assert done.returncode == 5, done.stderr


def test_signals_reach_a_program_though_its_parent_blocks_them() -> None:
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    parent = f"import os, signal, sys; {block}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    program = "import os; from nnilite._side_processes.quick_end import run_program; run_program(lambda: %s)"
    done = run("-c", parent, "-c", program % "os.kill(os.getpid(), 15)")
    assert done.returncode == -signal.SIGTERM, done.stderr


SEARCH = """
import atexit, os, sys
from nnilite import Search
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

class Last:
    def __init__(self):
        self.search = Search(SPACE, "Random", storage=sys.argv[1] or None)
        self.trial = self.search.ask()
    def __del__(self):
        self.search.tell(self.trial, 1.0)

def search_late():
    Search(SPACE, "TPE").run(lambda parameters: parameters["x"], trials=1)
"""


@pytest.mark.parametrize("storage", ["", "kept"])
def test_a_result_that_is_told_while_python_ends_is_refused_with_what_to_do(tmp_path: Path, storage: str) -> None:
    done = run("-c", SEARCH + "last = Last()", storage and str(tmp_path / storage))
    assert done.stderr.splitlines()[-1].endswith("Tell results before the program ends, not in `__del__`.")


def test_a_search_after_the_programs_end_says_what_to_do() -> None:
    done = run("-c", SEARCH + "atexit.register(search_late)")
    assert "Conflict: the search cannot go on, since the program's main thread has ended" in done.stderr
