"""What holds for distributed trials on each platform that starts the same job on all nodes.

Subclass it with the fixture `make_bench(by_log=False, **fields)`, which makes benches that are not open, and
`take_node_away`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from shutil import which
from typing import Any

import pytest

from meeting_ranks import MEETING
from nnilite.service import JobState, ServiceContext
from nnilite.testing import ReadingBench, eventually
from nnilite.testing.probes import runs
from nnilite.testing.receiver import Received

ON_TWO = {"nodes": 2, "processes": 2, "launcher": "torch"}
UP = """import nnilite, os, time
mark = nnilite.checkpoint_dir() / "rank-{}".format(os.environ["RANK"])
draft = mark.with_name("new-" + mark.name)
draft.write_text(str(os.getpid()))
draft.rename(mark)
if os.environ["RANK"] == "0":
    while len(list(mark.parent.glob("rank-*"))) < int(os.environ["LOCAL_WORLD_SIZE"]):
        time.sleep(0.1)
    nnilite.report_intermediate_result([int(path.read_text()) for path in mark.parent.glob("rank-*")])
time.sleep(60)
"""


def check_meeting(received: Received) -> None:
    """Check what the four ranks of a trial on two nodes have left: one report, and output and a record of each."""
    met, final = received.values
    assert (final, met["ranks"], met["same"]) == (4, [0, 1, 2, 3], True)
    assert received.exits[0]["code"] == 0
    outputs = [received.output["stdout"], *(received.output[f"rank-{rank}"] for rank in (1, 2, 3))]
    assert [text.splitlines()[0] for text in outputs] == [b"here is %d" % rank for rank in range(4)]
    roles = json.loads(received.output["roles"])
    assert [(one["rank"], one["node"], one["state"]) for one in roles] == [
        (rank, rank // 2, "SUCCEEDED") for rank in range(4)
    ]


def give_two_nodes(bench: ReadingBench) -> ReadingBench:
    """Let the trials of a bench, which is not open yet, have two nodes."""
    bench._with_nodes = True
    usual = bench.context

    def context() -> ServiceContext:
        found = usual()
        return replace(found, defaults={**found.defaults, "distributed": {"nodes": 2}})

    bench.context = context  # type: ignore[method-assign]
    return bench


class NodeCases:
    """Two nodes, and two ranks on each."""

    @pytest.fixture
    def bench(self, make_bench: Any) -> Iterator[ReadingBench]:
        with make_bench() as found:
            yield found

    def take_node_away(self, bench: ReadingBench, name: str) -> None:
        """Take away the second node of a job that runs."""
        raise NotImplementedError

    def _meet(self, bench: ReadingBench, *more: str, launcher: str = "torch") -> str:
        command = " ".join([bench.interpreter(MEETING), *more])
        return bench.run(command, distributed={**ON_TWO, "launcher": launcher}, parameters={"x": 3})

    def _stay(self, bench: ReadingBench) -> str:
        """Start a trial whose ranks stay; rank 0 reports the processes on its node."""
        name = bench.run(bench.interpreter(UP), distributed=ON_TWO)
        bench.eventually(lambda: bench.received(name).values)
        # Ranks may report before the service has looked at their job. A job that was never seen running waits, as any
        # other, when its platform queues it again.
        bench.wait(name, JobState.RUNNING)
        return name

    # Whose log is read depends on the platform. A callback does not: contracts and nodes of Slurm have it every day.
    @pytest.mark.parametrize("by_log", [pytest.param(False, marks=pytest.mark.long), True], ids=["callback", "log"])
    def test_the_ranks_of_a_trial_meet_on_two_nodes_and_report_once(self, make_bench, by_log):
        with make_bench(by_log) as bench:
            check_meeting(bench.finish(self._meet(bench)))

    @pytest.mark.long
    @pytest.mark.skipif(which("mpirun") is None, reason="there is no mpirun; install the package openmpi-bin")
    def test_the_ranks_that_mpirun_starts_on_two_nodes_meet(self, bench):
        check_meeting(bench.finish(self._meet(bench, launcher="mpi")))

    def test_a_rank_that_fails_on_the_other_node_ends_all_and_is_the_reason(self, bench):
        name = self._meet(bench, "3")
        status = bench.wait(name, JobState.FAILED)
        assert status.reason.startswith(f"rank 3 on {os.uname().nodename}: exit code 1")
        assert "rank 3 fails" in status.reason
        assert status.exit_code == 1
        assert [one["state"] for one in json.loads(bench.finish(name).output["roles"])].count("FAILED") == 1

    def test_a_canceled_trial_leaves_no_process_on_any_node(self, bench):
        name = self._stay(bench)
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED
        eventually(lambda: not any(map(runs, bench.received(name).values[0])))

    def test_a_trial_that_loses_a_node_is_lost(self, bench):
        name = self._stay(bench)
        self.take_node_away(bench, name)
        assert bench.wait(name).state is JobState.LOST
        eventually(lambda: not any(map(runs, bench.received(name).values[0])))
