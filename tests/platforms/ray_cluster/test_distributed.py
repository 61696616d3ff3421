"""Trials on several nodes of a real Ray cluster: reserved at once, started together, ended together."""

from __future__ import annotations

from itertools import groupby
from shutil import which

import pytest

from meeting_ranks import MEETING
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import quoted, runs
from platforms.ray_cluster.bench import RayBench, have_patience
from platforms.ray_cluster.cluster import SECOND, TOKEN

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]

NEEDS_MPI = pytest.mark.skipif(which("mpirun") is None, reason="there is no mpirun; install the package openmpi-bin")
ON_TWO = {"nodes": 2, "processes": 2, "launcher": "torch"}
ELASTIC = {**ON_TWO, "min": 1, "max": 2}
STAY = """import nnilite, os, pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    nnilite.report_intermediate_result(int(os.environ["WORLD_SIZE"]))
    time.sleep(0.3)"""


@pytest.fixture
def two_nodes(real_ray):
    """The real cluster, with its second node."""
    real_ray.start_second()
    yield real_ray
    real_ray.kill_second()
    eventually(lambda: SECOND not in real_ray.ask("/api/cluster_status").text, 60)


@pytest.fixture
def bench(tmp_path, real_ray, monkeypatch):
    have_patience(monkeypatch, end_pending_s=0.5)
    given = {"token": TOKEN, "entrypoint_num_cpus": 0.5}
    with RayBench(tmp_path, real_ray.url, with_nodes=True, **given) as found:
        found.limit_s = 120
        yield found


def meet(bench: RayBench, *more: str, launcher: str = "torch") -> str:
    words = " ".join(["python3", "-c", quoted(MEETING), *more])
    return bench.run(words, distributed={**ON_TWO, "launcher": launcher}, parameters={"x": 3})


@pytest.mark.parametrize("launcher", ["torch", pytest.param("mpi", marks=NEEDS_MPI)])
def test_the_ranks_of_a_trial_meet_on_two_nodes_and_report_once(bench, two_nodes, launcher):
    received = bench.finish(meet(bench, launcher=launcher))
    met, final = received.values
    assert (final, met["ranks"], met["same"]) == (4, [0, 1, 2, 3], True)
    assert received.exits[0]["code"] == 0


def test_a_rank_that_fails_on_the_other_node_ends_all_and_is_the_reason(bench, two_nodes):
    status = bench.wait(meet(bench, "3"), JobState.FAILED)
    assert status.reason.startswith("rank 3 on ")
    assert "rank 3 fails" in status.reason


def test_a_trial_waits_for_all_of_its_nodes_and_holds_none(bench, real_ray):
    waits = meet(bench)
    said = "the trial is waiting for 2 nodes with 0.5 CPU each, and the cluster has 1 of that size"
    bench.eventually(lambda: bench.status(waits).reason.startswith(said))
    assert bench.status(waits).state is JobState.WAITING
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
    bench.call(bench.service.cancel(bench.handles[waits]))
    assert bench.wait(waits).state is JobState.CANCELED


def test_a_node_that_is_lost_makes_the_trial_lost_everywhere(bench, two_nodes):
    program = "import nnilite, os, time; nnilite.report_intermediate_result(os.getpid()); time.sleep(600)"
    name = bench.run(f"python3 -c {quoted(program)}", distributed=ON_TWO)
    bench.eventually(lambda: bench.received(name).values)
    two_nodes.kill_second()
    assert "node" in bench.wait(name, JobState.LOST).reason
    eventually(lambda: not runs(bench.received(name).values[0]))


def test_an_elastic_trial_grows_by_a_node_that_comes_and_goes_on_when_it_is_lost(bench, real_ray, tmp_path):
    end = tmp_path / "end"
    name = bench.run(f"python3 -c {quoted(STAY)} {quoted(str(end))}", distributed=ELASTIC)
    sizes = lambda: [size for size, _ in groupby(bench.received(name).values)]  # noqa: E731
    bench.eventually(lambda: sizes() == [2])
    real_ray.start_second()
    bench.eventually(lambda: sizes() == [2, 4])
    real_ray.kill_second()
    bench.eventually(lambda: sizes() == [2, 4, 2])
    end.touch()
    assert bench.wait(name, JobState.SUCCEEDED).exit_code == 0


# Its ranks meet by the variables that the tests above check; a training runs on SSH hosts and on one machine every day.
@pytest.mark.long
def test_a_ddp_training_on_two_nodes_has_the_losses_of_one_process(start, two_nodes, ddp):
    section = {"platform": "ray", "address": two_nodes.url, "token": TOKEN, "nniManagerIp": "127.0.0.1"}
    ddp.check(start(**{**ddp.config(), "trainingService": {**section, "entrypointNumCpus": 0.5}}))
