"""The letters of a pool, without a server: whoever has the pool's password can write any."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from nnilite_redis._keys import PoolKeys
from nnilite_redis._mail import Letter, Mailbox

ODD = [b"[" * 100_000, b"\xff", b"7", b'{"ask": [], "from": {}}', b'{"do": "break"}', b""]


class FakePool:
    """Hands out the letters that it is given, one a turn, then waits; `sent` has those to others."""

    def __init__(self, letters: list[Any]) -> None:
        self.keys = PoolKeys("pool")
        self.client = self.reads = self
        self.sent: list[Any] = []
        self._letters = [[(b"1-0", {b"head": letter})] for letter in letters]

    def asking(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def xread(self, streams: dict[str, Any], **options: Any) -> Any:
        if not self._letters:
            await asyncio.Event().wait()
        return [(next(iter(streams)).encode(), self._letters.pop(0))]

    async def take_letters(self, mail: str, last: bytes) -> tuple[int, list[Any]]:
        return 0, []


async def first_good(letters: list[Any], seen: asyncio.Future[Letter], empty: bool = False) -> Letter:
    async def serve(letter: Letter) -> None:
        if letter.text("do") == "break":
            raise OverflowError("a number that no file has")
        if letter.text("do") == "good":
            seen.set_result(letter)

    pool = FakePool([*letters, b'{"do": "good"}'])
    if empty:
        pool._letters.insert(0, [])
    mail = Mailbox(pool, "manager:x", serve)  # type: ignore[arg-type]
    reading = asyncio.create_task(mail.run())
    try:
        return await asyncio.wait_for(seen, 60)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await mail.close()


@pytest.mark.parametrize("letter", ODD, ids=lambda letter: repr(letter[:8]))
async def test_no_letter_ends_the_reading_of_later_ones(letter: bytes) -> None:
    assert await first_good([letter], asyncio.get_running_loop().create_future())


async def test_a_stream_without_letters_ends_no_reading() -> None:
    assert await first_good([], asyncio.get_running_loop().create_future(), empty=True)


async def test_letters_that_make_no_sense_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert await first_good(ODD * 50, asyncio.get_running_loop().create_future())
    assert [record.name for record in caplog.records if record.name != "asyncio"] == ["nnilite_redis._mail"]


async def test_who_asks_for_something_impossible_gets_an_answer_at_once() -> None:
    async def serve(letter: Letter) -> None:
        raise OverflowError("a number that no file has")

    told: list[tuple[str, Letter]] = []
    mail = Mailbox(FakePool([]), "worker:w", serve)  # type: ignore[arg-type]

    async def tell(party: str, letter: Letter) -> str:
        told.append((party, letter))
        return "1-0"

    mail.tell = tell  # type: ignore[method-assign]
    head = json.loads('{"do": "read", "ask": "n", "from": "manager:x"}')
    await mail._respond(Letter(head))
    [(party, answer)] = told
    assert (party, answer.text("answer")) == ("manager:x", "n")
    assert "cannot answer" in answer.text("error")
