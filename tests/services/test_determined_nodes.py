"""Distributed trials on Determined: each container of a trial is a node, and their ranks meet and end together."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import runs
from nnilite_determined import _start
from platforms.determined.bench import DeterminedBench, maker
from platforms.node_cases import ON_TWO, NodeCases, give_two_nodes

pytestmark = pytest.mark.process


@pytest.fixture
def make_bench(tmp_path, master):
    """Makes a bench whose trials have two nodes, with a slot of each machine; it is not open."""
    master.cluster.slots_of_agent = 1

    def make(by_log: bool = False, slots: int = 1, **fields) -> DeterminedBench:
        common = {"report": "stdout"} if by_log else {}
        return give_two_nodes(DeterminedBench(tmp_path, maker(master, slots=slots, **fields), **common))

    return make


class TestNodesOnDetermined(NodeCases):
    @pytest.fixture(autouse=True)
    def _on(self, master):
        self.cluster = master.cluster

    def take_node_away(self, bench, name):
        self.cluster.lose_node(self.cluster.named(name), 1)

    def test_a_trial_that_is_preempted_is_lost(self, bench):
        name = self._stay(bench)
        self.cluster.preempt(self.cluster.named(name))
        assert bench.wait(name).state is JobState.LOST
        eventually(lambda: not any(map(runs, bench.received(name).values[0])))

    def test_nodes_that_are_one_container_fail_with_a_cure(self, bench):
        self.cluster.slots_of_agent = 8
        status = bench.wait(bench.run("true", distributed=ON_TWO), JobState.FAILED)
        assert "the 2 nodes of the trial are 1 containers on Determined: set trialGpuNumber or slots" in status.reason

    def test_slots_are_those_of_each_node_and_may_be_on_several_machines(self, make_bench):
        with make_bench(slots=4) as bench:
            name = bench.job("true", distributed=ON_TWO)
            resources = bench.service.describe(name)["body"]["config"]["resources"]
        assert resources == {"slots_per_trial": 8}


def test_nodes_without_slots_are_refused_with_a_cure(make_bench):
    bench = make_bench(slots=0)
    with pytest.raises(ConfigError, match="cannot be more than 1 without slots, which Determined uses") as refused:
        bench._make(bench.context())
    assert refused.value.place.field == "distributed.nodes"
    bench._loop.close()


@pytest.mark.parametrize("text", ["", "[]", '{"container_rank": 0}'])
def test_a_container_without_a_readable_file_of_addresses_says_so(tmp_path, text):
    (tmp_path / "rendezvous.json").write_text(text)
    with pytest.raises(ValueError, match="addresses of the trial's nodes cannot be read"):
        _start.find_place(2, str(tmp_path / "rendezvous.json"))
