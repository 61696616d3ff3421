"""Anything may be killed, stopped, slow, full or broken at any moment: every reported metric is in the store exactly
once, every trial has its true end. Where there are hosts, `platforms/hosts/test_chaos.py` does the same with them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos import TRIAL, Chaos
from e2e.chaos_setting import FAULTS, LIMITS, SEED, play_and_check
from nnilite.testing.probes import files_below
from platforms.disk.disk import Disk


@pytest.mark.real
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_whatever_happens(
    start: Any, chaos_disk: Disk, books_folder: Path, record_property: Callable[[str, object], None]
) -> None:
    running = start(TRIAL, tuner={"name": "TPE"}, workerSilence="8s", **LIMITS)
    chaos = Chaos(running, random.Random(SEED), chaos_disk, long_stop_s=10.0)
    record_property("shown", f"chaos on this machine: {play_and_check(chaos, 30, books_folder, 120)}")


@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_whatever_happens_in_a_long_run(
    start: Any, chaos_disk: Disk, books_folder: Path, record_property: Callable[[str, object], None]
) -> None:
    running = start(TRIAL, tuner={"name": "TPE"}, workerSilence="8s", **LIMITS)
    chaos = Chaos(running, random.Random(SEED), chaos_disk, long_stop_s=10.0)
    record_property("shown", f"chaos on this machine: {play_and_check(chaos, FAULTS, books_folder, 300)}")
    trials = running.directory / "trials"  # a removal that could not be done is done a minute later
    running.wait_for(lambda: "spec.json" not in {path.name for path in files_below(trials)}, 150)  # they hold tokens
