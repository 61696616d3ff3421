"""The gate on a disk that is slow, full and failing, with managers that are stopped and killed: the invariant holds."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

from gate_world import World, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnilite._engine import messages

RUNS = int(os.environ.get("NNILITE_SIMULATION_RUNS", "500")) // 5
MEMORY = Path("/dev/shm")

INDEX = st.integers(0, 7)
STEP = st.one_of(
    st.tuples(st.just("report"), INDEX, st.integers(0, 5), st.integers(0, 300)),
    st.tuples(st.just("report"), INDEX, st.integers(0, 5), st.integers(0, 300)),
    st.tuples(st.just("deliver"), INDEX, st.integers(0, 20), st.integers(0, 2000)),
    st.tuples(st.just("deliver"), INDEX, st.integers(0, 20), st.integers(0, 2000)),
    st.tuples(st.just("deliver"), INDEX, st.integers(0, 20), st.integers(0, 2000)),
    st.tuples(st.just("trouble"), st.sampled_from([0.0, 0.03, 2.0, 30.0]), st.sampled_from([0.0, 0.0, 0.3, 1.0])),
    st.tuples(st.just("pass_time"), st.sampled_from([0.001, 0.05, 1.0, 20.0])),
    st.tuples(st.just("end"), INDEX, st.sampled_from([0, 0, 1])),
    st.tuples(st.just("lose"), INDEX),
    st.tuples(st.just("run_twice"), INDEX),
    st.tuples(st.just("poll")),
    st.tuples(st.just("silence"), st.sampled_from([0, 1, 3])),
    st.tuples(st.just("give_up"), INDEX),
    st.tuples(st.just("be_stopped"), st.sampled_from([3.0, 5000.0])),
    st.tuples(st.just("crash")),
)
STEPS = st.one_of(st.lists(STEP, max_size=10), st.lists(STEP, min_size=20, max_size=80))


async def check_life(folder: Path, seed: int, steps: list[tuple[Any, ...]]) -> None:
    world = World(folder, random.Random(seed), messages.Settings(concurrency=2, max_trials=4, retries_lost=2))
    await world.open()
    try:
        await world.pass_time(0.1)
        for name, *arguments in steps:
            await getattr(world, name)(*arguments)
            await world.pass_time(0.002)
            world.check()
        await world.run_out()
        for keeper in world.keepers.values():
            metrics, printed, ended = world.stored(keeper)
            all_of_it = (keeper.metrics, keeper.printed, True)
            assert keeper.fenced or (len(metrics), len(printed), ended) == all_of_it, "it was not all delivered"
    finally:
        await world.close()


@settings(max_examples=RUNS, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), STEPS)
def test_what_a_keeper_was_told_is_stored_is_stored_whatever_the_disk_does(
    seed: int, steps: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        play(check_life(Path(folder), seed, steps))
