"""The ports of servers that tests start, of which no two processes get the same."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite.testing import ports

pytestmark = pytest.mark.process

TAKES = f"""
import os, sys

sys.path.insert(0, {str(Path(ports.__file__).parent)!r})
import ports

ports._FIRST, ports._LAST, ports._BLOCK = map(int, sys.argv[1:4])
ports._HOST = sys.argv[5] if sys.argv[5:] else ports._HOST
try:
    print(*ports.free_ports(int(sys.argv[4])), flush=True)
except OSError as error:
    print(error, flush=True)
"""
AND_STAYS = TAKES + "sys.stdin.read()\n"
AND_FORKS = f"""{TAKES}
if (child := os.fork()) == 0:
    print(*ports.free_ports(3), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
EVERYWHERE = (ports._FIRST, ports._LAST, ports._BLOCK)
IP_LOCAL_PORT_RANGE = 51  # of Linux 6.3 and later; the ports that a connection may have as its near end


@contextlib.contextmanager
def started(program: str, *words: object) -> Iterator[Iterator[str]]:
    """The lines of a program that ends with the block."""
    command = [sys.executable, "-S", "-c", program, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield map(str.strip, running.stdout)


def test_processes_that_run_at_once_have_no_port_in_common_however_many_they_take() -> None:
    with started(AND_STAYS, *EVERYWHERE, 250) as first, started(AND_STAYS, *EVERYWHERE, 250) as second:
        taken = [*next(first).split(), *next(second).split(), *map(str, ports.free_ports(3))]
    assert len({*taken}) == 503


def test_what_was_forked_has_other_ports_than_its_parent() -> None:
    with started(AND_FORKS, *EVERYWHERE, 3) as lines:
        assert len({*next(lines).split(), *next(lines).split()}) == 6


def test_the_ports_of_a_process_are_its_own_until_it_ends() -> None:
    first, *_ = ports._lease_block()  # which no other test gets
    # At this address no connection has its near end, which may be at any port.
    order = (first, first + 2, 2, 1, "127.77.0.1")
    with started(AND_STAYS, *order) as owner:
        assert next(owner) == str(first + 1)
        with started(TAKES, *order) as other:
            assert next(other) == f"all ports from {first} to {first + 2} are in use"
    with started(TAKES, *order) as later:
        assert next(later) == str(first + 1), "the lease ends with its process"


def test_no_connection_has_a_leased_port_as_its_near_end_and_its_server_may_come_and_go() -> None:
    port = ports.free_port()
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split())
    if first <= port <= last:  # else the system gives it to no connection
        with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as link:
            try:
                link.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("@I", port << 16 | port))
            except OSError:
                pytest.skip("Linux before 6.3 takes no wish for the near end of one connection")
            with pytest.raises(OSError, match="Cannot assign requested address"):
                link.connect(other.getsockname())
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()


def test_a_port_that_is_in_use_is_passed_over_and_one_comes_again_after_all_others() -> None:
    with socket.create_server(("127.0.0.1", port := ports.free_port())):
        found = [ports.free_port() for _ in range(3 * ports._BLOCK)]
    assert port not in found
    places = [place for place, one in enumerate(found) if one == found[0]]
    for begin, end in itertools.pairwise(places):
        assert len({*found[begin:end]}) == end - begin, "another port came twice before"
