"""Runs jobs with the keepers of one fork server, which reports when each one runs, or why it does not.

Such a keeper runs one job after the other, so its process id does not say which job it runs, and only the server can
send it a signal that does not hit the next one: see `nnilite._keeper.fork_server`. The server also has the modules
imported that `preload` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import IO, Any, Callable, NamedTuple, cast

from nnilite.services.worker_side import boot_id, write_private
from nnilite_remote._worker.attempt import HostedAttempt
from nnilite_remote._worker.processes import WorkerRefusal


class _Start(NamedTuple):
    """A start whose outcome the fork server has not reported yet."""

    request: int
    job: str
    folder: str
    server: str


class KeeperStarter:
    """Answers a request to start, with `say`, when the fork server has reported the outcome."""

    def __init__(self, keeper: str, folder: str, say: Callable[[dict[str, Any]], None]) -> None:
        self._keeper = keeper
        self._folder = folder
        self._say = say
        self.name = ""  # unique name of the running or the last server
        self._server: subprocess.Popen[bytes] | None = None
        self._orders = threading.Lock()
        self._preload: dict[str, Any] | None = None  # what every server of this agent is told first
        self._asked_to_preload = 0  # the request that waits for the outcome
        self._at_work: dict[str, str] = {}  # jobs and the name of their server, by what it has said
        self._starting: dict[str, _Start] = {}  # by specification

    def is_starting(self, spec: str) -> bool:
        """Return whether the fork server has not yet reported the outcome for the keeper with this specification."""
        start, server = self._starting.get(spec), self._server
        # A server that has ended will not report it any more.
        return start is not None and start.server == self.name and server is not None and server.poll() is None

    def find_started(self, attempt: HostedAttempt, again: bool) -> dict[str, Any] | None:
        """Return what an earlier request has started, if any. Raises: WorkerRefusal, OSError if nothing was started.

        The manager starts a job on another machine if the answer is that nothing runs here. So where an earlier request
        may have started it, and that cannot be seen now, the refusal says so.
        """
        try:
            known = attempt.find_started()
        except OSError as error:
            if not again:
                raise
            problem = "whether it was started cannot be read in %s: %s" % (attempt.path, error.strerror)
            raise WorkerRefusal(problem, unsure=True) from error
        if known is None and self.is_starting(attempt.spec):
            raise WorkerRefusal("it is still being started", unsure=True)
        return known

    def runs(self, job: str) -> bool:
        """Return whether a keeper of the fork server is at work for the job."""
        return job in self._at_work

    def end(self, job: str, kill: bool = False) -> bool:
        """Have SIGTERM, or SIGKILL, sent to the job's keeper. Return False without a keeper or a fork server."""
        server = self._server
        starting = any(start.job == job for start in list(self._starting.values()))
        if server is None or server.poll() is not None or not (starting or self.runs(job)):
            return False
        try:
            self._write(server, {"end": job, "kill": kill})
        except OSError:
            return False
        return True

    def start(self, request: int, job: str, attempt: HostedAttempt) -> None:
        """Start a keeper. Raises: OSError if no fork server takes the order."""
        self._ensure_server()
        self._starting[attempt.spec] = _Start(request, job, attempt.path, self.name)
        try:
            self._write(cast("subprocess.Popen[bytes]", self._server), {"spec": attempt.spec, "again": True})
        except OSError:
            self._starting.pop(attempt.spec, None)
            raise

    def preload(self, request: int, order: dict[str, Any]) -> None:
        """Have modules imported once for all trials. A request of the number 0 gets no answer, but an event.

        Raises: OSError if the fork server does not answer.
        """
        self._preload, self._asked_to_preload = order, request
        if not self._ensure_server():
            self._write(cast("subprocess.Popen[bytes]", self._server), {"preload": order})

    def _ensure_server(self) -> bool:
        """Start a fork server unless one runs. Return whether it was started now."""
        if self._server is not None and self._server.poll() is None:
            return False
        with open(os.path.join(self._folder, "fork-server.log"), "ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-I", "-S", self._keeper, "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.name = os.urandom(8).hex()
        threading.Thread(target=self._listen, args=(self._server, self.name), daemon=True).start()
        if self._preload is not None:
            self._write(self._server, {"preload": self._preload})
        return True

    def _write(self, server: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
        orders = cast(IO[bytes], server.stdin)
        with self._orders:
            orders.write(json.dumps(order).encode("ascii") + b"\n")
            orders.flush()

    def _listen(self, server: subprocess.Popen[bytes], name: str) -> None:
        for line in cast(IO[bytes], server.stdout):
            event = json.loads(line.decode("utf-8"))
            if event["event"] == "ended":
                self._at_work.pop(event["job"], None)
                self._say({"event": "ended", "job": event["job"]})
            elif event["event"] in ("preloaded", "not preloaded"):
                self._tell_preload(event)
            elif event["event"] != "told":
                self._settle(name, event)
        for job in [job for job, its in list(self._at_work.items()) if its == name]:
            del self._at_work[job]
        problem = "the fork server has ended: see fork-server.log in %s" % self._folder
        if self._asked_to_preload:
            self._say({"id": self._asked_to_preload, "error": problem})
            self._asked_to_preload = 0
        for spec, start in list(self._starting.items()):
            if start.server == name:
                del self._starting[spec]
                # It may have forked the keeper before its end.
                self._say({"id": start.request, "error": problem, "unsure": True})

    def _tell_preload(self, event: dict[str, Any]) -> None:
        """Say whether modules were preloaded: to the request that waits for it, or else unasked."""
        number, self._asked_to_preload = self._asked_to_preload, 0
        if not number:
            self._say(event)
        elif event["event"] == "preloaded":
            self._say({"id": number, "ok": {"memory": event["memory"]}})
        else:
            self._say({"id": number, "error": event["message"], "lasting": True})

    def _settle(self, server: str, event: dict[str, Any]) -> None:
        """Answer the request for a keeper that was started, or was not."""
        for spec, start in list(self._starting.items()):
            if event.get("spec") == spec or event.get("job") == start.job:
                if event["event"] == "started":
                    answer: dict[str, Any] = {"ok": self._note_at_work(server, start, event)}
                else:
                    error = "the keeper was not started: %s" % event.get("message")
                    answer = {"error": error, "lasting": event.get("lasting") is True}
                # Only now: whenever another thread looks, the keeper is starting or at work.
                del self._starting[spec]
                self._say(dict(answer, id=start.request))
                return

    def _note_at_work(self, server: str, start: _Start, event: dict[str, Any]) -> dict[str, Any]:
        """Note that a keeper works at its job. Return the job's handle."""
        self._at_work[start.job] = server
        keeper = {"pid": event["pid"], "start": event["start"], "boot": boot_id()}
        handle = dict(keeper, job=start.job, server=server)
        with contextlib.suppress(OSError):  # the disk is full: the lock tells, too
            write_private(os.path.join(start.folder, "job.json"), json.dumps(handle))
        return handle
