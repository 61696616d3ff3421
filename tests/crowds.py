"""A crowd of callers without a proof, and what a process takes while they are there.

The callers are one program of another user, or of this one, which keeps up a number of connections of one kind and
opens new ones for those that are closed.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from other_user import known_user, shared_python
from waiting import pause

log = logging.getLogger(__name__)

CALLERS = 1000
SECONDS = 1.0
AGAIN_A_S = 500  # so many of those that were closed come again in a second
MB = 1 << 20
ANSWER_S = 2.0
"""So long an answer may take beside three other test processes, and half as long on a calm machine. The time in which
server and asker wait for a processor that others use does not count."""
SLOWEST_S = 5.0
"""The same for the slowest of all answers: on a busy machine one falls into a pause of the whole process."""
KINDS = ("silent", "head", "body", "byte by byte")

CROWD = r"""
import errno, json, resource, select, socket, sys, time
family, place, kind, head, count, seconds, again_a_s = json.load(sys.stdin)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
place = tuple(place) if isinstance(place, list) else place
head, piece = head.encode(), b"x" * 65536
poll, links, made = select.epoll(), {}, 0
began, last_byte = time.monotonic(), 0.0
end = began + seconds
def begin():
    global made
    link = socket.socket(getattr(socket, family))
    link.setblocking(False)
    made += 1
    if link.connect_ex(place) in (0, errno.EINPROGRESS):
        links[link.fileno()] = [link, {"silent": b"", "head": head[:-2], "body": head, "byte by byte": b""}[kind]]
        poll.register(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if kind in ("head", "body") else 0))
    else:
        link.close()
def leave(number):
    poll.unregister(number)
    links.pop(number)[0].close()
while time.monotonic() < end or (made < count and time.monotonic() < end + 30):
    for _ in range(min(50, count - len(links))):
        if made < count + again_a_s * (time.monotonic() - began):
            begin()
    for number, event in poll.poll(0.02):
        link, left = links[number]
        try:
            if event & select.EPOLLIN and not link.recv(65536):
                leave(number)
                continue
            if event & select.EPOLLOUT:
                sent = link.send(left or piece)
                links[number][1] = left[sent:]
                if kind == "head" and not links[number][1]:
                    poll.modify(number, select.EPOLLIN)
        except BlockingIOError:
            pass
        except OSError:
            leave(number)
    if kind == "byte by byte" and time.monotonic() > last_byte + 0.2:
        last_byte = time.monotonic()
        for number, (link, _) in list(links.items()):
            try:
                link.send(b"P")
            except BlockingIOError:
                pass
            except OSError:
                leave(number)
print(made)
"""


@dataclass
class Burden:
    """What a process has had to bear: by how much its memory has grown, threads, and its slowest answer."""

    megabytes: float
    threads: int
    usual_s: float  # the median answer, without the time in which others had the processors
    slowest_s: float  # the same for the slowest one
    wall_s: float

    @property
    def answers(self) -> bool:
        """Whether somebody who may ask was answered in time."""
        return self.usual_s < ANSWER_S and self.slowest_s < SLOWEST_S

    def __str__(self) -> str:
        times = (
            f"answers {self.usual_s:.2f} s, the slowest {self.slowest_s:.2f} (with the others' turns {self.wall_s:.2f})"
        )
        return f"{self.megabytes:+.1f} MB, {self.threads} threads, {times}"


@contextmanager
def crowd(
    place: Any, kind: str, head: str, *, user: str | None = None, family: str = "AF_INET", again_a_s: int = AGAIN_A_S
) -> Iterator[None]:
    """Callers of one kind, until the block ends, and that ends after `SECONDS`."""
    who: dict[str, Any] = {}
    if user is not None:
        account = known_user(user)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
    pipe = subprocess.PIPE
    program = subprocess.Popen([shared_python(), "-I", "-S", "-c", CROWD], stdin=pipe, stdout=pipe, **who)
    try:
        assert program.stdin is not None
        program.stdin.write(json.dumps([family, place, kind, head, CALLERS, SECONDS, again_a_s]).encode())
        program.stdin.close()
        yield
        assert program.stdout is not None
        made = int(program.stdout.read() or 0)
        log.info("%.0f callers a second", made / SECONDS)
        assert program.wait(60) == 0
        assert made >= CALLERS
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def _waited_s(pid: int) -> float:
    """For how long the event loop of a process and this thread have waited for a processor so far."""
    places = (f"/proc/{pid}/task/{pid}/schedstat", f"/proc/self/task/{threading.get_native_id()}/schedstat")
    return sum(int(Path(place).read_text().split()[1]) for place in places) / 1e9


def burden(pid: int, attack: Any, ask: Callable[[], object]) -> Burden:
    """What the process bears during an attack, while somebody who may `ask` does so again and again."""
    process, over = psutil.Process(pid), threading.Event()
    ask()
    before = most = process.memory_info().rss
    threads, own_s, wall_s = process.num_threads(), [], 0.0

    def watch() -> None:
        nonlocal most, threads
        while not over.wait(0.02):
            most = max(most, process.memory_info().rss)
            threads = max(threads, process.num_threads())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with attack:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                asked, waited = time.monotonic(), _waited_s(pid)
                ask()
                took_s = time.monotonic() - asked
                wall_s = max(wall_s, took_s)
                own_s.append(took_s - (_waited_s(pid) - waited))
                pause(0.1, "as a person's page would ask")
    finally:
        over.set()
        watcher.join()
    found = Burden((most - before) / MB, threads, statistics.median(own_s), max(own_s), wall_s)
    log.info("%s", found)
    return found
