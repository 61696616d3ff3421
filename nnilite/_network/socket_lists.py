"""The sockets of this machine, which Linux lists with the user of each in /proc/net/tcp and /proc/net/tcp6.

User ids are those of this process's user namespace. A user without an id there is listed with the kernel's overflow id
(65534), which is believed only if all users have an id here.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

_LISTENING, _ESTABLISHED = "0A", "01"
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_UID_MAP = Path("/proc/self/uid_map")
_ALL_USERS = ["0", "0", "4294967295"]

End = tuple[str, int]
"""Address and port of one end of a connection."""


def users_at(theirs: End, ours: End) -> set[int]:
    """Return the users whose programs may be at the other end of a connection; none if that is not known. This blocks.

    Until a program accepts the connection, its socket has no owner, and those count that listen there. To read a list
    takes milliseconds, however short it is, so nothing more is read once the owner is found.
    """
    users: set[int] = set()
    for table in TABLES:
        wide = table.name == "tcp6"
        if ":" in theirs[0] and not wide:
            continue
        end = spell_as_listed(*theirs, wide)
        accepted = (end, spell_as_listed(*ours, wide), _ESTABLISHED)
        anywhere = spell_as_listed("::" if wide else "0.0.0.0", theirs[1], wide)
        try:
            lines = table.read_text("ascii").split("\n")[1:-1]
        except OSError:
            continue
        for line in lines:
            _, own, other, state, _, _, _, user, _, inode, *_ = line.split()
            if (own, other, state) == accepted and inode != "0" and not is_overflow_id(int(user)):
                return {int(user)}
            if state == _LISTENING and own in (end, anywhere):
                users.add(int(user))
    return {user for user in users if not is_overflow_id(user)}


def spell_as_listed(address: str, port: int, wide: bool) -> str:
    """Return an address and port as the kernel prints them: words of four bytes in the machine's order, in hex.

    A program may reach an IPv4 address by an IPv6 socket, which is listed with ::ffff:127.0.0.1.
    """
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address.partition("%")[0])
    if wide and len(packed) == 4:
        packed = b"\0" * 10 + b"\xff\xff" + packed
    words = (int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def is_overflow_id(user: int) -> bool:
    """Return whether this id stands for all users that have none in this user namespace."""
    try:
        return user == int(_OVERFLOW.read_text("ascii")) and _UID_MAP.read_text("ascii").split() != _ALL_USERS
    except (OSError, ValueError):
        return True
