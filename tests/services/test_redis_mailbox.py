"""The messages of a pool, without a server: whoever has the pool's password can write any."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from nnilite_redis._keys import PoolKeys
from nnilite_redis._mailbox import Mailbox, PoolMessage

ODD = [b"[" * 100_000, b"\xff", b"7", b'{"ask": [], "from": {}}', b'{"do": "break"}', b""]


class FakePool:
    """Hands out the messages that it is given, one a turn, then waits; `sent` has those to others."""

    def __init__(self, messages: list[Any]) -> None:
        self.keys = PoolKeys("pool")
        self.client = self.reads = self
        self.sent: list[Any] = []
        self._messages = [[(b"1-0", {b"head": message})] for message in messages]

    def asking(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def xread(self, streams: dict[str, Any], **options: Any) -> Any:
        if not self._messages:
            await asyncio.Event().wait()
        return [(next(iter(streams)).encode(), self._messages.pop(0))]

    async def take_messages(self, mail: str, last: bytes) -> tuple[int, list[Any]]:
        return 0, []


async def first_good(messages: list[Any], seen: asyncio.Future[PoolMessage], empty: bool = False) -> PoolMessage:
    async def serve(message: PoolMessage) -> None:
        if message.text("do") == "break":
            raise OverflowError("a number that no file has")
        if message.text("do") == "good":
            seen.set_result(message)

    pool = FakePool([*messages, b'{"do": "good"}'])
    if empty:
        pool._messages.insert(0, [])
    mail = Mailbox(pool, "manager:x", serve)  # type: ignore[arg-type]
    reading = asyncio.create_task(mail.run())
    try:
        return await asyncio.wait_for(seen, 60)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await mail.close()


@pytest.mark.parametrize("message", ODD, ids=lambda message: repr(message[:8]))
async def test_no_message_ends_the_reading_of_later_ones(message: bytes) -> None:
    assert await first_good([message], asyncio.get_running_loop().create_future())


async def test_a_stream_without_messages_ends_no_reading() -> None:
    assert await first_good([], asyncio.get_running_loop().create_future(), empty=True)


async def test_messages_that_make_no_sense_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert await first_good(ODD * 50, asyncio.get_running_loop().create_future())
    assert [record.name for record in caplog.records if record.name != "asyncio"] == ["nnilite_redis._mailbox"]


async def test_who_asks_for_something_impossible_gets_an_answer_at_once() -> None:
    async def serve(message: PoolMessage) -> None:
        raise OverflowError("a number that no file has")

    told: list[tuple[str, PoolMessage]] = []
    mail = Mailbox(FakePool([]), "worker:w", serve)  # type: ignore[arg-type]

    async def tell(party: str, message: PoolMessage) -> str:
        told.append((party, message))
        return "1-0"

    mail.tell = tell  # type: ignore[method-assign]
    head = json.loads('{"do": "read", "ask": "n", "from": "manager:x"}')
    await mail._respond(PoolMessage(head))
    [(party, answer)] = told
    assert (party, answer.text("answer")) == ("manager:x", "n")
    assert "cannot answer" in answer.text("error")
