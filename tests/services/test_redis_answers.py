"""A Redis that answers anything, as behind a broken proxy: each command gets an answer of some type, or an error."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace

import pytest

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, ServiceError
from nnilite.services.slots import SlotTerms
from nnilite_redis import RedisConfig
from nnilite_redis._api import ClaimedJob, Pool
from nnilite_redis._connection import RedisAddress
from nnilite_redis._mailbox import Mailbox, PoolMessage
from nnilite_redis._session import Session

_TRIES = 40


def text(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


def array(*items: bytes) -> bytes:
    return b"*%d\r\n" % len(items) + b"".join(items)


_NUMBER, _NOTHING = b":5\r\n", b"$-1\r\n"
ANSWERS = [
    *(b"+OK\r\n", _NUMBER, b":-1\r\n", b":99999999999999999999999999\r\n", _NOTHING, b"*-1\r\n"),
    *(
        b"-ERR \xff\r\n",
        b"-LOADING wait\r\n",
        b"-BUSY\r\n",
        b"-READONLY\r\n",
        b"-MOVED 1 1.2.3.4:5\r\n",
        b"-NOSCRIPT\r\n",
    ),
    *(b":abc\r\n", b"$abc\r\n", b"*abc\r\n", b"?\r\n"),
    *map(text, (b"", b"abc", b"\xff\xfe")),
    *(array(), array(_NUMBER), array(_NOTHING), array(text(b"a"), text(b"b")), array(text(b"\xff"), text(b"\xfe"))),
    *(array(text(b"taken")), array(_NUMBER, _NUMBER, _NUMBER), array(array(_NUMBER, text(b"x"), text(b"y")))),
    array(text(b"a"), array(array(text(b"1-0"), array(text(b"head"), text(b"[]"))))),
    array(array(text(b"a"), array(array(text(b"1-0"), b"*-1\r\n")))),
    array(array(array(array()))),
]


async def answer_anything(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            # The client names itself before the first command of a connection.
            writer.write(b"+OK\r\n" if words[0] == b"CLIENT" else random.choice(ANSWERS))
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def odd_pool() -> AsyncIterator[Pool]:
    server = await asyncio.start_server(answer_anything, "127.0.0.1", 0)
    pool = Pool(RedisAddress(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"), "p")
    try:
        yield pool
    finally:
        await pool.close()
        server.close()


async def no_answer(_: PoolMessage) -> None:
    return None


def mail(pool: Pool) -> Mailbox:
    return Mailbox(pool, "x", no_answer)


CALLS: dict[str, Callable[[Pool], Awaitable[object]]] = {
    "check": lambda pool: pool.check(),
    "submit": lambda pool: pool.submit("j", "e", {}, "q", "{}"),
    "jobs": lambda pool: pool.jobs(["a", "b"]),
    "places": lambda pool: pool.places(),
    "set_terms": lambda pool: pool.set_terms("e", SlotTerms(1, 0), 5.0),
    "shares": lambda pool: pool.shares(),
    "workers": lambda pool: pool.workers(),
    "fence": lambda pool: pool.fence("j", "b"),
    "cancel": lambda pool: pool.cancel("j", {}),
    "remove": lambda pool: pool.remove("j", "e"),
    "set_experiment": lambda pool: pool.set_experiment("e", True),
    "forget_experiment": lambda pool: pool.forget_experiment("e"),
    "take_job": lambda pool: pool.take_job("w", {"q": "e"}),
    "keep": lambda pool: pool.keep(ClaimedJob("j", {}, "k", "1-0")),
    "pending": lambda pool: pool.pending("w"),
    "beat": lambda pool: pool.beat("w", "b", {}, ["e"]),
    "sync": lambda pool: pool.sync("w", "b", [("j", "e", {})]),
    "leave": lambda pool: pool.leave("w"),
    "tell": lambda pool: mail(pool).tell("y", PoolMessage({})),
    "read messages": lambda pool: mail(pool)._turn({pool.keys.mail("x"): "0-0", pool.keys.bell: "0-0"}),
}


@pytest.mark.parametrize("call", CALLS)
async def test_answers_of_any_shape_are_told_as_trouble_of_redis(call: str) -> None:
    random.seed(call)
    async with odd_pool() as pool:
        for _ in range(_TRIES):
            with contextlib.suppress(ServiceError, ConfigError):
                await CALLS[call](pool)


async def test_an_answer_that_makes_no_sense_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ANSWERS", [_NUMBER])
    async with odd_pool() as pool:
        with pytest.raises(ServiceError, match=r"^Redis at 127.0.0.1:\d+ gives an answer that makes no sense: "):
            await pool.shares()


async def test_a_message_without_content_is_removed_and_others_come_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[str] = []

    async def serve(message: PoolMessage) -> None:
        served.append(message.text("ask"))

    async def xread(*_: object, **__: object) -> list[object]:
        return [(b"mail", [mail[0]])] if mail else []

    async def take_messages(_: str, last: bytes) -> tuple[int, list[object]]:
        removed.extend(entry for entry, _ in mail)
        taken = [message for message in mail if message[0] != last]
        mail.clear()
        return 0, taken

    mail = [(b"1-0", None), (b"2-0", {b"head": b'{"ask": "1"}'}), (b"3-0", None)]
    removed: list[bytes] = []
    async with odd_pool() as pool:
        with monkeypatch.context() as patch:
            patch.setattr(pool, "client", SimpleNamespace(xread=xread))
            patch.setattr(pool.reads, "take_messages", take_messages)
            box = Mailbox(pool, "x", serve)
            for _ in range(2):
                await box._turn({})
            await asyncio.gather(*box._tasks)
    assert (served, removed) == (["1"], [b"1-0", b"2-0", b"3-0"])


async def test_a_list_of_workers_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ANSWERS", [array(b":10001\r\n", b":0\r\n")])
    async with odd_pool() as pool:
        with pytest.raises(ServiceError, match=r"^p:workers in Redis .* has 10,001 entries, .* Delete the key; "):
            await pool.workers()


async def test_a_list_of_queues_without_end_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ANSWERS", [array(b":10001\r\n", b":0\r\n")])
    async with odd_pool() as pool:
        with pytest.raises(ServiceError, match=r"^p:queues in Redis .* has 10,001 entries, "):
            await pool.places()


async def test_a_start_that_fails_in_any_way_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ANSWERS", [text(b"redis_version:7.0.0\r\n")])

    def package() -> CodePackage:
        raise OSError("the disk is gone")

    async with odd_pool() as pool:
        config = RedisConfig(pool.address.url)
        monkeypatch.setattr("nnilite_redis._session.Pool", lambda *_: pool)
        with pytest.raises(OSError, match="the disk is gone"):
            await Session.begin(config, SimpleNamespace(package=package))  # type: ignore[arg-type]
        connections = pool.client.connection_pool._available_connections
        assert [one.is_connected for one in connections] == [False]
