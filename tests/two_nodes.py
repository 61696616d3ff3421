"""The keepers of a trial on two nodes, both on this machine."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from keeper_bench import Bench, until
from nnilite._keeper.node_link import ports_of

FIRST = {"nodes": 2, "processes": 2, "launcher": "torch", "node": 0}
OTHER = {**FIRST, "node": 1, "first": ["127.0.0.1"]}
SHOW = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $MASTER_ADDR"'
UP = 'echo $$ > "$UP/$RANK"; '


def new_job() -> str:
    return f"nni-exp-{secrets.token_hex(4)}-0"


def take_ports(taken: ExitStack, count: int | None = None) -> str:
    """Take the first ports of a job, or all, and return its name: another one where other programs listen on one."""
    while True:
        job = new_job()
        with ExitStack() as mine, suppress(OSError):
            for port in ports_of(job)[:count]:
                mine.enter_context(socket.create_server(("", port)))
            taken.enter_context(mine.pop_all())
            return job


class Nodes:
    """The keepers of both nodes, and what they leave.

    Nodes find each other by ports that follow from the name of the job, and all benches have one secret: a name of its
    own keeps a test from the nodes of another one, which runs at the same time.
    """

    def __init__(self, folder: Path, **distributed: Any) -> None:
        self.distributed = distributed
        self.job = new_job()
        self.up = folder / "up ranks"
        self.up.mkdir()
        (folder / "other").mkdir()
        self.first, self.other = Bench(folder), Bench(folder / "other")

    def start(
        self, command: str, other_env: dict[str, str] | None = None, **more: Any
    ) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        env = {"UP": str(self.up), "PYTHON": self.first.python}
        more = {"job": self.job, "env": env, **more}
        one = self.first.start(command, distributed={**FIRST, **self.distributed}, **more)
        more |= {"distributed": {**OTHER, **self.distributed}, "callback": None, "env": {**env, **(other_env or {})}}
        return one, self.other.start(command, **more)

    def pids(self) -> list[int]:
        """The processes that are up, by rank, once all four are."""
        files = until(lambda: len(found := sorted(self.up.iterdir())) == 4 and found)
        return [int(until(file.read_text)) for file in files]

    def roles(self) -> list[dict[str, Any]]:
        return json.loads((self.first.folder / "roles.json").read_text())

    def log(self, rank: int) -> str:
        return (self.first.folder / "roles" / f"rank-{rank}.log").read_text()
