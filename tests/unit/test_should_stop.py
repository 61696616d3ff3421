"""A trial asks whether it was told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keeper_bench import HOSTILE, pythons
from nnilite._keeper import sdk_sources
from nnilite.services import keeper_folder

pytestmark = pytest.mark.process

BEGIN = "import nnilite, os, signal, sys, threading, time\n"
LOOP = """
print(nnilite.should_stop(), flush=True)
deadline = time.monotonic() + 60
while not nnilite.should_stop() and time.monotonic() < deadline:
    time.sleep(0.01)
"""
SAVING = LOOP + "open(nnilite.checkpoint_dir() / 'model', 'w').write('saved'); sys.exit(143)"


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SDK alone, as trials get it."""
    folder = tmp_path_factory.mktemp("sdk") / HOSTILE.replace(":", "")
    for name, data in sdk_sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def trial(tmp_path: Path, sdk: Path) -> dict[str, str]:
    folder = tmp_path / HOSTILE
    (folder / ".nni").mkdir(parents=True)
    (folder / "parameter.cfg").write_text('{"parameter_id": 0, "parameters": {}}')
    metrics = str(folder / ".nni" / "metrics")
    places = {"NNI_SYS_DIR": str(folder), "NNI_OUTPUT_DIR": str(folder), "NNILITE_METRICS": metrics}
    return {"NNI_PLATFORM": "local", "PYTHONPATH": str(sdk), **places}


def end(program: str, environment: dict[str, str], python: str = sys.executable) -> tuple[int, str, str]:
    """Run the program, send it SIGTERM once it has printed a line, and return its exit code and outputs."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([python, "-c", BEGIN + program], env=environment, text=True, cwd="/", **pipes) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=60)
    return process.returncode, first + rest, errors


@pytest.mark.parametrize("python", [*dict.fromkeys([sys.executable, *pythons()])], ids=str)
def test_a_trial_that_is_told_to_end_saves_what_it_has(trial: dict[str, str], python: str) -> None:
    assert end(SAVING, trial, python) == (143, "False\n", "")
    assert Path(trial["NNI_OUTPUT_DIR"], "checkpoint", "model").read_text() == "saved"


def test_a_trial_that_never_asks_ends_at_once(trial: dict[str, str]) -> None:
    assert end("print(1, flush=True); time.sleep(60)", trial) == (-signal.SIGTERM, "1\n", "")


def test_an_earlier_handler_is_called_too(trial: dict[str, str]) -> None:
    program = "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'mine\\n'))" + LOOP
    assert end(program, trial) == (0, "False\nmine\n", "")


def test_a_signal_that_the_program_ignores_still_counts(trial: dict[str, str]) -> None:
    assert end("signal.signal(signal.SIGTERM, signal.SIG_IGN)" + LOOP, trial) == (0, "False\n", "")


def test_without_a_manager_the_signal_ends_the_program_as_ever() -> None:
    program = "print(nnilite.should_stop(), flush=True); time.sleep(60)"
    assert end(program, {"PYTHONPATH": str(Path(__file__).parents[2])}) == (-signal.SIGTERM, "False\n", "")


def test_workers_of_a_pool_can_still_be_ended(trial: dict[str, str]) -> None:
    program = """
nnilite.should_stop()
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, b'ready'); time.sleep(60); os._exit(0)
os.read(reading, 5)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), nnilite.should_stop(), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], env=trial, text=True, capture_output=True, timeout=50
    )
    assert done.stdout.split() == ["-15", "False"], done.stderr


def test_a_child_that_asks_is_told_as_well(trial: dict[str, str]) -> None:
    program = LOOP + "\nif not os.fork(): print(nnilite.should_stop(), flush=True); os._exit(0)\nos.wait()"
    assert end(program, trial) == (0, "False\nTrue\n", "")


def test_the_first_question_in_another_thread_is_warned_of_once(trial: dict[str, str]) -> None:
    program = """
def ask(): print(nnilite.should_stop(), nnilite.should_stop())
thread = threading.Thread(target=ask); thread.start(); thread.join()
nnilite.should_stop()
thread = threading.Thread(target=ask); os.kill(os.getpid(), signal.SIGTERM); thread.start(); thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], env=trial, text=True, capture_output=True, timeout=50
    )
    assert done.stdout.split() == ["False", "False", "True", "True"]
    assert done.stderr.count("RuntimeWarning: nnilite: should_stop() can learn of the end only after a first call") == 1


def test_the_metrics_of_a_trial_stay_with_it(trial: dict[str, str]) -> None:
    program = "nnilite.report_intermediate_result(0.5)" + LOOP + "nnilite.report_intermediate_result(0.75)"
    assert end(program, trial)[0] == 0
    assert [metric.value for metric in keeper_folder.read_metrics(Path(trial["NNI_OUTPUT_DIR"]))] == [0.5, 0.75]
