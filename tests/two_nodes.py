"""The keepers of a trial on two nodes, both on this machine."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

from keeper_bench import Bench, until

FIRST = {"nodes": 2, "processes": 2, "launcher": "torch", "node": 0}
OTHER = {**FIRST, "node": 1, "first": ["127.0.0.1"]}
SHOW = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $MASTER_ADDR"'
UP = 'echo $$ > "$UP/$RANK"; '


class Nodes:
    """The keepers of both nodes, and what they leave.

    Nodes find each other by ports that follow from the name of the job, and all benches have one secret: a name of its
    own keeps a test from the nodes of another one, which runs at the same time.
    """

    def __init__(self, folder: Path, **distributed: Any) -> None:
        self.distributed = distributed
        self.job = f"nni-exp-{secrets.token_hex(4)}-0"
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
