"""What the first node of an elastic trial does about others that do not do what they are told."""

from __future__ import annotations

from types import SimpleNamespace

from keeper_bench import until
from nnilite._keeper import node_link
from nnilite._keeper.elastic_crew import ElasticCrew
from nnilite._keeper.node_records import NodeRecords

NODE = {"host": "far", "processes": 1, "ports": []}


def test_a_node_that_speaks_but_never_ends_its_processes_is_left_out(tmp_path):
    folder = SimpleNamespace(path=str(tmp_path), inner=str(tmp_path), add_to_log=print)
    crew = ElasticCrew({"secret": "s", "max": 2, "grace_s": 5}, folder, NodeRecords(folder))
    ports = node_link.free_ports(1)
    crew.lines.open(ports)
    caller = node_link.Caller([("127.0.0.1", ports[0])], "s", 1, "run", lambda: None)
    caller.call()
    line = until(lambda: crew.hear(0) or caller.accept())
    line.send({"hello": NODE})
    until(lambda: crew.hear(0) or crew.members)
    crew.begin({**NODE, "host": "near"})
    crew.stop()
    until(lambda: line.send({"ranks": []}) or crew.hear(10) or not crew.members)
    assert crew.losses == ["node 1 (far) has not ended its processes for 80 s"]
    for opened in (line, *crew.lines.open_lines, *crew.lines.listeners):
        getattr(opened, "socket", opened).close()
