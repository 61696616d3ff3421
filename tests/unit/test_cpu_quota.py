"""How many processors the manager may use, by the files of control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnilite._manager.cpu_quota import count_processors


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 processors, of which this process may use 6."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_quota_the_processors_that_the_process_may_use_count(root: Path) -> None:
    assert count_processors(root) == 6
    write(root / "proc/self/cgroup", "0::/job\n")
    write(root / "sys/fs/cgroup/job/cpu.max", "max 100000\n")
    assert count_processors(root) == 6


def test_the_smallest_quota_on_the_way_counts_rounded_up(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/pods/one\n")
    write(root / "sys/fs/cgroup/pods/one/cpu.max", "400000 100000\n")
    write(root / "sys/fs/cgroup/pods/cpu.max", "250000 100000\n")
    assert count_processors(root) == 3


def test_a_quota_of_the_first_version_counts_in_a_container(root: Path) -> None:
    write(root / "proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n3:memory:/docker/0123\n")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert count_processors(root) == 1


def test_no_limit_of_the_first_version_is_none(root: Path) -> None:
    write(root / "proc/self/cgroup", "4:cpu,cpuacct:/\n")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert count_processors(root) == 6
