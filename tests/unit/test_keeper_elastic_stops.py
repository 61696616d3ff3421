"""The first node of an elastic trial, stopped for longer than the others wait for it."""

from __future__ import annotations

import pytest

from elastic_nodes import STAY, ElasticNodes
from keeper_bench import LIMIT_S, until

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(240)]


def test_a_first_node_that_was_stopped_for_too_long_starts_again_alone_and_grows(tmp_path):
    with ElasticNodes(tmp_path, asked=2, fewest=1, most=2) as nodes:
        first, other = nodes.add(STAY), nodes.add(STAY)
        nodes.wait_for(0, 2)
        nodes.stop_for(0, 90)
        assert other.wait(LIMIT_S) == 4
        nodes.wait_for(1, 1)
        nodes.add(STAY)
        nodes.wait_for(2, 2, 60)
        nodes.let_end()
        assert first.wait(LIMIT_S) == 0
        nodes.check_nothing_runs()
        until(lambda: [one["state"] for one in nodes.roles()][-2:] == ["SUCCEEDED", "SUCCEEDED"])


def test_nothing_starts_again_once_rank_0_has_ended_well(tmp_path):
    """Also where a rank fails while a node is silent, which before would be a reason."""
    mark = 'echo $$ > "$UP/$TORCHELASTIC_RESTART_COUNT-$RANK"; '
    command = mark + (
        'echo "start $TORCHELASTIC_RESTART_COUNT"; while [ ! -e "$UP/end" ]; do sleep 0.2; done; '
        "[ $RANK = 0 ] && exit 0; sleep 14; [ $RANK = 2 ]"
    )
    with ElasticNodes(tmp_path, asked=3, fewest=1, most=3) as nodes:
        first = nodes.add(command)
        nodes.add(command)
        nodes.add(command)
        nodes.wait_for(0, 3)
        nodes.let_end()
        until(lambda: nodes.roles()[0]["state"] == "SUCCEEDED")
        nodes.stop_for(2, 20)
        assert first.wait(60) == 0
        assert nodes.first.text("stdout") == "start 0\n"
        nodes.check_nothing_runs()
