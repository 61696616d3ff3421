"""How much of a machine is in use, from files like those of Linux in /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite.services._host_use import HostMeter

MEMORY = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nHugePages_Total:  0\n"


class Machine:
    """A /proc whose numbers a test sets, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        (folder / "meminfo").write_text(MEMORY)
        self.work(busy=0, idle=0)

    def work(self, busy: int, idle: int) -> None:
        """So many ticks in all; half of the idle ones waited for a disk."""
        text = f"cpu  {busy} 0 0 {idle - idle // 2} {idle // 2} 0 0 0 {busy} 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
        (self.folder / "stat").write_text(text)

    def meter(self) -> HostMeter:
        return HostMeter(str(self.folder), lambda: self.now)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_memory_is_known_at_once_and_processors_at_the_second_look(machine: Machine) -> None:
    meter = machine.meter()
    memory = {"memoryUsed": 600 * 1024, "memoryTotal": 1000 * 1024}
    assert meter.read() == memory
    machine.now = 10.0
    machine.work(busy=25, idle=75)
    assert meter.read() == {**memory, "cpuPercent": 25.0}
    machine.now = 20.0
    machine.work(busy=125, idle=75)
    assert meter.read()["cpuPercent"] == 100.0


def test_it_looks_at_most_once_in_ten_seconds(machine: Machine) -> None:
    meter = machine.meter()
    machine.now = 9.9
    machine.work(busy=25, idle=75)
    (machine.folder / "meminfo").write_text("MemTotal:  1 kB\nMemAvailable:  1 kB\n")
    assert meter.read() == {"memoryUsed": 600 * 1024, "memoryTotal": 1000 * 1024}
    machine.now = 10.0
    assert meter.read()["memoryTotal"] == 1024


@pytest.mark.parametrize("text", ["", "MemTotal:\n", "MemTotal: x kB\n", "MemTotal: 1 kB\n", "\xff"])
def test_a_machine_that_does_not_tell_has_nothing(machine: Machine, text: str) -> None:
    (machine.folder / "meminfo").write_text(text, encoding="latin-1")
    (machine.folder / "stat").write_text(text, encoding="latin-1")
    meter = machine.meter()
    machine.now = 10.0
    assert meter.read() == {}
    assert HostMeter(str(machine.folder / "none")).read() == {}


def test_processors_that_stood_still_are_left_out(machine: Machine) -> None:
    meter = machine.meter()
    machine.now = 10.0
    assert "cpuPercent" not in meter.read()
