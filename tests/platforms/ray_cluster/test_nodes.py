"""Trials on several nodes of the stand-in: what the driver reserves, starts, passes on and ends."""

from __future__ import annotations

import json

import pytest

from meeting_ranks import MEETING
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import runs
from platforms.ray_cluster.bench import RayBench

pytestmark = pytest.mark.usefixtures("impatient")

ON_TWO = {"nodes": 2, "processes": 2, "launcher": "torch"}
BY_LOG = {"report": "stdout", "callback": None}
UP = "import nnilite, os, time; nnilite.report_intermediate_result(os.getpid()); time.sleep(60)"


@pytest.fixture
def nodes_bench(tmp_path, head):
    """Opens a bench for distributed trials, with this in the specifications of all jobs."""
    opened: list[RayBench] = []

    def make(common=None, **fields) -> RayBench:
        opened.append(RayBench(tmp_path, head.url, common, with_nodes=True, **fields))
        return opened[-1].__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


def meet(bench: RayBench, *more: str) -> str:
    words = " ".join([bench.interpreter(MEETING), *more])
    return bench.run(words, distributed=ON_TWO, parameters={"x": 3})


@pytest.mark.parametrize("common", [None, BY_LOG])
def test_the_ranks_of_a_trial_meet_on_two_nodes_and_report_once(nodes_bench, common):
    bench = nodes_bench(common)
    received = bench.finish(meet(bench))
    met, final = received.values
    assert (final, met["ranks"], met["same"]) == (4, [0, 1, 2, 3], True)
    assert received.exits[0]["code"] == 0
    assert received.output["stdout"] == b"here is 0\n"


def test_a_node_that_stands_still_at_the_end_is_not_waited_for_for_ever(nodes_bench, head):
    (head.folder / "jobs").mkdir()
    (head.folder / "jobs" / "hung").touch()
    bench = nodes_bench()
    assert bench.finish(meet(bench)).exits[0]["code"] == 0


def test_a_rank_that_fails_on_the_other_node_ends_all_and_is_the_reason(nodes_bench):
    bench = nodes_bench()
    status = bench.wait(meet(bench, "3"), JobState.FAILED)
    assert status.reason.startswith("rank 3 on ")
    assert "rank 3 fails" in status.reason
    assert status.exit_code == 1


def test_what_each_node_reserves_is_in_the_request_and_the_driver_asks_for_nothing(nodes_bench):
    bench = nodes_bench(entrypoint_num_cpus=2, entrypoint_num_gpus=1, entrypoint_resources={"fpga": 1})
    body = bench.service.describe(bench.job("true", distributed=ON_TWO))["body"]
    assert not [name for name in body if name.startswith("entrypoint_")]
    assert json.loads(body["metadata"]["nnilite_nodes"]) == {"nodes": 2, "bundle": {"CPU": 2, "GPU": 1, "fpga": 1}}


def test_an_elastic_trial_begins_with_all_machines_that_have_room_and_waits_for_the_fewest(nodes_bench):
    bench = nodes_bench(entrypoint_num_cpus=1)
    elastic = {**ON_TWO, "nodes": 4, "min": 1, "max": 4}
    body = bench.service.describe(bench.job("true", distributed=elastic))["body"]
    assert json.loads(body["metadata"]["nnilite_nodes"]) == {"nodes": 1, "most": 4, "bundle": {"CPU": 1}}
    name = bench.run(bench.interpreter(MEETING), distributed=elastic, parameters={"x": 3})
    met, final = bench.finish(name).values
    assert (final, met["ranks"]) == (4, [0, 1, 2, 3])  # two machines are there


def test_a_trial_waits_for_all_of_its_nodes_says_how_many_are_free_and_can_be_canceled(nodes_bench, head):
    bench = nodes_bench(entrypoint_num_cpus=5)
    (head.folder / "jobs").mkdir()
    (head.folder / "jobs" / "nodes").write_text("1")
    name = meet(bench)
    said = "the trial is waiting for 2 nodes with 5 CPU each, and the cluster has 1 of that size"
    bench.eventually(lambda: bench.status(name).reason.startswith(said))
    assert bench.status(name).state is JobState.WAITING
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED


def test_a_canceled_trial_leaves_no_process_on_any_node(nodes_bench):
    bench = nodes_bench()
    name = bench.run(bench.interpreter(UP), distributed=ON_TWO)
    bench.eventually(lambda: bench.received(name).values)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    eventually(lambda: not runs(bench.received(name).values[0]))


def test_a_driver_that_is_killed_takes_its_trial_with_it(nodes_bench, head):
    bench = nodes_bench()
    name = bench.run(bench.interpreter(UP), distributed=ON_TWO)
    bench.eventually(lambda: bench.received(name).values)
    head.jobs[name].process.kill()
    assert bench.wait(name).state is JobState.LOST
    eventually(lambda: not runs(bench.received(name).values[0]))
