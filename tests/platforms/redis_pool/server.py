"""A real redis-server in a folder of its own, which can be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import redis

from nnilite.testing import eventually
from nnilite.testing.ports import free_port

ADMIN = "it's $admin\\"
"""The password of the default user, where one is set."""


def missing() -> str:
    """Why there can be no server here; "" if there can."""
    return "" if shutil.which("redis-server") else "there is no redis-server (Debian: apt-get install redis-server)"


class Server:
    """Keeps its data in `folder`, by an append-only file. The port stays the same from one start to the next."""

    def __init__(self, folder: Path, *settings: str, password: str = "") -> None:
        self.folder = folder
        self.password = password
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def config(self) -> dict[str, str]:
        """The settings that a test may replace."""
        return {"port": str(self.port)}

    def start(self) -> None:
        lines = [f"{name} {value}" for name, value in self.config().items()]
        lines += ["bind 127.0.0.1", "appendonly yes", "appendfsync everysec", f'dir "{self.folder}"', *self._settings]
        if self.password:
            lines.append('requirepass "' + self.password.replace("\\", "\\\\") + '"')
        place = self.folder / "redis.conf"
        place.write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(["redis-server", str(place)], stdout=log, stderr=log)
        eventually(self.answers)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password or None, socket_timeout=5)

    def answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError((self.folder / "log").read_text()[-2000:])
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def settle(self) -> None:
        """Wait until workers take jobs: not in the first seconds of a server."""
        with self.client() as client:
            eventually(lambda: client.info("server")["uptime_in_seconds"] > 6)

    def kill(self) -> None:
        """As a crash: what was not written to the disk within the last second is lost."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(60)

    def forget(self) -> None:
        """A crash that takes all data with it."""
        self.kill()
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(60)
