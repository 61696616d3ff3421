"""Distributed trials on OpenPAI: all nodes are of one job, and their ranks meet and end together.

The stand-ins check each request against what OpenPAI publishes; all their nodes are this machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from meeting_ranks import MEETING
from nnilite.errors import ConfigError
from nnilite.service import JobState, ServiceContext
from nnilite.services.delivery import sample_job
from nnilite.testing import ReadingBench, eventually
from nnilite.testing.probes import runs
from nnilite_openpai._config import PaiRoleConfig, RoleCompletion
from platforms.pai.bench import bench_on

ON_TWO = {"nodes": 2, "processes": 2, "launcher": "torch"}
UP = """import nnilite, os, time
mark = nnilite.checkpoint_dir() / "rank-{}".format(os.environ["RANK"])
mark.write_text(str(os.getpid()))
if os.environ["RANK"] == "0":
    while len(list(mark.parent.glob("rank-*"))) < int(os.environ["LOCAL_WORLD_SIZE"]):
        time.sleep(0.1)
    nnilite.report_intermediate_result([int(path.read_text()) for path in mark.parent.glob("rank-*")])
time.sleep(60)
"""


@pytest.fixture
def make_bench(tmp_path, pai):
    """Makes a bench whose trials have two nodes. It is not open."""

    def make(by_log: bool = False, **fields) -> ReadingBench:
        bench = bench_on(pai, tmp_path, **fields)
        bench.common.update({"report": "stdout"} if by_log else {})
        bench._with_nodes = True
        usual = bench.context
        bench.context = lambda: _on_two_nodes(usual())
        return bench

    return make


@pytest.fixture
def bench(make_bench) -> Iterator[ReadingBench]:
    with make_bench() as found:
        yield found


def _on_two_nodes(context: ServiceContext) -> ServiceContext:
    return replace(context, defaults={**context.defaults, "distributed": {"nodes": 2}})


def _meet(bench: ReadingBench, *more: str) -> str:
    return bench.run(" ".join([bench.interpreter(MEETING), *more]), distributed=ON_TWO, parameters={"x": 3})


def _stay(bench: ReadingBench) -> str:
    """Start a trial whose ranks stay; rank 0 reports the processes on its node."""
    name = bench.run(bench.interpreter(UP), distributed=ON_TWO)
    bench.eventually(lambda: bench.received(name).values)
    return name


@pytest.mark.process
@pytest.mark.parametrize("by_log", [False, True], ids=["callback", "log"])
def test_the_ranks_of_a_trial_meet_on_two_nodes_and_report_once(make_bench, by_log):
    with make_bench(by_log) as bench:
        received = bench.finish(_meet(bench))
        met, final = received.values
        assert (final, met["ranks"], met["same"]) == (4, [0, 1, 2, 3], True)
        assert received.exits[0]["code"] == 0
        outputs = [received.output["stdout"], *(received.output[f"rank-{rank}"] for rank in (1, 2, 3))]
        assert [text.splitlines()[0] for text in outputs] == [b"here is %d" % rank for rank in range(4)]
        roles = json.loads(received.output["roles"])
        assert [(one["rank"], one["node"], one["state"]) for one in roles] == [
            (rank, rank // 2, "SUCCEEDED") for rank in range(4)
        ]


@pytest.mark.process
def test_a_rank_that_fails_on_the_other_node_ends_all_and_is_the_reason(bench):
    name = _meet(bench, "3")
    status = bench.wait(name, JobState.FAILED)
    assert status.reason.startswith(f"rank 3 on {os.uname().nodename}: exit code 1")
    assert "rank 3 fails" in status.reason
    assert status.exit_code == 1
    assert [one["state"] for one in json.loads(bench.finish(name).output["roles"])].count("FAILED") == 1


@pytest.mark.process
def test_a_canceled_trial_leaves_no_process_on_any_node(bench):
    name = _stay(bench)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    eventually(lambda: not any(map(runs, bench.received(name).values[0])))


@pytest.mark.process
def test_a_trial_whose_nodes_are_taken_away_is_lost(bench, pai):
    name = _stay(bench)
    pai.end(name, -1003)
    assert bench.wait(name).state is JobState.LOST
    eventually(lambda: not any(map(runs, bench.received(name).values[0])))


@pytest.mark.process
def test_a_dry_run_shows_the_nodes_of_the_request(bench):
    shown = json.dumps(bench.service.describe(sample_job(bench.service.context)))
    assert '"instances": 2' in shown


_TWO_ROLES = [PaiRoleConfig(name="a"), PaiRoleConfig(name="b")]


@pytest.mark.process
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task_roles": _TWO_ROLES}, "taskRoles: are 2, and distributed needs one, whose instances"),
        ({"task_roles": [PaiRoleConfig(name="a", instances=5)]}, r"taskRoles\[0\].instances: is 5, but"),
        (
            {"task_roles": [PaiRoleConfig(name="a", completion=RoleCompletion(min_succeeded_instances=1))]},
            r"taskRoles\[0\].completion: is what distributed sets; remove it",
        ),
    ],
)
def test_what_cannot_be_the_nodes_of_a_trial_is_refused_with_its_field_and_a_cure(make_bench, fields, said):
    bench = make_bench(**fields)
    with pytest.raises(ConfigError, match=said):
        bench._make(bench.context())
    bench._loop.close()
