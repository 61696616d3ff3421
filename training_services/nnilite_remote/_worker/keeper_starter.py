"""Starts keepers through one fork server, which says of each when it runs or why it does not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import IO, Any, Callable, cast

from nnilite.worker_side import boot_id, write_private
from nnilite_remote._worker.attempt import HostedAttempt


class KeeperStarter:
    """Answers a request to start, by `say`, when the fork server has said what became of it."""

    def __init__(self, keeper: str, folder: str, say: Callable[[dict[str, Any]], None]) -> None:
        self._keeper = keeper
        self._folder = folder
        self._say = say
        self._server: subprocess.Popen[bytes] | None = None
        # by specification: the request, and what the handle needs
        self._starting: dict[str, tuple[int, str, str]] = {}

    def is_starting(self, spec: str) -> bool:
        """Whether the fork server has not yet said what became of the keeper with this specification."""
        return spec in self._starting

    def start(self, request: int, job: str, attempt: HostedAttempt) -> None:
        """Raises: OSError if the fork server cannot be asked."""
        self._starting[attempt.spec] = (request, job, attempt.path)
        try:
            self._order(attempt.spec)
        except OSError:
            self._starting.pop(attempt.spec, None)
            raise

    def _order(self, spec: str) -> None:
        if self._server is None or self._server.poll() is not None:
            with open(os.path.join(self._folder, "fork-server.log"), "ab") as log:
                self._server = subprocess.Popen(
                    [sys.executable, "-I", "-S", self._keeper, "serve"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            threading.Thread(target=self._listen, args=(self._server,), daemon=True).start()
        orders = cast(IO[bytes], self._server.stdin)
        orders.write(json.dumps({"spec": spec}).encode("ascii") + b"\n")
        orders.flush()

    def _listen(self, server: subprocess.Popen[bytes]) -> None:
        for line in cast(IO[bytes], server.stdout):
            event = json.loads(line.decode("utf-8"))
            if event["event"] == "ended":
                self._say({"event": "ended", "job": event["job"]})
            else:
                self._settle(event)
        for spec in list(self._starting):
            number = self._starting.pop(spec)[0]
            self._say({"id": number, "error": "the fork server has ended: see fork-server.log in %s" % self._folder})

    def _settle(self, event: dict[str, Any]) -> None:
        """A keeper was started, or it was not."""
        for spec, (number, job, folder) in list(self._starting.items()):
            if event.get("spec") == spec or event.get("job") == job:
                del self._starting[spec]
                if event["event"] == "started":
                    handle = {"pid": event["pid"], "start": event["start"], "boot": boot_id()}
                    with contextlib.suppress(OSError):  # a full disk: the lock tells, too
                        write_private(os.path.join(folder, "job.json"), json.dumps(handle))
                    self._say({"id": number, "ok": handle})
                else:
                    self._say({"id": number, "error": "the keeper was not started: %s" % event.get("message")})
                return
