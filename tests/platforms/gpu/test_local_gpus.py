"""The local service on a machine with GPUs: the real nvidia-ml-py, a simulated driver, real trials.

The library must be there when a program starts, so each test is a little program of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = '''
import json, os, sys, time
from pathlib import Path
from nnilite.errors import NniliteError
from nnilite.service import JobState
from nnilite.testing import ServiceBench, eventually
from nnilite_local import LocalConfig, LocalService

config = LocalConfig(**json.loads(sys.argv[1]))
report = "import os, nnilite; nnilite.report_final_result([os.environ.get('CUDA_VISIBLE_DEVICES'), os.getpid()])"
wait = "; import time; time.sleep(60)"

def describe(*lines):
    Path(os.environ["SIMULATED_GPUS"]).write_text("".join(line + "\\n" for line in lines))

def refused(gpus=1):
    return str(bench.refusal(bench.service.submit(bench.job("true", gpus=gpus))))

def start(gpus=1):
    """A trial that keeps its GPUs; its name, the GPUs that it sees, its process id."""
    name = bench.python(report + wait, gpus=gpus)
    eventually(lambda: bench.received(name).values)
    return (name, *bench.received(name).values[0])

def end(name):
    bench.call(bench.service.cancel(bench.handles[name]))
    eventually(lambda: bench.received(name).exits)

try:
    with ServiceBench(Path(sys.argv[2]), lambda context: LocalService("local", config, context)) as bench:
'''
TAIL = """
except NniliteError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""

ONE = ("gpu A 1000 0 0",)
FOUR = tuple(f"gpu G{number} 1000 0 0" for number in range(4))
SETTINGS = {"trial_gpu_number": 1, "use_active_gpu": False}


@pytest.fixture
def on_machine(machine, tmp_path):
    """Run statements on a machine with these GPUs: what they print, line by line, or the error they end with."""

    def run(gpus, program: str, **settings) -> list[str]:
        machine.describe(*gpus)
        body = "".join(f"        {line}\n" for line in program.strip().splitlines())
        arguments = [json.dumps({**SETTINGS, **settings}), str(tmp_path)]
        command = [sys.executable, "-W", "error", "-c", HEAD + body + TAIL, *arguments]
        done = subprocess.run(command, env=machine.environment, capture_output=True, text=True, timeout=100)
        return (done.stdout + done.stderr).splitlines()

    return run


def test_the_only_gpu_of_a_machine_is_used(on_machine):
    assert on_machine(ONE, "print(start()[1])") == ["0"]


def test_how_busy_a_gpu_is_is_told_while_a_trial_has_it(on_machine):
    program = """
told = lambda: bench.service.hosts()[0].details.get("gpuUse")
name = start()[0]
eventually(lambda: bench.call(bench.service.poll([bench.handles[name]])) and told())
print(told())
end(name)
eventually(lambda: bench.call(bench.service.poll([bench.handles[name]])) and not told())
"""
    told = [{"index": 0, "percent": 93, "memoryUsed": 250 * 1024**2, "memoryTotal": 1000 * 1024**2}]
    assert on_machine(("gpu A 1000 250 93",), program) == [str(told)]


def test_a_second_trial_waits_with_a_reason_and_gets_the_gpu_right_after_the_first(on_machine):
    program = "name = start()[0]\nprint(refused())\nend(name)\nprint(start()[1])"
    reason = "waits for a GPU: GPU 0 runs a trial (maxTrialNumberPerGpu is 1)"
    assert on_machine(ONE, program) == [reason, "0"]


def test_a_trial_can_have_all_gpus(on_machine):
    assert on_machine(FOUR, "print(start(4)[1])", trial_gpu_number=4) == ["0,1,2,3"]


def test_trials_get_different_gpus_out_of_the_allowed_ones(on_machine):
    program = "print(start()[1], start()[1], refused())"
    [line] = on_machine(FOUR, program, gpu_indices=[1, 3])
    assert line.startswith("1 3 waits for a GPU: GPU 1, 3 runs a trial")


def test_trials_that_are_submitted_at_once_get_different_gpus_and_no_more_than_there_are(on_machine):
    program = """
import asyncio
jobs = [bench.job("sleep 60", gpus=1) for _ in range(6)]
async def at_once():
    return await asyncio.gather(*map(bench.service.submit, jobs), return_exceptions=True)
found = bench.call(at_once())
print(sorted(handle["gpus"] for handle in found if isinstance(handle, dict)))
print([type(error).__name__ for error in found if not isinstance(error, dict)])
for job, handle in zip(jobs, found):
    if isinstance(handle, dict):
        bench.handles[job.name] = handle
"""
    assert on_machine(FOUR, program) == ["[[0], [1], [2], [3]]", "['NoCapacity', 'NoCapacity']"]


def test_trials_share_a_gpu_though_the_first_one_is_active_there(on_machine):
    program = """
_, gpu, pid = start()
describe("gpu A 1000 500 0", f"compute 0 {pid} 400")
time.sleep(1.1)  # a reading is good for a second
print(gpu, start()[1], refused())
"""
    [line] = on_machine(ONE, program, max_trial_number_per_gpu=2)
    assert line == "0 0 waits for a GPU: GPU 0 runs 2 trials (maxTrialNumberPerGpu is 2)"


def test_a_gpu_of_somebody_else_is_left_alone_and_the_process_named(on_machine):
    gpus = (*ONE, f"compute 0 {os.getpid()} 100")
    reason = f"waits for a GPU: GPU 0 is used by process {os.getpid()} (useActiveGpu: true would share it)"
    assert on_machine(gpus, "print(refused())") == [reason]


def test_a_gpu_of_somebody_else_is_shared_if_the_config_says_so(on_machine):
    gpus = (*ONE, f"graphics 0 {os.getpid()} 100")
    assert on_machine(gpus, "print(start()[1])", use_active_gpu=True) == ["0"]


def test_a_restarted_manager_knows_at_once_which_gpus_are_taken(on_machine):
    program = "name = start()[0]\nbench.restart()\nprint(refused())\nend(name)\nprint(start()[1])"
    reason = "waits for a GPU: GPU 0 runs a trial (maxTrialNumberPerGpu is 1)"
    assert on_machine(ONE, program) == [reason, "0"]


def test_the_gpus_of_a_killed_keeper_are_free_again(on_machine):
    program = """
name = start()[0]
os.kill(bench.handles[name]["pid"], 9)
bench.wait(name, JobState.LOST)
print(start()[1])
"""
    assert on_machine(ONE, program)[0] == "0"  # then the warning about the keeper


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"trial_gpu_number": 2}, "trialGpuNumber: is 2, but a trial needs 2 GPUs, but this machine has 1"),
        ({"gpu_indices": [4]}, "trialGpuNumber: is 1, but gpuIndices names GPU 4, but this machine has GPUs 0"),
    ],
)
def test_what_can_never_be_had_is_said_at_the_start(on_machine, settings, sentence):
    cure = "remove it to run trials without assigned GPUs, or run them on a machine that has enough"
    assert on_machine(ONE, "pass", **settings) == [f"ConfigError: {sentence}; {cure}"]


@pytest.mark.parametrize(
    ("wanted", "concurrency", "note"),
    [
        (4, 4, "trialConcurrency is 4, but the GPUs are enough for 1 at once: a trial needs 4 of 4"),
        (2, 3, "trialConcurrency is 3, but the GPUs are enough for 2 at once: a trial needs 2 of 4"),
        (1, 4, ""),
        (4, 1, ""),
    ],
)
def test_gpus_for_fewer_trials_at_once_than_asked_for_are_a_note(on_machine, wanted, concurrency, note):
    program = f"print(bench.call(bench.service._gpus.check({wanted}, {concurrency})))"
    assert on_machine(FOUR, program) == [note]


def test_a_machine_without_a_driver_is_said_at_the_start(on_machine):
    [line] = on_machine(("fail 9",), "pass")
    assert "is 1, but GPUs cannot be found: the NVIDIA driver reported Driver Not Loaded; remove it" in line


def test_a_hanging_driver_does_not_hang_the_service(on_machine):
    program = """
describe("gpu A 1 0 0", "hang 60")
time.sleep(1.1)  # a reading is good for a second
print(refused())
print(bench.finish(bench.run("true")).exits[0]["code"])
"""
    lines = on_machine(ONE, program)
    assert lines == ["the NVIDIA driver has not answered for 5 s; check whether nvidia-smi answers", "0"]


def test_trials_without_gpus_need_no_driver(on_machine):
    program = "print(start(0)[1], start(None)[1])"
    assert on_machine(("fail 9",), program, trial_gpu_number=0, use_active_gpu=None) == [" None"]
