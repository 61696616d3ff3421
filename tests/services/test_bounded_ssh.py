"""Machines that send more than SSH allows: by packets of gigabytes, or without regard to the window of a channel."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paramiko")

import paramiko
from paramiko.common import cMSG_CHANNEL_DATA, cMSG_CHANNEL_EXTENDED_DATA
from paramiko.ssh_exception import SSHException

from nnilite.ssh.bounded_transport import BoundedTransport
from nnilite.ssh.commands import run_command
from nnilite.ssh.connect import Connection
from nnilite.ssh.errors import LinkLost
from nnilite.testing.bench import LIMIT_S
from services.ssh_tunnel import KEY, Sshd

PIECE = 30_000
WINDOW_BYTES = 2 << 20


class Host(Sshd):
    """Does with the channel of each command what the test says."""

    def __init__(self, do: Any) -> None:
        self.do = do

    def check_channel_request(self, kind: str, number: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        threading.Thread(target=self._do, args=[channel], daemon=True).start()
        return True

    def _do(self, channel: Any) -> None:
        with suppress(EOFError, OSError):  # the other side has hung up
            self.do(channel)


@contextmanager
def connected(do: Any) -> Iterator[BoundedTransport]:
    here, there = socket.socketpair()
    far, near = paramiko.Transport(there), BoundedTransport(here)
    far.daemon = near.daemon = True
    far.add_server_key(KEY)
    far.start_server(event=threading.Event(), server=Host(do))
    near.start_client(timeout=LIMIT_S)
    near.auth_none("me")
    try:
        yield near
    finally:
        near.close()
        far.close()


def say(channel: Any, is_error: bool) -> None:
    """Send a piece of output, whether there is room for it or not."""
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_EXTENDED_DATA if is_error else cMSG_CHANNEL_DATA)
    message.add_int(channel.remote_chanid)
    if is_error:
        message.add_int(1)
    message.add_string(b"x" * PIECE)
    channel.transport._send_user_message(message)


@pytest.mark.parametrize("is_error", [True, False])
def test_who_sends_more_than_a_window_has_room_for_loses_the_connection(is_error: bool) -> None:
    asked = threading.Event()

    def flood(channel: Any) -> None:
        asked.wait(LIMIT_S)
        for _ in range(10 * WINDOW_BYTES // PIECE):
            say(channel, is_error)

    with connected(flood) as near:
        channel = near.open_session(window_size=WINDOW_BYTES)
        channel.exec_command("any")
        asked.set()
        near.join(LIMIT_S)
        assert not near.is_active()
        assert len(channel.in_buffer) + len(channel.in_stderr_buffer) < 2 * WINDOW_BYTES


def test_a_command_that_floods_the_standard_error_is_a_broken_connection() -> None:
    def flood(channel: Any) -> None:
        while channel.transport.is_active():
            say(channel, is_error=True)

    with connected(flood) as near, pytest.raises(LinkLost, match="broke"):
        run_command(Connection([near]), "any", b"", LIMIT_S)


def test_output_within_the_limits_comes_whole(tmp_path: Path) -> None:
    def answer(channel: Any) -> None:
        channel.sendall(b"o" * (5 * WINDOW_BYTES))
        channel.sendall_stderr(b"e" * PIECE)
        channel.send_exit_status(0)
        channel.close()

    with connected(answer) as near:
        found = run_command(Connection([near]), "any", b"", LIMIT_S)
    assert (found.status, len(found.output), len(found.complaint)) == (0, 5 * WINDOW_BYTES, PIECE)


def test_a_packet_of_gigabytes_is_refused_before_it_has_come() -> None:
    here, there = socket.socketpair()
    with there:
        near = BoundedTransport(here)
        near.daemon = True
        there.sendall(b"SSH-2.0-evil\r\n" + (0x7FFFFFF4).to_bytes(4, "big") + bytes(60))
        with pytest.raises(SSHException, match="it sends a packet of 2147483632 bytes"):
            near.start_client(timeout=LIMIT_S)
