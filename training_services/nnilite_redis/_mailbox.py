"""Send messages between managers and workers, which never connect to each other: each party reads one stream.

A message may get lost (the server dies, its reader is gone) and is not sent again from here: lasting facts are in a
job's record or in a trial's folder, and messages only make things quick. A party that asks waits for the answer for
some time and then takes its question back, so that questions do not pile up for an unavailable reader.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nnilite.errors import NniliteError, ServiceError
from nnilite.records import Json
from nnilite.services.keeper_events import count_values
from nnilite.services.task_ends import end_tasks
from nnilite_redis._api import Pool

log = logging.getLogger(__name__)

_TURN_MS = 3000
_PRESENT_S = 15  # longer than some turns, shorter than people are willing to wait
_PAUSE_S = 1.0
_KEPT_S = 3600
_MOST_MESSAGES = 1000
_MOST_HEAD_BYTES = 24_000_000
_MOST_HEAD_VALUES = 100_000  # 10,000 files that are listed are 60,000
_MOST_AT_ONCE = 256  # messages whose answers are not ready
_TELL_EVERY_S = 60.0


@dataclass(frozen=True)
class PoolMessage:
    """A message from one party to another: `head` is JSON, `data` may be anything."""

    head: Mapping[str, Json]
    data: bytes = b""

    def text(self, name: str) -> str:
        """Return a text of the head; "" if it has none."""
        value = self.head.get(name)
        return value if isinstance(value, str) else ""


Serve = Callable[[PoolMessage], Awaitable[PoolMessage | None]]
"""Takes a message; what it returns is the answer. It may raise an NniliteError, which is an answer too."""


class Mailbox:
    """One party's messages. `run` reads them; everything else may be called while it does."""

    def __init__(self, pool: Pool, party: str, serve: Serve, presence: str = "") -> None:
        self.party = party
        self._pool = pool
        self._serve = serve
        self._presence = presence  # the key that says that somebody reads here
        self._asked: dict[str, asyncio.Future[PoolMessage]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._odd_logged_s = -_TELL_EVERY_S

    async def run(self, bell: Callable[[], None] | None = None) -> None:
        """Read until canceled. `bell`, if given, is called when a job was queued, and when the server is back."""
        keys, client = self._pool.keys, self._pool.client
        streams: dict[Any, Any] = {keys.mail(self.party): "0-0", **({keys.bell: "0-0"} if bell else {})}
        trouble = ""
        while True:
            try:
                if self._presence:
                    with self._pool.asking():
                        await client.set(self._presence, "1", ex=_PRESENT_S)
                if (await self._turn(streams) or trouble) and bell is not None:
                    bell()
                trouble = ""
            except NniliteError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("%s", error)
                await asyncio.sleep(_PAUSE_S)

    async def _turn(self, streams: dict[Any, Any]) -> bool:
        """Wait for messages and deliver them to their handlers; return whether the bell was rung."""
        keys, client = self._pool.keys, self._pool.client
        rung = False
        while len(self._tasks) >= _MOST_AT_ONCE:  # else a flood of messages fills the memory
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        with self._pool.asking():
            # One of each stream at a time, as there is no limit of the bytes that come.
            for name, entries in await client.xread(streams, count=1, block=_TURN_MS) or []:
                if not entries:  # a stream that somebody has just put there has none
                    continue
                [(entry, fields)] = entries
                if name.decode() == keys.bell:
                    streams[keys.bell] = await self._pool.reads.last_ring(keys.bell, entry)
                    rung = True
                    continue
                self._receive(fields)
                dropped, messages = await self._pool.reads.take_messages(name.decode(), entry)
                for _, more in messages:
                    self._receive(more)
                if dropped and self._may_tell():
                    log.warning(
                        "%d messages to %s are longer than any of nnilite; they are dropped", dropped, self.party
                    )
        return rung

    def _receive(self, fields: Mapping[bytes, bytes]) -> None:
        try:
            head = _read_head(fields.get(b"head") or b"")
        except (ValueError, TypeError, AttributeError, RecursionError):  # else it comes again, with those before it
            head = None
        if not isinstance(head, dict):
            if self._may_tell():
                log.warning("there are invalid messages to %s", self.party)
            return
        message = PoolMessage(head, fields.get(b"data") or b"")
        if message.text("answer"):
            waiting = self._asked.get(message.text("answer"))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            return
        task = asyncio.get_running_loop().create_task(self._respond(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _may_tell(self) -> bool:
        """Return whether a message that makes no sense gets a line in the log: once a minute, or it fills the disk."""
        now = time.monotonic()
        may = now - self._odd_logged_s >= _TELL_EVERY_S
        if may:
            self._odd_logged_s = now
        return may

    async def _respond(self, message: PoolMessage) -> None:
        try:
            answer = await self._serve(message)
        except NniliteError as error:
            answer = PoolMessage({"error": str(error), "kind": type(error).__name__})
        except Exception as error:
            # Anyone with the pool's password may have written this message, so it may hold anything.
            if self._may_tell():
                log.warning("there are invalid messages to %s", self.party, exc_info=error)
            answer = PoolMessage({"error": f"{self.party.replace(':', ' ')} cannot answer this message"})
        sender, number = message.text("from"), message.text("ask")
        if answer is None or not (sender and number):
            return
        try:
            await self.tell(sender, PoolMessage({**answer.head, "answer": number}, answer.data))
        except NniliteError as error:
            log.info("an answer to %s was not sent: %s", sender, error)

    async def tell(self, party: str, message: PoolMessage) -> str:
        """Send a message; return its entry. Raises: ServiceError."""
        key = self._pool.keys.mail(party)
        fields: dict[Any, Any] = {"head": json.dumps({**message.head, "from": self.party})}
        if message.data:
            fields["data"] = message.data
        with self._pool.asking():
            async with self._pool.client.pipeline(transaction=False) as pipe:
                pipe.xadd(key, fields, maxlen=_MOST_MESSAGES, approximate=True)
                pipe.expire(key, _KEPT_S)
                entry, _ = await pipe.execute()
            return str(entry.decode())

    async def ask(self, party: str, message: PoolMessage, limit_s: float) -> PoolMessage:
        """Send a message and wait for its answer. Raises: ServiceError, also if there is none in time."""
        number = secrets.token_hex(8)
        answer: asyncio.Future[PoolMessage] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        entry = ""
        try:
            entry = await self.tell(party, PoolMessage({**message.head, "ask": number}, message.data))
            found = await asyncio.wait_for(answer, limit_s)
        except asyncio.TimeoutError:
            raise ServiceError(f"{party.replace(':', ' ')} did not answer within {limit_s:.0f} s") from None
        finally:
            del self._asked[number]
            if entry and not (answer.done() and not answer.cancelled()):
                await self._take_back(party, entry)
        return found

    async def _take_back(self, party: str, entry: str) -> None:
        try:
            with self._pool.asking():
                await self._pool.client.xdel(self._pool.keys.mail(party), entry)
        except NniliteError as error:
            log.debug("a question to %s stays: %s", party, error)

    async def clear(self) -> None:
        """Delete the messages to an earlier party of this name: no sender waits for answers. Raises: ServiceError."""
        with self._pool.asking():
            await self._pool.client.delete(self._pool.keys.mail(self.party))

    async def close(self) -> None:
        """Break off what is being answered."""
        await end_tasks(self._tasks)


def _read_head(text: bytes) -> Json:
    """Parse a message's head. Raises: ValueError, also if the event loop would stand still over it."""
    if len(text) > _MOST_HEAD_BYTES or count_values(text) > _MOST_HEAD_VALUES:
        raise ValueError("no message of nnilite is as long")
    found: Json = json.loads(text)
    return found
