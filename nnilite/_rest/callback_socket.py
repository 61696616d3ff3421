"""The callback for keepers on this machine: a Unix socket, as `nnilite._keeper.local_link` describes it.

Its folder and the socket itself are for this user alone. All the same each request has the token of its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import resource
import socket
from pathlib import Path

from nnilite._answers.backend import Backend
from nnilite._keeper.local_link import SUFFIX, with_short_name
from nnilite._rest import wire
from nnilite._rest.events import events_of
from nnilite._rest.refusal import HttpRefusal, body_of, status_of
from nnilite._rest.route_definition import SERVER_BODY_MAX
from nnilite._rest.server_connections import room
from nnilite._shapes import to_json
from nnilite.errors import NniliteError
from nnilite.records import Json

log = logging.getLogger(__name__)

_BACKLOG = 1024  # as many keepers may call at once after a resume
_JOB_MAX = 200


class CallbackSocket:
    """Listens beside the file with the manager's address, if this system and its disk can do that.

    Without it, keepers use the REST callback.
    """

    def __init__(self, address_file: Path, backend: Backend) -> None:
        self._path = address_file.with_name(address_file.name + SUFFIX)
        self._backend = backend
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._most = room(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2

    async def listen(self) -> None:
        """Begin to serve. What an earlier manager has left there is taken away."""
        listening = None
        try:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with_short_name(str(self._path), listening.bind)
            self._path.chmod(0o600)
            listening.listen(_BACKLOG)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=SERVER_BODY_MAX)
        except OSError as error:
            log.info("trials on this machine report over HTTP, since there is no socket %s: %s", self._path, error)
            if listening is not None:
                listening.close()

    def close(self) -> None:
        """Serve nobody any more. What has not been answered counts as not taken."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                self._path.unlink()
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._most:  # others need file descriptors, too; this keeper goes to the REST callback
            writer.close()
            return
        self._open.add(writer)
        try:
            while line := await reader.readline():
                status, answer = await self._answer(line)
                writer.write(wire.dumps({"status": status, **answer}).encode("ascii") + b"\n")
                await writer.drain()
        except (OSError, ValueError) as error:  # a ValueError is a line without an end
            log.debug("a keeper on this machine: %s", error)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, line: bytes) -> tuple[int, dict[str, Json]]:
        """The status and the body of the answer to one request."""
        try:
            request = wire.loads(line)
            job = self._job_of(request)
            answer = to_json(await self._backend.events(job, events_of(request)))
        except NniliteError as error:
            status = status_of(error)
            return status, body_of(error, status)
        except Exception:
            log.exception("a keeper's report could not be taken")
            return 500, body_of(None, 500)
        return 200, answer

    def _job_of(self, request: Json) -> str:
        """The job that the request proves to be from. Raises: HttpRefusal."""
        job, token = (request.get("job"), request.get("token")) if isinstance(request, dict) else (None, None)
        if not isinstance(job, str) or not isinstance(token, str) or len(job) > _JOB_MAX:
            raise HttpRefusal(401, "a report needs the job and its token")
        known = self._backend.callback_token(job)
        if not hmac.compare_digest(token.encode("utf-8", "replace"), known.encode("ascii")):
            raise HttpRefusal(401, "this is not the token of that job")
        return job
