"""A bench to run real keepers on: a folder with a hostile name, and a manager's callback that can misbehave.

The callback reads batches with the real parser, commits them like a manager (each metric once, in order; a gap is
refused), and does what `script` says with one request after another:

    ok        commit and answer         drop      commit, then cut the connection
    lose      cut the connection        500, 401, 413, 503: answer so, commit nothing
    cancel    commit, ask for the end   410       given up; also for all later requests
    forget    as ok, but first lose all metrics, as a manager whose disk was put back
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from nnilite._keeper import build
from nnilite._keeper.proof import HEADER, digest
from nnilite._rest.callback_proofs import Proofs, SignedRequest
from nnilite._rest.events import parse_batch
from nnilite.errors import ConfigError
from nnilite.records import Exited, KeeperEvent, Output, Reported, Started, Used
from nnilite.testing import eventually as until
from nnilite.testing.listener import PromptServer
from pythons import python_of

HOSTILE = 'it\'s a "trial" $HOME\n`id` \\ ü'
TOKEN = "the token of this trial"
JOB = "nni-exp-Xy12z-0"
LIMIT_S = 100.0
"""For a keeper to end, on a machine where many programs run."""


def pythons() -> list[str]:
    """The Pythons to run the worker side with: this one, the oldest and the newest, where they are installed.

    NNILITE_TEST_WORKER_PYTHONS ("3.8 3.9") names others instead, which have to be installed.
    """
    named = os.environ.get("NNILITE_TEST_WORKER_PYTHONS", "").split()
    found = [python_of(version) for version in named or ("3.8", "3.13")]
    if not named:
        return [sys.executable, *filter(None, found)]
    if None in found:
        raise RuntimeError(f"not all of these Pythons are installed: {', '.join(named)}")
    return list(filter(None, found))


@functools.cache
def zipapp() -> Path:
    """The keeper's zipapp, built once."""
    folder = Path(tempfile.mkdtemp(prefix="keeper-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder / "keeper.pyz", with_storage=True, with_nodes=True)


def once_cut(cap_bytes: int) -> str:
    """Return a shell command that waits until the shell's output, which was over the cap, has been cut."""
    # In the middle of a cut the file has its beginning alone, which is half the cap.
    size = "$(stat -Lc %s /proc/$$/fd/1)"
    return f"until size={size}; [ $size -gt {cap_bytes // 2} ] && [ $size -le {cap_bytes} ]; do sleep 0.05; done"


def running(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


class Callback(PromptServer):
    """The manager's side."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.events: list[KeeperEvent] = []
        self.metrics: list[Reported] = []
        self.uses: list[Used] = []
        self.output = defaultdict(bytes, stdout=b"", stderr=b"")
        self.doubled = 0
        self.requests = 0
        self.largest = 0  # bytes of a request
        self.script: list[str] = []
        self.package: bytes = b""
        self.proofs = Proofs()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def exits(self) -> list[Exited]:
        return [event for event in self.events if isinstance(event, Exited)]

    @property
    def starts(self) -> list[Started]:
        return [event for event in self.events if isinstance(event, Started)]

    @property
    def values(self) -> list[Any]:
        return [metric.value for metric in self.metrics]

    def next_step(self) -> str:
        with self._lock:
            self.requests += 1
            if self.script and self.script[0] in ("410", "forever 500"):
                return self.script[0]
            return self.script.pop(0) if self.script else "ok"

    def commit(self, events: list[KeeperEvent]) -> bool:
        """Take what is new; False at a gap."""
        with self._lock:
            for event in events:
                if isinstance(event, Reported):
                    if event.index > len(self.metrics):
                        return False
                    self._metric(event)
                elif isinstance(event, Output):
                    if event.offset > len(self.output[event.stream]):
                        return False
                    have = len(self.output[event.stream]) - event.offset
                    self.output[event.stream] += event.data[have:]
                elif isinstance(event, Used):
                    self.uses.append(event)
                else:
                    self.events.append(event)
        return True

    def _metric(self, event: Reported) -> None:
        if event.index == len(self.metrics):
            self.metrics.append(event)
        elif self.metrics[event.index] != event:
            self.doubled += 1

    def answer(self, cancel: bool = False) -> dict[str, Any]:
        output = {stream: len(data) for stream, data in self.output.items()}
        return {"cancel": cancel, "metrics": len(self.metrics), "output": output}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keepers are killed in the middle of requests here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Callback
    signed: SignedRequest | None = None  # the request that is answered

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.largest = max(self.server.largest, len(body))
        step = self.server.next_step()
        self.signed = self.server.proofs.read(self.headers["Authorization"], TOKEN, "POST", self.path)
        if self.signed is None or not self.server.proofs.accept(self.path.rpartition("/")[2], self.signed, body):
            self._send(401, {"error": "wrong token"})
        elif step == "lose":
            self._cut()
        elif step == "410":
            self._send(410, {"reason": "given up"})
        elif step.split()[-1].isdigit():
            self._send(int(step.split()[-1]), {"error": "not now"})
        else:
            self._commit(step, body)

    def _commit(self, step: str, body: bytes) -> None:
        if step == "forget":
            self.server.metrics.clear()
        try:
            taken = self.server.commit(parse_batch(body))
        except ConfigError as error:
            self._send(400, {"error": error.message, "field": error.place.field})
            return
        if step == "drop":
            self._cut()
        else:
            self._send(200 if taken else 409, self.server.answer(cancel=step == "cancel"))

    def do_GET(self) -> None:
        path, _, nonce = self.path.partition("?nonce=")
        if path.startswith("/api/v1/callback/") and path.endswith("/proof"):
            self.signed = None
            self._send(200, self.server.proofs.meet(TOKEN, nonce))
            return
        self.signed = self.server.proofs.read(self.headers["Authorization"], TOKEN, "GET", self.path)
        if self.server.next_step() != "ok":
            self._cut()
            return
        self._send(200, self.server.package)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def _send(self, status: int, answer: dict[str, Any] | bytes) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if self.signed is not None:
            self.send_header(HEADER, self.signed.proof(status, digest(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at what came, not at a log."""


class Bench:
    """One attempt, its keepers, and the callback. Whatever still runs is killed at the end."""

    def __init__(self, tmp_path: Path, python: str = sys.executable) -> None:
        self.folder = tmp_path / HOSTILE / "0"
        self.spec_file = tmp_path / "spec.json"
        self.callback = Callback()
        self.python = python
        self._keepers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for keeper in self._keepers:
            keeper.kill()
            keeper.wait()
            for pipe in (keeper.stdin, keeper.stdout, keeper.stderr):
                if pipe:
                    pipe.close()
        started = self.inner("started")
        if started and running(started["pid"]):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(started["pid"], signal.SIGKILL)
        self.callback.shutdown()
        self.callback.server_close()

    def spec(self, command: str, **more: Any) -> Path:
        """Write the specification."""
        spec = {
            "version": 1,
            "experiment": "exp",
            "trial": "Xy12z",
            "attempt": 0,
            "job": JOB,
            "sequence": 3,
            "platform": "local",
            "token": TOKEN,
            "callback": self.callback.url,
            "parameters": {"parameter_id": 7, "parameters": {"x": 0.5}, "parameter_index": 0},
            "command": command,
            "directory": str(self.folder),
            "grace_s": 5,
            "env": {"PYTHON": self.python},
            **more,
        }
        self.spec_file.write_text(json.dumps(spec))
        return self.spec_file

    def start(self, command: str, **more: Any) -> subprocess.Popen[str]:
        """Start a keeper for the command."""
        return self.keeper("run", str(self.spec(command, **more)))

    def keeper(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the zipapp with these arguments."""
        keeper = subprocess.Popen(
            [self.python, "-I", "-S", str(zipapp()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._keepers.append(keeper)
        return keeper

    def run(self, command: str, **more: Any) -> int:
        """Run the command to its end; the keeper's exit code."""
        return self.start(command, **more).wait(LIMIT_S)

    def deliver(self) -> int:
        """Deliver what a dead keeper has left; that keeper's exit code."""
        return self.keeper("deliver", str(self.folder), str(self.spec_file)).wait(LIMIT_S)

    def inner(self, name: str) -> Any:
        """A JSON file of `.nni`; None if it is not there."""
        try:
            return json.loads((self.folder / ".nni" / name).read_text())
        except (OSError, ValueError):
            return None

    def wait_for_start(self) -> int:
        """Wait until the trial writes `up` to its standard output; the pid of the trial."""
        until(lambda: self.text("stdout").startswith("up") and self.inner("started"))
        return int(self.inner("started")["pid"])

    def text(self, stream: str) -> str:
        try:
            return (self.folder / f"trial.{stream}").read_text(errors="replace")
        except OSError:
            return ""
