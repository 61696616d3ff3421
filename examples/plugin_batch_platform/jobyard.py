"""Jobyard, the platform of this example, on this machine: a job is a process, and nobody else can log in.

It stands for a platform of yours in the tests, and can misbehave, as the real one does now and then. To try it by hand:

    python jobyard.py FOLDER PORT        prints its address; the token is in JOBYARD_TOKEN
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil

from nnilite.testing.listener import Handler, Listener

TOKEN = os.environ.get("JOBYARD_TOKEN", "the token of the example")
GRACE_S = 10.0


class Job:
    """A process, which begins when there is room for it."""

    def __init__(self, name, body, folder):
        self.name, self.body, self.folder = name, body, folder
        self.process = None
        self.started = self.ended = self.kill_at = None
        self.order = ""  # what has been asked for: stopped or evicted
        self.pretended = ""  # a state that the test gives it

    def start(self):
        """Run the command, with a folder of its own for the disk of a container."""
        self.folder.mkdir(parents=True)
        self.started = time.time()
        command = self.body["command"].replace("/tmp/nnilite/", f"{self.folder}/disk/")
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **self.body["environment"]}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, order="stopped"):
        """Ask for its end: softly at first if it runs."""
        if not self.ended and not self.order:
            self.order, self.kill_at = order, time.monotonic() + (GRACE_S if order == "stopped" else 0.0)
            if self.process and order == "stopped":
                self.process.send_signal(signal.SIGTERM)

    def look(self, room):
        """Begin or end, if it is time."""
        if self.ended:
            return
        if self.process is None:
            if self.order:
                self.ended = time.time()
            elif room:
                self.start()
        elif self.process.poll() is not None or (self.kill_at and time.monotonic() > self.kill_at):
            self.end()

    def end(self):
        """Leave nothing of it, whatever sessions its processes have made."""
        self.ended = self.ended or time.time()
        if self.process is None:
            return
        left = []
        with contextlib.suppress(psutil.NoSuchProcess):
            left = psutil.Process(self.process.pid).children(recursive=True)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.kill()
        self.process.wait()

    def shown(self):
        """What the interface tells of it."""
        reasons = {"queued": "waits for a node of the yard", "evicted": "its node was taken away"}
        state = self.pretended or self.state()
        times = {"started": self.started, "ended": self.ended}
        node = "yard-7" if self.started else ""
        return {"name": self.name, "state": state, "reason": reasons.get(state, ""), "node": node, **times}

    def state(self):
        """One of those that Jobyard has."""
        if not self.ended:
            return "stopping" if self.order else "running" if self.process else "queued"
        return self.order or ("failed" if self.process.returncode else "done")


class Jobyard:
    """Listens at `url` while it is used as a context manager."""

    def __init__(self, folder, port=0):
        self.folder, self.port = folder, port
        self.jobs = {}
        self.has_room = True
        self.loses_answers = 0  # take so many jobs, and break the connection instead of answering
        self.refusals = []  # a method, the number of slashes in the path, and the status that answers such requests
        self.listener = Listener(YardHandler, self)

    @property
    def url(self):
        """Its address."""
        return self.listener.url

    def __enter__(self):
        self.listener.start(self.port)
        return self

    def __exit__(self, *_):
        self.listener.stop()
        for job in self.jobs.values():
            job.end()

    def answer(self, method, path, query, body):
        """Status and content of an answer."""
        for job in list(self.jobs.values()):
            job.look(self.has_room)
        if path == "/user":
            return 200, {"name": "mei"}
        if path == "/jobs":
            return 200, [job.shown() for job in list(self.jobs.values()) if job.body["group"] == query["group"]]
        name, _, part = path.removeprefix("/jobs/").partition("/")
        if method == "PUT" and not part:
            job = self.jobs.setdefault(name, Job(name, body, self.folder / name))
            job.look(self.has_room)
            return 200, job.shown()
        job = self.jobs.get(name)
        if job is None:
            return 404, {"error": f"no job {name}"}
        if part == "log":
            log = self.folder / name / "log"
            return 200, log.read_bytes()[int(query["from"]) :] if log.exists() else b""
        if part == "stop":
            job.stop()
        return 200, job.shown()


class YardHandler(Handler):
    """One connection."""

    def do_GET(self):
        """Answer a request of any method."""
        yard, parts, data = self.owner, urlsplit(self.path), self.body()
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        kind = (self.command, parts.path.count("/"))
        refused = next((status for *known, status in yard.refusals if (*known,) == kind), None)
        if refused or self.token() != TOKEN:
            self.tell(refused or 401, {"error": "not today"})
            return
        answer = yard.answer(self.command, parts.path, query, json.loads(data) if data else None)
        if self.command == "PUT" and yard.loses_answers:
            yard.loses_answers -= 1
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.tell(*answer)

    do_PUT = do_GET

    def tell(self, status, content):
        """Send an answer."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send(status, "application/octet-stream", data)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Jobyard(Path(sys.argv[1]).absolute(), int(sys.argv[2])) as yard:
        print(yard.url, flush=True)
        signal.pause()
