"""Reading GPUs through the real nvidia-ml-py, from a simulated driver library."""

from __future__ import annotations

import subprocess
import sys

import pytest

READ = """
import sys
from nnilite.errors import ServiceError
from nnilite.services.gpu import read_gpus
try:
    for g in read_gpus():
        print(g.index, g.name, g.memory_total_mb, g.memory_used_mb, g.utilization_percent, g.processes, g.fault)
except ServiceError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def read(machine):
    def run(*lines: str) -> subprocess.CompletedProcess:
        machine.describe(*lines)
        command = [sys.executable, "-W", "error", "-c", READ]
        return subprocess.run(command, env=machine.environment, capture_output=True, text=True, timeout=60)

    return run


def test_everything_about_a_gpu_is_read(read):
    out = read("gpu A100 81920 1024 37", "compute 0 4711 512", "graphics 0 99 8", "compute 0 99 8").stdout
    assert out == "0 A100 81920 1024 37 (99, 4711) \n"


def test_all_gpus_are_read_in_the_order_of_the_bus(read):
    out = read(*(f"gpu G{n} 1000 {n} 0" for n in range(8))).stdout
    assert [line.split()[:4] for line in out.splitlines()] == [[str(n), f"G{n}", "1000", str(n)] for n in range(8)]


def test_a_gpu_that_does_not_tell_its_memory_and_load_can_be_used(read):
    assert read("gpu GB10 - - -").stdout == "0 GB10 0 0 None () \n"


def test_a_lost_gpu_does_not_hide_the_others(read):
    out = read("gpu A 1 0 0", "gpu B 1 0 0", "lost 0").stdout.splitlines()
    assert out[0] == "0  0 0 None () cannot be used: GPU is lost"
    assert out[1].startswith("1 B")


def test_many_processes_are_all_read(read):
    out = read("gpu A 1 0 0", *(f"compute 0 {pid} 1" for pid in range(1, 101))).stdout
    assert str(tuple(range(1, 101))) in out


def test_a_machine_without_gpus_is_no_error(read):
    done = read()
    assert (done.returncode, done.stdout) == (0, "")


def test_a_driver_that_is_not_loaded_is_said(read):
    done = read("fail 9")
    assert done.stderr == "GPUs cannot be found: the NVIDIA driver reported Driver Not Loaded\n"


def test_a_missing_driver_library_is_said(machine):
    missing = {**machine.environment, "LD_LIBRARY_PATH": "/nowhere"}
    if subprocess.run(["ldconfig", "-p"], capture_output=True, timeout=60).stdout.count(b"libnvidia-ml"):
        pytest.skip("this machine has a driver")
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, env=missing, capture_output=True, text=True, timeout=60)
    assert "this machine has no NVIDIA driver library (libnvidia-ml.so.1)" in done.stderr
