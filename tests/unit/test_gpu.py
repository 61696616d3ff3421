"""Which GPUs a job gets, and what is said if it gets none."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite.errors import NoCapacity, ServiceError
from nnilite.services.gpu import Gpu, GpuReader, GpuRules, choose, environment, impossible, use_of
from waiting import others_turn

SHARED = GpuRules(max_jobs=2, use_active=True)


def machine(count: int, **processes: tuple[int, ...]) -> list[Gpu]:
    """`count` GPUs; `gpu1=(5,)` puts process 5 on GPU 1."""
    return [Gpu(i, f"G{i}", 1000, 0, 0, processes.get(f"gpu{i}", ())) for i in range(count)]


def refusal(*args, **more) -> str:
    with pytest.raises(NoCapacity) as caught:
        choose(*args, **more)
    return str(caught.value)


def test_the_only_gpu_of_a_machine_is_handed_out():
    assert choose(machine(1), 1, GpuRules(), {}) == (0,)


def test_a_job_can_have_all_gpus():
    assert choose(machine(4), 4, GpuRules(), {}) == (0, 1, 2, 3)


def test_a_booked_gpu_is_not_handed_out_again():
    assert choose(machine(3), 1, GpuRules(), {"a": [0], "b": [2]}) == (1,)


def test_a_gpu_takes_as_many_jobs_as_allowed_and_no_more():
    booked = {"a": [0]}
    assert choose(machine(1), 1, SHARED, booked) == (0,)
    assert "runs 2 trials (maxTrialNumberPerGpu is 2)" in refusal(machine(1), 1, SHARED, {**booked, "b": [0]})


def test_two_gpus_per_trial_and_two_trials_per_gpu_are_two_whole_gpus_each():
    assert choose(machine(2), 2, SHARED, {"a": [0, 1]}) == (0, 1)
    assert "waits for 2 GPUs, and 0 of them are free" in refusal(machine(2), 2, SHARED, {"a": [0, 1], "b": [0, 1]})


def test_jobs_spread_over_free_gpus_before_they_share_one():
    assert choose(machine(2), 1, SHARED, {"a": [0]}) == (1,)


def test_only_allowed_gpus_are_handed_out():
    assert choose(machine(4), 2, GpuRules(allowed=[3, 1]), {}) == (1, 3)


def test_a_gpu_of_somebody_else_is_left_alone():
    text = refusal(machine(1, gpu0=(77,)), 1, GpuRules(), {})
    assert text == "waits for a GPU: GPU 0 is used by process 77 (useActiveGpu: true would share it)"


def test_a_gpu_of_somebody_else_is_shared_if_that_is_wanted():
    assert choose(machine(1, gpu0=(77,)), 1, GpuRules(use_active=True), {}) == (0,)


def test_a_free_gpu_is_better_than_an_active_one():
    assert choose(machine(2, gpu0=(77,)), 1, GpuRules(use_active=True), {}) == (1,)


def test_our_own_processes_do_not_make_a_gpu_active():
    gpus = machine(1, gpu0=(5,))
    rules = GpuRules(max_jobs=2)
    assert choose(gpus, 1, rules, {"a": [0]}, own=lambda pid: pid == 5) == (0,)


def test_among_free_gpus_the_least_used_comes_first():
    gpus = [Gpu(0, "", 1000, 900, 0), Gpu(1, "", 1000, 10, 50), Gpu(2, "", 1000, 10, 0)]
    assert choose(gpus, 1, GpuRules(), {}) == (2,)


def test_a_broken_gpu_is_never_handed_out_and_is_named():
    gpus = [Gpu(0, fault="cannot be used: GPU is lost")]
    assert refusal(gpus, 1, GpuRules(use_active=True), {}) == "waits for a GPU: GPU 0 cannot be used: GPU is lost"


def test_each_obstacle_is_named_once():
    text = refusal(machine(3, gpu2=(7, 8, 9, 10)), 3, GpuRules(), {"a": [0], "b": [1]})
    assert "GPU 0, 1 runs a trial; GPU 2 is used by process 7, 8, 9, ..." in text


@pytest.mark.parametrize(
    ("wanted", "rules", "text"),
    [
        (3, GpuRules(), "a trial needs 3 GPUs, but this machine has 2"),
        (2, GpuRules(allowed=[1]), "a trial needs 2 GPUs, but this machine has 2, and gpuIndices allows 1"),
        (1, GpuRules(allowed=[0, 5]), "gpuIndices names GPU 5, but this machine has GPUs 0, 1"),
        (2, GpuRules(), None),
    ],
)
def test_what_can_never_be_had_is_said(wanted, rules, text):
    assert impossible(machine(2), wanted, rules) == text


def test_waiting_for_the_impossible_says_that_it_is():
    assert refusal(machine(1), 2, GpuRules(), {}) == "a trial needs 2 GPUs, but this machine has 1"


def test_the_variables_name_the_gpus_in_the_order_of_the_bus():
    assert environment((0, 2)) == {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert environment(()) == {"CUDA_VISIBLE_DEVICES": ""}
    assert environment(None) == {}


GPUS = st.lists(st.lists(st.integers(1, 5), max_size=2), max_size=5).map(
    lambda found: [Gpu(i, "", 10, 0, 0, tuple(pids)) for i, pids in enumerate(found)]
)
RULES = st.builds(GpuRules, st.none() | st.sets(st.integers(0, 4)), st.integers(1, 3), st.booleans())
BOOKED = st.dictionaries(st.text(max_size=2), st.lists(st.integers(0, 4), max_size=3, unique=True), max_size=5)


def admits(rules, booked, gpu) -> bool:
    if rules.allowed is not None and gpu.index not in rules.allowed:
        return False
    room = sum(gpu.index in indices for indices in booked.values()) < rules.max_jobs
    return room and (rules.use_active or not gpu.processes)


@given(GPUS, st.integers(1, 5), RULES, BOOKED)
def test_gpus_are_handed_out_if_and_only_if_enough_are_free(gpus, wanted, rules, booked):
    fit = {gpu.index for gpu in gpus if admits(rules, booked, gpu)}
    if len(fit) >= wanted:
        chosen = choose(gpus, wanted, rules, booked)
        assert len(set(chosen)) == wanted
        assert set(chosen) <= fit
    else:
        assert refusal(gpus, wanted, rules, booked)


# reading beside the event loop


async def test_a_reading_is_used_again_while_it_is_fresh():
    readings = iter([machine(1), machine(2)])
    reader = GpuReader(lambda: next(readings), fresh_s=60)
    first, second = await reader.gpus(), await reader.gpus()
    assert first is second


async def test_callers_at_the_same_time_share_one_reading():
    release, calls = threading.Event(), []

    def read():
        calls.append(1)
        release.wait(60)
        return machine(1)

    reader = GpuReader(read, timeout_s=60)
    both = asyncio.gather(reader.gpus(), reader.gpus())
    await others_turn()
    release.set()
    first, second = await both
    assert first is second
    assert calls == [1]


def test_how_busy_gpus_are_is_told_in_bytes_and_without_broken_ones():
    gpus = [Gpu(0, "G", 80, 20, 93), Gpu(1, fault="is broken"), Gpu(2)]
    assert use_of(gpus) == [
        {"index": 0, "percent": 93, "memoryUsed": 20 * 1024**2, "memoryTotal": 80 * 1024**2},
        {"index": 2, "percent": None, "memoryUsed": 0, "memoryTotal": 0},
    ]


async def test_a_silent_driver_is_an_error_and_holds_up_only_the_first():
    release, calls = threading.Event(), []

    def hang():
        calls.append(1)
        release.wait(20)
        return machine(1)

    reader = GpuReader(hang, timeout_s=0.05)
    for _ in range(3):
        with pytest.raises(ServiceError, match=r"has not answered for 0\.05 s"):
            await reader.gpus()
    release.set()
    await asyncio.wait([reader._pending], timeout=10)
    assert len(await reader.gpus()) == 1
    assert calls == [1]


async def test_an_error_of_the_driver_reaches_the_caller_and_the_next_reading_is_new():
    answers = iter([ServiceError("no driver"), machine(1)])

    def read():
        answer = next(answers)
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    reader = GpuReader(read)
    with pytest.raises(ServiceError, match="no driver"):
        await reader.gpus()
    assert len(await reader.gpus()) == 1
