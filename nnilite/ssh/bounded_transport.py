"""A connection that holds the other side to the limits of SSH, so that a hostile machine cannot fill the memory here.

Paramiko takes packets of any length, even before it has seen the machine's key, and keeps all that comes for a channel
until it is read, although the other side may only send as much as the channel's window has room for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA
from paramiko.packet import Packetizer
from paramiko.ssh_exception import SSHException

MOST_PACKET_BYTES = 256 << 10
"""As OpenSSH has it. RFC 4253 has each program take 35,000 bytes, and paramiko asks for 32 kB at once."""


class _BoundedPacketizer(Packetizer):  # type: ignore[misc]
    def read_all(self, n: int, check_rekey: bool = False) -> Any:
        """Return the next `n` bytes. Raises: SSHException, EOFError."""
        if n > MOST_PACKET_BYTES:
            raise SSHException(f"it sends a packet of {n} bytes, and SSH allows {MOST_PACKET_BYTES}")
        return super().read_all(n, check_rekey)


def _only_within_window(feed: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return what takes data for a channel, with a check that it has room for all that waits to be read."""

    def feed_within_window(channel: Any, message: Any) -> None:
        waiting = len(channel.in_buffer) + len(channel.in_stderr_buffer)
        if waiting + len(message.get_remainder()) > channel.in_window_size + MOST_PACKET_BYTES:
            raise SSHException("it sends more at once than SSH allows")
        feed(channel, message)

    return feed_within_window


class BoundedTransport(paramiko.Transport):  # type: ignore[misc]
    """Ends the connection when the other side sends more than it may."""

    _channel_handler_table = {
        **paramiko.Transport._channel_handler_table,
        MSG_CHANNEL_DATA: _only_within_window(paramiko.Channel._feed),
        MSG_CHANNEL_EXTENDED_DATA: _only_within_window(paramiko.Channel._feed_extended),
    }

    def __init__(self, sock: Any) -> None:
        super().__init__(sock, packetizer_class=_BoundedPacketizer)
