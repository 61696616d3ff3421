"""Finds out whether this user's own program is at the other end of a connection from this machine.

Linux lists the sockets of a network namespace, with the user of each, in /proc/net/tcp and /proc/net/tcp6. The row of
the other end is the one whose own address is the other end of the connection here. It is read once for a connection
that needs it, in a thread, and kept for the connection's life. If there is no such list (macOS) or no such row (the
other end is in another network namespace, or has gone), the user is unknown, and a token is required.

A row is believed under these conditions:

        ESTABLISHED     a socket that its program has closed has no owner, but is listed as root's
        an inode        a row without one has no owner either
        still connected after the row was read, so that it cannot be that of a later connection with the same numbers

A user who is root only in a user namespace of their own has their real id here.

The program itself is looked for, too: one that forwards ports, or that cannot be found, proves nothing (see
`forwarders`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream

from nnilite._network.socket_lists import TABLES, is_overflow_id, spell_as_listed
from nnilite._rest.forwarders import Programs, forwards

TRIES = 3  # the list is not read at one moment, so a row may be missed while others come and go

_ESTABLISHED = b"01"

Ends = tuple[tuple[str, int], tuple[str, int]]
"""Address and port of a connection's other end, and of this end."""


@dataclass(frozen=True)
class PeerSocket:
    """The socket at the other end of a connection: its user, and its number, which leads to its program."""

    user: int
    inode: str


class Peers:
    """Knows whether a program of one of some users, given by their ids, is at the other end of a connection."""

    def __init__(self, users: Collection[int]) -> None:
        self._users = users
        self._known: WeakKeyDictionary[IOStream, bool] = WeakKeyDictionary()
        self._programs = Programs()
        # It has one thread, so that a client with many connections cannot occupy all threads.
        self._reading = ThreadPoolExecutor(1, "peers")
        self._wanted: dict[Ends, asyncio.Future[bool]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def is_own(self, request: HTTPServerRequest) -> bool:
        """Return whether the request comes from a program of these users itself. Return False if that is not known."""
        stream = getattr(request.connection, "stream", None)
        if not isinstance(stream, IOStream) or _was_forwarded(request):
            return False
        if stream not in self._known:
            self._known[stream] = await self._look(stream)
        return self._known[stream]

    async def _look(self, stream: IOStream) -> bool:
        ends = _ends(stream)
        if ends is None:
            return False
        return await self._is_own_program(ends) and _ends(stream) == ends

    async def _is_own_program(self, ends: Ends) -> bool:
        """Return whether a program of the users themselves is at the other end.

        One look at the lists serves all who wait for it: a stranger with many connections would otherwise keep this
        user waiting behind as many looks.
        """
        loop = asyncio.get_running_loop()
        answer = self._wanted.setdefault(ends, loop.create_future())
        if self._reader is None:
            self._reader = loop.create_task(self._read())
        return await asyncio.shield(answer)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        own: Collection[Ends] = ()
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                try:
                    own = await loop.run_in_executor(self._reading, self._own_among, list(wanted))
                finally:
                    for ends, answer in wanted.items():
                        answer.set_result(ends in own)
        finally:
            self._reader = None

    def _own_among(self, wanted: Collection[Ends]) -> set[Ends]:
        """Return the ends at which a program of the users is, and not one that forwards ports. This blocks."""
        found = {ends: one for ends, one in sockets_of(wanted).items() if one.user in self._users}
        owners = self._programs.find_owners({one.inode: one.user for one in found.values()})
        own = {process for process in owners.values() if not forwards(process)}
        return {ends for ends, one in found.items() if owners.get(one.inode) in own}


def sockets_of(wanted: Iterable[Ends]) -> dict[Ends, PeerSocket]:
    """Return the sockets at the other ends, without those that are unknown. This blocks."""
    sockets: dict[Ends, PeerSocket] = {}
    missing = list(wanted)
    for _ in range(TRIES):
        for table in TABLES:
            sockets |= _listed(table, missing) if missing else {}
            missing = [ends for ends in missing if ends not in sockets]
    return {ends: found for ends, found in sockets.items() if not is_overflow_id(found.user)}


def _listed(table: Path, wanted: Iterable[Ends]) -> dict[Ends, PeerSocket]:
    """Return the sockets by this table, without those that have no row that can be believed."""
    wide = table.name == "tcp6"
    fitting = [ends for ends in wanted if wide or ":" not in ends[0][0]]
    keys = {" ".join(spell_as_listed(*end, wide) for end in ends).encode("ascii"): ends for ends in fitting}
    length = len(next(iter(keys), b""))
    try:
        with table.open("rb", buffering=0) as file:
            lines = (file.readall() or b"").split(b"\n")
    except OSError:
        return {}
    sockets: dict[Ends, PeerSocket] = {}
    for line in lines:
        start = line.find(b": ") + 2  # after the row's number
        ends = keys.get(line[start : start + length])
        if ends is not None and ends not in sockets:
            state, _, _, _, user, _, inode, *_ = line[start + length :].split()
            if state == _ESTABLISHED and inode != b"0":
                sockets[ends] = PeerSocket(int(user), inode.decode("ascii"))
    return sockets


def _ends(stream: IOStream) -> Ends | None:
    """Return the two ends of a connection; None if it is gone."""
    try:
        theirs, ours = stream.socket.getpeername(), stream.socket.getsockname()
        return (theirs[0], theirs[1]), (ours[0], ours[1])
    except (OSError, AttributeError):  # the connection is closed, and tornado has no socket any more
        return None


def _was_forwarded(request: HTTPServerRequest) -> bool:
    """Return whether a proxy says in a header that it forwards the request."""
    names = {name.lower() for name in request.headers}
    return bool(names & {"forwarded", "via", "x-real-ip"}) or any(name.startswith("x-forwarded") for name in names)
