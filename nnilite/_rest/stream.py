"""The live stream: a WebSocket that sends changes in bunches.

Each message is `{"changes": [...]}`, and each change has a whole new state, as `{"type": "trial", "trial": {...}}`, so
it is harmless to send one twice. A reader connects first, reads the state by the ordinary routes, and then applies the
changes. After `{"type": "reset"}` changes are missing: read the state again (`afterRevision` gets the differences).
While nothing changes, a message without changes comes every ten seconds: a manager that was stopped sends none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from nnilite._answers.changes import Change, Subscription
from nnilite._loop_waits import limited
from nnilite._rest import wire
from nnilite._rest.auth import STREAM_PROTOCOL
from nnilite._rest.handler import BaseHandler, ManagerContext
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.route_definition import Route, read_query
from nnilite._rest.server_connections import hang_up
from nnilite.records import Metric, strict_json

log = logging.getLogger(__name__)

_TOO_MANY = "too many live streams are open; close other windows of this experiment"
_TRY_AGAIN_LATER = 1013  # a close code of WebSocket


class StreamHandler(BaseHandler, WebSocketHandler):
    """One reader of the stream. Its own messages are ignored."""

    context: ManagerContext

    def initialize(self, context: ManagerContext, route: Route) -> None:  # type: ignore[override]
        self.context = context
        self.route = route
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None

    async def check(self) -> None:
        await self.context.gate.check(self.request, self.route.access)
        if self.request.method != "GET":
            raise HTTPError(405)
        if self._is_one_too_many():
            raise HttpRefusal(503, _TOO_MANY)
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise HttpRefusal(426, "this address accepts only WebSocket")
        self.query = read_query(self.route.operations["GET"].query, self.request.query_arguments)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Choose the protocol of this stream. What else a page offers is its ticket, which is not repeated."""
        return STREAM_PROTOCOL if STREAM_PROTOCOL in subprotocols else None

    def check_origin(self, origin: str) -> bool:
        return True  # `check` has checked the origin, as for all requests

    def open(self, *args: str, **kwargs: str) -> None:
        """Count the stream here: of many simultaneous requests, all may pass `check` before the first one gets here."""
        if self._is_one_too_many():
            self.close(_TRY_AGAIN_LATER, _TOO_MANY)
            return
        self.context.streams.open += 1
        self._subscription = self.context.backend.subscribe()
        self._task = asyncio.get_running_loop().create_task(self._send_changes(self._subscription))

    def _is_one_too_many(self) -> bool:
        return self.context.streams.open >= self.context.options.streams_max

    def on_message(self, message: str | bytes) -> None:
        """Ignore messages of the reader."""

    def on_close(self) -> None:
        """End the stream. Tornado also calls this for a connection that never became a stream."""
        if self._subscription is None or self._task is None:
            return
        self.context.streams.open -= 1
        self._subscription.close()
        self._task.cancel()

    async def _send_changes(self, subscription: Subscription) -> None:
        """Send changes until the reader leaves. Waiting for each write keeps at most one message in flight."""
        sent = time.monotonic()
        try:
            while True:
                due = sent + self.context.options.stream_silence_s
                changes = await _take_until(due, subscription)
                wanted = [change for change in changes if self.query["metrics"] or not isinstance(change, Metric)]
                if wanted or time.monotonic() >= due:
                    await self._send(wanted)
                    sent = time.monotonic()
                await asyncio.sleep(self.context.options.stream_interval_s)
        except WebSocketClosedError:
            log.debug("a reader of the live stream has gone")

    async def _send(self, changes: Sequence[Change]) -> None:
        message = strict_json.spell_json({"changes": [wire.change(change) for change in changes]})
        try:
            await asyncio.wait_for(self.write_message(message), self.context.options.reader_timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            log.info("a reader of the live stream no longer reads; closing its connection")
            hang_up(self.request)
            raise WebSocketClosedError from None


async def _take_until(due: float, subscription: Subscription) -> Sequence[Change]:
    """Return the next changes; none if there are none until this time of `time.monotonic`."""
    try:
        return await limited(max(0.0, due - time.monotonic()), subscription.next())
    except asyncio.TimeoutError:
        return ()
