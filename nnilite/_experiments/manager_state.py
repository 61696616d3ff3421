"""What an experiment's manager wrote last: `<experiment>/manager.json`, written by the manager alone.

It says how to reach the manager, its state, and how it or its experiment ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from nnilite._experiments.documents import read_document
from nnilite.errors import DamagedFile, UnreadableFile
from nnilite.records import ExperimentState

_STATES = {state.value for state in ExperimentState}
_ADDRESS = re.compile(r"https?://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}(/[!-~]*)?")
_LARGEST_PID = 2**31 - 1


@dataclass(frozen=True)
class ManagerState:
    """What a manager wrote last: its address, and how it or its experiment ended."""

    state: str = ""
    created: float | None = None  # the experiment
    ended: float | None = None
    pid: int | None = None
    port: int | None = None
    url: str | None = None
    tls_cert: str | None = None
    # A sentence on what a platform could not end or remove at the stop, with a cure.
    left: str = ""
    mode: str = ""  # "view" for one that only shows the experiment
    viewed: str = ""  # the experiment's own state, while it is only shown


def read_manager(directory: Path) -> ManagerState:
    """Return what the manager of the experiment wrote last; the defaults if it wrote nothing.

    Raises: DamagedFile, UnreadableFile.
    """
    cure = "a running manager writes it again in a moment; if none runs, remove it"
    try:
        document = read_document(directory / "manager.json", cure)
    except FileNotFoundError:
        return ManagerState()
    state, url = document.text("state"), document.text("url")
    if state is not None and state not in _STATES:
        raise document.wrong("state", "the state of an experiment")
    viewed = document.text("viewed")
    if viewed is not None and viewed not in _STATES:
        raise document.wrong("viewed", "the state of an experiment")
    if url is not None and not _ADDRESS.fullmatch(url):
        raise document.wrong("url", "an address such as http://127.0.0.1:8080")
    return ManagerState(
        state=state or "",
        created=document.time("created"),
        ended=document.time("ended"),
        pid=document.whole("pid", 2, _LARGEST_PID),  # a signal to 0, 1 or -1 would go to other processes
        port=document.whole("port", 1, 65535),
        url=url,
        tls_cert=document.text("tls_cert"),
        left=document.text("left") or "",
        mode=document.text("mode") or "",
        viewed=viewed or "",
    )


def find_manager_state(directory: Path) -> ManagerState:
    """Return the same, but the defaults if the file is damaged: the registry complains of it already."""
    try:
        return read_manager(directory)
    except (DamagedFile, UnreadableFile):
        return ManagerState()
