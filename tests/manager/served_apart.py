"""A server in a process of its own, whose memory is nobody else's: `python -m manager.served_apart KIND FOLDER`.

It prints a line of JSON with its port and the token of a job, and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from manager.fake_backend import FakeBackend, filled
from nnilite._hub.hub import Hub
from nnilite._hub.hub_server import make_application as hub_application
from nnilite._rest import CallbackSocket, RestApplication, ServerOptions, listen, make_application
from nnilite._running.launch import ManagerOptions

TOKEN = "the token of this server"


def application(kind: str, backend: FakeBackend) -> RestApplication:
    if kind == "hub":
        return hub_application(Hub(), TOKEN, ManagerOptions(), require_token=False)
    return make_application(backend, ServerOptions(own_user=True))


async def serve(kind: str, folder: Path) -> None:
    backend = filled(folder, TOKEN)
    server = listen(application(kind, backend), "127.0.0.1", 0)
    short_way = CallbackSocket(folder / "callback", backend.callbacks)
    await short_way.listen()
    job = backend.find_job("Run01")
    about = {"port": server.port, "job": job, "token": backend.callback_token(job)}
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    short_way.close()
    server.stop()
    await server.close_all_connections()


if __name__ == "__main__":
    os.environ["NNILITE_HOME"] = sys.argv[2]
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
