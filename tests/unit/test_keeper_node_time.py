"""How long the nodes of a distributed trial wait for each other: while they live, and not while they are stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite._keeper import launch_agent, node_run
from nnilite._keeper.first_node import FirstNode
from nnilite._keeper.folder import Folder
from nnilite._keeper.node_link import LinkBroken, ports_of
from nnilite._keeper.node_run import GATHER_S, NodeRun
from nnilite._keeper.other_node import OtherNode

PLAN = {"nodes": 2, "here": 1, "processes": 1, "launcher": "none", "first": ["127.0.0.1"], "ports": ports_of("stopped")}
PLAN |= {"secret": "s", "command": "true", "grace_s": 1, "max_output_bytes": 1000}


class LastTurnError(Exception):
    """The test has seen enough."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[[NodeRun], None]:
    """Runs a node that is stopped for an hour in each of three waits."""
    clock = [0.0]
    turns = iter(range(3))

    def select(*_: Any) -> None:
        if next(turns, None) is None:
            raise LastTurnError
        clock[0] += 3600.0

    def run(node: NodeRun) -> None:
        monkeypatch.setattr(node_run.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(node_run.select, "select", select)
        try:
            node.run()  # type: ignore[attr-defined]
        finally:
            monkeypatch.undo()

    return run


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes a node that takes no signals of this process."""

    def make(kind: type[NodeRun], number: int) -> NodeRun:
        folder = Folder(str(tmp_path))
        folder.create()
        with monkeypatch.context() as patched:
            patched.setattr(node_run.signal, "signal", lambda *_: None)
            patched.setattr(node_run.signal, "set_wakeup_fd", lambda *_, **__: None)
            return kind({**PLAN, "node": number}, folder)

    return make


def test_the_first_node_that_was_stopped_goes_on_waiting_for_the_others(stopped: Any, node: Any) -> None:
    first = node(FirstNode, 0)
    with pytest.raises(LastTurnError):
        stopped(first)
    [listener] = first._lines.listeners
    listener.close()
    assert first.lived_s < 2


def test_another_node_that_was_stopped_goes_on_looking_for_the_first(stopped: Any, node: Any) -> None:
    other = node(OtherNode, 1)
    other._caller.call = lambda: None
    with pytest.raises(LastTurnError):
        stopped(other)
    assert other.lived_s < 2


def test_a_node_that_has_waited_long_for_its_part_calls_again_when_its_connection_breaks(
    stopped: Any, node: Any
) -> None:
    def break_off() -> None:
        raise LinkBroken("reset")

    other = node(OtherNode, 1)
    other.lived_s = 2 * GATHER_S
    lines = iter([SimpleNamespace(socket=0, waiting_bytes=0, flush=break_off, close=lambda: None)])
    other._caller.call = lambda: None
    other._caller.accept = lambda: next(lines, None)
    with pytest.raises(LastTurnError):
        stopped(other)
    assert next(lines, None) is None


def test_the_agent_of_a_launcher_that_was_stopped_goes_on_calling_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, answers = [0.0], iter([None, None, None, "connected"])

    def connect() -> object:
        clock[0] += 3600.0
        return next(answers)

    monkeypatch.setattr(launch_agent.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(launch_agent.time, "sleep", lambda _: None)
    caller = SimpleNamespace(connect=connect, trouble="refused")
    found = launch_agent._call(caller)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert found == "connected"
