"""A real manager with few file descriptors, and somebody who takes all the connections there are."""

from __future__ import annotations

import re
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import pause

TRIAL = """
import time, nnilite
p = nnilite.get_next_parameter()
for i in range(10):
    nnilite.report_intermediate_result(i)
    time.sleep(0.05)
nnilite.report_final_result(p["x"])
"""
FILES = 128
HOSTILE = 300  # connections that say nothing, at a time


@contextmanager
def few_files(running: Any, number: int) -> Iterator[None]:
    """Lower the limit of open files of the manager's process."""
    before = resource.prlimit(running.entry.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(running.entry.pid, resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.prlimit(running.entry.pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def hostile(port: int, number: int = HOSTILE) -> Iterator[None]:
    """Opens connections that begin a request and never end it, and new ones for those that are closed."""
    over = threading.Event()

    def attack() -> None:
        links: list[socket.socket] = []
        while not over.wait(0.001):
            link = socket.socket()
            link.setblocking(False)
            link.connect_ex(("127.0.0.1", port))
            links.append(link)
            if len(links) > number:
                links.pop(0).close()
        for link in links:
            link.close()

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ask_again_and_again(running: Any, seconds: float) -> None:
    """Ask the manager by new connections for a while. One that gets no answer within 20 s raises an error."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with running.connect() as client:
            assert client.profile()["state"]
        pause(0.05, "as a person's page would ask")


def check_log(running: Any) -> None:
    log = (running.directory / "log" / "manager.log").read_text()
    assert "Traceback" not in log
    assert len(re.findall("connections are open, and", log)) == 1


def test_half_open_connections_keep_nobody_from_the_manager(start: Any, monkeypatch: Any) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The manager inherits the limit of this process, which may have many files open itself.
    few = max(FILES, len(list(Path("/dev/fd").iterdir())) + 40)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        running = start(TRIAL, maxTrialNumber=6)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with hostile(running.entry.port, few + HOSTILE):
        ask_again_and_again(running, 3.0)
        running.wait("DONE")
    assert [trial["state"] for trial in running.trials()] == ["SUCCEEDED"] * 6
    check_log(running)


def test_a_process_without_free_descriptors_still_answers(start: Any) -> None:
    """Others of the process may use up what was left for them, so that nothing can be accepted."""
    running = start(TRIAL, maxTrialNumber=1)
    running.wait("DONE")
    with few_files(running, 60), hostile(running.entry.port):
        ask_again_and_again(running, 2.0)
    check_log(running)
