"""Workers on machines with GPUs: the real nvidia-ml-py with a simulated driver, real workers, real trials."""

from __future__ import annotations

import pytest

from nnilite.service import JobState
from nnilite.testing import eventually

pytestmark = [pytest.mark.real]

WHICH = "import os, time, nnilite; nnilite.report_final_result(os.environ.get('CUDA_VISIBLE_DEVICES')); {rest}"


@pytest.fixture
def worker_with(machine, start_worker, shared_server):
    """Starts a worker that sees these GPUs."""

    def start(*gpus: str, processors: int = 4):
        machine.describe(*gpus)
        return start_worker(shared_server.url, "--processors", str(processors), **machine.environment)

    return start


def seen(bench, name: str):
    """The GPUs that a trial was given, by its own word."""
    return eventually(lambda: bench.received(name).values)[0]


def test_trials_get_gpus_of_their_own_and_one_too_many_waits(shared_server, open_bench, worker_with):
    worker_with("gpu A 1000 0 0", "gpu B 1000 0 0")
    bench = open_bench(shared_server)
    stay = WHICH.format(rest="time.sleep(60)")
    first, second = (bench.python(stay, gpus=1) for _ in range(2))
    assert {seen(bench, first), seen(bench, second)} == {0, 1}
    third = bench.python(WHICH.format(rest=""), gpus=1)
    eventually(lambda: bench.status(third).reason.startswith("1st in the queue"))
    assert bench.status(third).state is JobState.WAITING
    freed = seen(bench, first)
    bench.call(bench.service.cancel(bench.handles[first]))
    assert seen(bench, third) == freed
    bench.call(bench.service.cancel(bench.handles[second]))


def test_a_trial_that_asks_for_no_gpu_sees_none_and_one_that_says_nothing_is_left_alone(
    shared_server, open_bench, worker_with
):
    worker_with("gpu A 1000 0 0")
    bench = open_bench(shared_server)
    none, silent = bench.python(WHICH.format(rest=""), gpus=0), bench.python(WHICH.format(rest=""))
    assert (seen(bench, none), seen(bench, silent)) == ("", None)


def test_a_trial_that_no_worker_could_ever_run_says_what_it_waits_for(shared_server, open_bench, worker_with):
    worker_with("gpu A 1000 0 0")
    bench = open_bench(shared_server)
    name = bench.run("true", gpus=2)
    eventually(lambda: "none of 1 worker has 2 GPUs" in bench.status(name).reason)


def test_after_a_restart_of_its_worker_a_gpu_is_still_taken(shared_server, open_bench, worker_with):
    worker = worker_with("gpu A 1000 0 0")
    bench = open_bench(shared_server)
    first = bench.python(WHICH.format(rest="time.sleep(60)"), gpus=1)
    assert seen(bench, first) == 0
    worker.kill()
    worker.start()
    second = bench.python(WHICH.format(rest=""), gpus=1)
    eventually(lambda: "busy" in bench.status(second).reason or "can take" in bench.status(second).reason)
    assert bench.status(second).state is JobState.WAITING
    bench.call(bench.service.cancel(bench.handles[first]))
    assert seen(bench, second) == 0
