"""What the first node of an elastic trial does about others that do not do what they are told."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from keeper_bench import until
from nnilite._keeper import node_link
from nnilite._keeper.elastic_first_node import ElasticFirstNode
from nnilite._keeper.elastic_group import ElasticGroup
from nnilite._keeper.first_node import checked_hello
from nnilite._keeper.node_records import NodeRecords
from nnilite.testing.ports import free_ports

NODE = {"host": "far", "processes": 1, "ports": []}


RECORD = {
    **{"rank": 1, "node": 1, "start": 0, "host": "far", "state": "FAILED", "exitCode": 3, "reason": "exit code 3"},
    **{"started": 1.0, "ended": 2.0, "lines": "", "age_s": 0.5},
}


@contextmanager
def group_of(folder):
    """A group that has begun, with one other node, whose connection it gives, too."""
    (folder / "roles").mkdir()
    place = SimpleNamespace(path=str(folder), inner=str(folder), add_to_log=print)
    group = ElasticGroup({"secret": "s", "max": 2, "grace_s": 5}, place, NodeRecords(place))
    ports = free_ports(1)
    group.lines.open(ports)
    caller = node_link.Caller([("127.0.0.1", ports[0])], "s", 1, "run", lambda: None)
    caller.call()
    line = until(lambda: group.process_messages(0) or caller.accept())
    line.send({"hello": NODE})
    until(lambda: group.process_messages(0) or group.members)
    group.begin({**NODE, "host": "near"})
    try:
        yield group, line
    finally:
        for opened in (line, *group.lines.open_lines, *group.lines.listeners):
            getattr(opened, "socket", opened).close()


def test_a_node_that_speaks_but_never_ends_its_processes_is_left_out(tmp_path):
    with group_of(tmp_path) as (group, line):
        group.stop()
        until(lambda: line.send({"ranks": []}) or group.process_messages(10) or not group.members)
        assert group.losses == ["node 1 (far) has not ended its processes for 80 s"]


def test_a_node_that_comes_when_the_first_rank_has_succeeded_changes_nothing():
    group = SimpleNamespace(losses=[], failure=None, any_waits=True, is_through=True)
    ElasticFirstNode._follow(SimpleNamespace(_group=group))  # which has nothing to change


def test_a_node_tells_how_its_own_processes_have_ended(tmp_path):
    with group_of(tmp_path) as (group, line):
        line.send({"start": 0, "ranks": [RECORD], "output": [1, 0, base64.b64encode(b"text").decode()]})
        until(lambda: group.process_messages(0) or group.failure)
        assert group.failure == ("rank 1 on far: exit code 3", 3)
        assert (tmp_path / "roles" / "rank-1.log").read_bytes() == b"text"


@pytest.mark.parametrize(
    "message",
    [
        *(
            {"ranks": [each]}
            for each in ("text", {**RECORD, "rank": 0}, {**RECORD, "rank": 2}, {**RECORD, "rank": "1"})
        ),
        *({"ranks": [{**RECORD, **each}]} for each in ({"exitCode": []}, {"exitCode": 1 << 40}, {"started": {}})),
        *({"ranks": [{**RECORD, **each}]} for each in ({"ended": float("nan")}, {"age_s": float("inf")})),
        *({"output": [rank, 0, "dGV4dA=="]} for rank in (0, 2, 9999, "1")),
        *({"output": each} for each in (5, [1], [1, 0, {}])),
        {"hello": {}, "ranks": 7},
    ],
)
def test_a_node_cannot_speak_for_others_or_end_the_first_one_by_what_makes_no_sense(tmp_path, message):
    with group_of(tmp_path) as (group, line):
        known = group.lines.get(1)
        line.send({"start": 0, **message})
        until(lambda: group.process_messages(0) or group.lines.get(1) is not known)
        assert (group.failure, group.losses, list((tmp_path / "roles").iterdir())) == (None, [], [])
        assert group.lines.get(1) is None


@pytest.mark.parametrize("processes", [-1, 1001, "many", None, 1e400])
def test_a_node_with_an_impossible_number_of_processes_is_refused(processes):
    with pytest.raises(node_link.LinkBroken):
        checked_hello({**NODE, "processes": processes})
