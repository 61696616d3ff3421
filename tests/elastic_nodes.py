"""The keepers of a trial whose nodes come and go, all on this machine."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from keeper_bench import LIMIT_S, Bench, running, until
from waiting import pause

STAY = (
    'echo "start $TORCHELASTIC_RESTART_COUNT: $RANK/$WORLD_SIZE on $NODE_RANK of $NNODES"; '
    'echo $$ > "$UP/$TORCHELASTIC_RESTART_COUNT-$RANK"; '
    'while [ ! -e "$UP/end" ]; do echo intermediate 1 >> "$NNILITE_METRICS"; sleep 0.2; done'
)
"""A rank that shows itself, and stays until all may end."""


class ElasticNodes:
    """The first node's keeper, those of others, and what their processes leave."""

    def __init__(self, folder: Path, asked: int, fewest: int, most: int, **more: Any) -> None:
        self._folder = folder
        self._told = {"nodes": asked, "min": fewest, "max": most, "processes": 1, "launcher": "torch", **more}
        self._job = f"nni-exp-{secrets.token_hex(4)}-0"
        self.up = folder / "up ranks"
        self.up.mkdir()
        self.benches: list[Bench] = []
        self.keepers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> ElasticNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bench in self.benches:
            bench.__exit__(kind, error, trace)

    def add(self, command: str, **more: Any) -> subprocess.Popen[str]:
        """Start the keeper of a further node; the first one comes first."""
        number = len(self.benches)
        place = self._folder / str(number)
        place.mkdir()
        bench = Bench(place)
        env = {"UP": str(self.up), "PYTHON": bench.python}
        told = {**self._told, "node": number, **({"first": ["127.0.0.1"]} if number else {})}
        alone = {"callback": None} if number else {}
        self.benches.append(bench)
        self.keepers.append(bench.start(command, job=self._job, env=env, distributed=told, **{**alone, **more}))
        return self.keepers[-1]

    @property
    def first(self) -> Bench:
        return self.benches[0]

    def wait_for(self, start: int, ranks: int, limit_s: float = LIMIT_S) -> list[int]:
        """Wait for a start of so many ranks, no more and no fewer; their processes."""
        until(lambda: len(list(self.up.glob(f"{start}-*"))) == ranks, limit_s)
        files = [self.up / f"{start}-{rank}" for rank in range(ranks)]
        return [int(until(file.read_text)) for file in files]

    def let_end(self) -> None:
        (self.up / "end").touch()

    def lose(self, number: int) -> None:
        """Kill a node with all that it runs, as a machine that is taken away."""
        group = self._group(number)
        self.keepers[number].kill()
        subprocess.run(["pkill", "-KILL", "-g", str(group)], check=False)

    def _group(self, number: int) -> int:
        """The process group of a node's processes, once it has started."""
        return int(until(lambda: self.benches[number].inner("started"))["pid"])

    def kill_a_rank_of(self, number: int) -> None:
        """Kill one process of a node's, if it has one now."""
        subprocess.run(["pkill", "-KILL", "-n", "-P", str(self._group(number))], check=False)

    def stop_for(self, number: int, seconds: float) -> None:
        """Stop a node with all that it runs for so long, as a machine that hangs."""
        group, keeper = self._group(number), self.keepers[number]
        for name in ("STOP", "CONT"):
            subprocess.run(["pkill", f"-{name}", "-g", str(group)], check=False)
            if keeper.poll() is None:
                keeper.send_signal(getattr(signal, f"SIG{name}"))
            if name == "STOP":
                pause(seconds, "the node hangs")

    def roles(self) -> list[dict[str, Any]]:
        return json.loads((self.first.folder / "roles.json").read_text())

    def check_nothing_runs(self) -> None:
        pids = [int(file.read_text() or 0) for file in self.up.glob("*-*")]
        until(lambda: not any(map(running, pids)))
