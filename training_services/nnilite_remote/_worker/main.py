"""The course of an agent, from start to end."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from nnilite_remote._worker.agent import Agent
from nnilite_remote._worker.processes import NotHere, WorkerRefusal
from nnilite_remote._worker.transfer import fetch, receive, send, send_file


def main() -> None:
    settings = json.loads(sys.stdin.buffer.readline().decode("utf-8"))
    if settings.get("path_front"):
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)

    def say(message: dict[str, Any]) -> None:
        sys.stdout.buffer.write(json.dumps(dict(message, nonce=settings["nonce"])).encode("ascii") + b"\n")
        sys.stdout.buffer.flush()

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        if settings["mode"] == "serve":
            agent = Agent(settings)
            say(agent.hello(settings))
            agent.serve()
        elif settings["mode"] == "receive":
            receive(settings, say)
        elif settings["mode"] == "fetch":
            fetch(settings, say)
        elif settings["mode"] == "send_file":
            send_file(settings, say)
        else:
            send(settings, say)
    except WorkerRefusal as refusal:
        say({"error": str(refusal), "missing": isinstance(refusal, NotHere)})
    except OSError as error:
        place = " (%s)" % error.filename if error.filename else ""
        say({"error": "%s%s" % (error.strerror or error, place), "errno": error.errno})
