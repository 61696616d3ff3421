"""The connections between the nodes of a trial, and strangers who connect, listen or stand in between."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from keeper_bench import TOKEN, until
from nnilite._keeper import node_link
from nnilite._keeper.node_link import AGENT, Caller, LinkBroken, NodeConnection, PendingConnection


@pytest.fixture
def pending() -> Iterator[tuple[PendingConnection, socket.socket]]:
    """A connection that has still to prove itself, and the socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as stranger:
        found = PendingConnection(server.accept()[0], TOKEN)
        yield found, stranger
        found.line.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"nonce": "a", "node": 1, "run": "a", "proof": "0" * 64},
        {"nonce": "a", "node": AGENT, "run": "a", "proof": "0" * 64},
        {"nonce": "\ud800", "node": 1, "run": "a", "proof": "0" * 64},
        {"nonce": "a", "node": 1, "run": "\ud800", "proof": "\ud800"},
        {"nonce": "a", "node": "\ud800", "run": "a", "proof": None},
        {"nonce": {}, "node": True, "run": [], "proof": {}},
        [],
    ],
)
def test_a_stranger_who_connects_to_the_first_node_is_sent_away(
    pending: tuple[PendingConnection, socket.socket], answer: Any
) -> None:
    found, stranger = pending
    stranger.sendall(json.dumps(answer).encode() + b"\n")
    with pytest.raises(LinkBroken, match=r"a stranger|not an object"):
        until(found.proven)


def test_a_stranger_who_never_ends_a_line_is_sent_away_after_some_kilobytes(
    pending: tuple[PendingConnection, socket.socket],
) -> None:
    found, stranger = pending
    stranger.sendall(b"x" * 10_000)
    with pytest.raises(LinkBroken, match="too long"):
        until(found.proven)


class Between:
    """A program between two nodes. It has passed their proofs on, so both take it for the other one."""

    def __init__(self, stack: ExitStack) -> None:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        caller = Caller([servers[0].getsockname()], TOKEN, 1, "run", lambda: None)
        caller.call()
        self.to_node = stack.enter_context(servers[0].accept()[0])
        self.to_first = stack.enter_context(socket.create_connection(servers[1].getsockname()))
        pending = PendingConnection(servers[1].accept()[0], TOKEN)
        self.first = pending.line
        stack.callback(self.first.close)
        self.pass_on(self.to_first, self.to_node)
        self.pass_on(self.to_node, self.to_first)
        assert until(pending.proven) == (1, "run")
        self.pass_on(self.to_first, self.to_node)
        self.node: NodeConnection = until(caller.accept)
        stack.callback(self.node.close)

    @staticmethod
    def pass_on(source: socket.socket, target: socket.socket) -> bytes:
        line = source.makefile("rb", buffering=0).readline()
        target.sendall(line)
        return line


@pytest.fixture
def between() -> Iterator[Between]:
    with ExitStack() as stack:
        yield Between(stack)


def test_messages_come_through_in_both_directions_and_in_order(between: Between) -> None:
    for number in range(3):
        between.node.send({"ranks": [number]})
        between.pass_on(between.to_node, between.to_first)
        assert until(between.first.read) == [{"ranks": [number]}]
        between.first.send({"beat": number})
        between.pass_on(between.to_first, between.to_node)
        assert until(between.node.read) == [{"beat": number}]


@pytest.mark.parametrize("forged", [b'{"leaving": "x"}\n', b'0 {"leaving": "x"}\n', b"\xff \xff\n", b"\n", None])
def test_a_program_in_between_can_neither_add_nor_repeat_a_message(between: Between, forged: bytes | None) -> None:
    between.node.send({"ranks": []})
    sent = between.pass_on(between.to_node, between.to_first)
    assert until(between.first.read) == [{"ranks": []}]
    between.to_first.sendall(sent if forged is None else forged)
    with pytest.raises(LinkBroken, match="does not come from a node of this trial"):
        until(between.first.read)


def test_a_message_is_not_taken_by_the_node_that_has_sent_it(between: Between) -> None:
    between.node.send({"leaving": "x"})
    between.pass_on(between.to_node, between.to_node)
    with pytest.raises(LinkBroken, match="does not come from a node of this trial"):
        until(between.node.read)


@pytest.mark.parametrize("said", [b'{"nonce": "\\ud800"}\n', b"hello\n", b"[]\n", b"x" * 5000, b""])
def test_a_stranger_who_listens_on_an_earlier_port_does_not_keep_a_node_from_the_first(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger, socket.create_server(("127.0.0.1", 0)) as server:
        caller = Caller([stranger.getsockname(), server.getsockname()], TOKEN, 1, "run", lambda: None)
        caller.call()
        with stranger.accept()[0] as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            pending = PendingConnection(server.accept()[0], TOKEN)
        assert until(pending.proven) == (1, "run")
        until(caller.accept).close()
        pending.line.close()


def test_a_stranger_who_answers_a_letter_at_a_time_holds_a_node_up_for_some_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nnilite._keeper.node_link._TRY_S", 0.5)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as stranger, socket.create_server(("127.0.0.1", 0)) as server:
        caller = Caller([stranger.getsockname(), server.getsockname()], TOKEN, 1, "run", lambda: None)
        caller.call()
        with stranger.accept()[0] as connection:
            drip = threading.Thread(target=send_slowly, args=(connection, over))
            drip.start()
            server.settimeout(60)
            first = server.accept()[0]
            monkeypatch.undo()
            over.set()
            drip.join()
        pending = meet(first, server)
        until(caller.accept).close()
        pending.line.close()


def meet(connection: socket.socket, server: socket.socket) -> PendingConnection:
    """The connection that proves itself; where a busy machine takes too long, the node calls again."""
    while True:
        try:
            pending = PendingConnection(connection, TOKEN)
            assert until(pending.proven) == (1, "run")
            return pending
        except LinkBroken:
            connection.close()
            connection = server.accept()[0]


def send_slowly(connection: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.1):
        try:
            connection.send(b"x")
        except OSError:
            return


def test_a_node_that_calls_again_before_it_takes_its_connection_makes_no_second_one() -> None:
    made, before = threading.Event(), set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = Caller([server.getsockname()], TOKEN, 1, "run", made.set)
        caller.call()
        pending = PendingConnection(server.accept()[0], TOKEN)
        assert until(pending.proven) == (1, "run")
        assert made.wait(20)
        until(lambda: set(threading.enumerate()) <= before)
        caller.call()
        assert set(threading.enumerate()) <= before
        until(caller.accept).close()
        pending.line.close()


def test_the_last_messages_before_a_connection_is_closed_are_read(
    pending: tuple[PendingConnection, socket.socket],
) -> None:
    found, stranger = pending
    assert stranger.recv(1000)  # a socket that is closed with something unread drops what it has sent
    stranger.sendall(b'{"leaving": "no GPU"}\n')
    stranger.close()
    assert until(found.line.read) == [{"leaving": "no GPU"}]
    with pytest.raises(LinkBroken, match="has closed the connection"):
        found.line.read()


def test_strangers_who_connect_all_the_time_do_not_close_each_connection_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_link, "_MAX_PENDING", 4)
    monkeypatch.setattr(node_link.os, "urandom", lambda count: b"\1" * count)
    connections: list[PendingConnection] = []
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.setblocking(False)
        stack.enter_context(socket.create_connection(server.getsockname()))
        node_link.accept(server, connections, TOKEN)
        node = connections[0]
        for _ in range(10):
            stack.enter_context(socket.create_connection(server.getsockname()))
            node_link.accept(server, connections, TOKEN)
        assert len(connections) == 4
        assert connections[0] is node
        for pending in connections:
            pending.line.close()
