"""What somebody else with the pool's password writes into it: it holds up no manager and no worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nnilite.errors import ServiceError
from nnilite.service import JobState
from nnilite.services.task_ends import end_tasks
from nnilite.testing import eventually
from nnilite_redis import RedisConfig
from nnilite_redis._api import Pool
from nnilite_redis._convert import Requirements
from nnilite_redis._mailbox import Mailbox, PoolMessage
from waiting import eventually_async

pytestmark = [pytest.mark.real]

LONG = '{"state": "RUNNING", "x": [' + "{}," * 50_000 + "{}]}"


@pytest.fixture
def look(shared_server, prefix) -> Callable[[Callable[[Pool], Awaitable[Any]]], Any]:
    """Calls this with the pool of the test."""
    config = RedisConfig(shared_server.url, prefix=prefix)

    async def call(look: Callable[[Pool], Awaitable[Any]]) -> Any:
        pool = Pool(config.address, config.prefix)
        try:
            return await look(pool)
        finally:
            await pool.close()

    return lambda one: asyncio.run(call(one))


@pytest.fixture
def write(shared_server, prefix):
    """Runs a command on a key of the pool."""
    with shared_server.client() as client:
        yield lambda command, key, *words: client.execute_command(*command.split(), f"{prefix}:{key}", *words)


@pytest.mark.parametrize("key", ["slots", "claims"])
def test_slots_and_claims_without_end_are_not_read(look, write, key):
    write("HSET", key, *(word for number in range(10_001) for word in (number, f"1 1-{number} 99999999999999 e")))
    with pytest.raises(ServiceError, match=rf":{key} in Redis .* has 10,001 entries, and 10,000 are read at most"):
        look(lambda pool: pool.shares())


def test_requirements_of_queues_are_read_up_to_a_size(look, write):
    for number in range(140):
        write("HSET", "queues", number, "x" * 60_000)
    with pytest.raises(ServiceError, match=r":queues in Redis .* has [\d,]+ bytes, which are too many: another user"):
        look(lambda pool: pool.queues())


def test_a_queue_whose_requirements_are_too_long_is_left_out(look, write):
    write("HSET", "queues", "long", LONG, "q", "{}")
    assert look(lambda pool: pool.queues()) == {"q": "{}"}


def test_of_all_queues_as_many_jobs_are_read_as_of_one_and_the_own_ones_first(look, write, monkeypatch):
    monkeypatch.setattr("nnilite_redis._api._MOST_PLACES", 3)
    for name, experiment in (("a", "other"), ("z", "mine")):
        write("HSET", "queues", name, Requirements(experiment=experiment).text)
        for number in range(2):
            write("XADD", f"queue:{name}", "*", "job", f"{experiment}-{number}")
        write("XADD", f"queue:{name}", "*", "job", "x" * 2000)
        write("XGROUP CREATE", f"queue:{name}", "workers", "0")
    assert {place.job for place in look(lambda pool: pool.places("mine"))} == {"mine-0", "mine-1", "other-0"}


def test_a_report_that_is_too_long_is_left_out_and_a_job_that_is_none_is_not_there(look, write):
    write("HSET", "job:long", "worker", "w", "report", LONG)
    write("HSET", "job:good", "worker", "w", "report", '{"state": "RUNNING"}')
    write("SET", "job:text", "x")
    long, none, good = look(lambda pool: pool.jobs(["long", "text", "good"]))
    assert (long.worker, long.report, none, good.report) == ("w", {}, None, {"state": "RUNNING"})


def test_what_a_worker_says_of_itself_is_read_up_to_a_size(look, write):
    write("SADD", "workers", "w", "x" * 2000)
    write("HSET", "worker:w", "beat", "1", "facts", LONG)
    assert [(one.id, one.facts) for one in look(lambda pool: pool.workers())] == [("w", {})]


async def read_mail(pool: Pool, turns: int, serve: Callable[[PoolMessage], Awaitable[None]]) -> Mailbox:
    box = Mailbox(pool, "me", serve)
    streams = {pool.keys.mail("me"): "0-0"}
    for _ in range(turns):
        await box._turn(streams)
    return box


def test_messages_are_dropped_that_are_longer_than_any_of_nnilite(look, write, monkeypatch):
    monkeypatch.setattr("nnilite_redis._bounded_reads._MOST_MESSAGE_BYTES", 1000)
    served = []

    async def serve(message: PoolMessage) -> None:
        served.append(message.text("do"))

    for head in ('{"do": "first"}', '{"do": "%s"}' % ("x" * 2000), '{"do": "last"}'):
        write("XADD", "mail:me", "*", "head", head)
    write("XADD", "mail:me", "*", "head", LONG)

    async def read(pool: Pool) -> None:
        box = await read_mail(pool, 1, serve)
        await asyncio.gather(*box._tasks)

    look(read)
    assert (served, write("XLEN", "mail:me")) == (["first", "last"], 0)


def test_a_head_of_a_hundred_thousand_values_is_not_parsed(look, write):
    served = []

    async def serve(message: PoolMessage) -> None:
        served.append(message)

    write("XADD", "mail:me", "*", "head", '{"do": "x", "y": [' + "{}," * 150_000 + "{}]}")
    look(lambda pool: read_mail(pool, 1, serve))
    assert (served, write("XLEN", "mail:me")) == ([], 0)


def test_messages_stay_where_they_are_while_many_others_are_answered(look, write, monkeypatch):
    monkeypatch.setattr("nnilite_redis._bounded_reads._MOST_MESSAGES", 2)
    monkeypatch.setattr("nnilite_redis._mailbox._MOST_AT_ONCE", 4)
    for _ in range(50):
        write("XADD", "mail:me", "*", "head", '{"do": "wait"}')

    async def read(pool: Pool) -> None:
        done, served = asyncio.Event(), 0

        async def serve(_: PoolMessage) -> None:
            nonlocal served
            served += 1
            await done.wait()

        box = Mailbox(pool, "me", serve)
        reading = asyncio.create_task(box.run())
        await eventually_async(lambda: served >= 4)
        left = await pool.client.xlen(pool.keys.mail("me"))
        done.set()
        await eventually_async(lambda: served == 50)
        await end_tasks([reading])
        assert left >= 50 - 4 - 2

    look(read)


def odd_task(**more: Any) -> dict[str, Any]:
    task: dict[str, Any] = {"version": 1, "job": "j", "experiment": "x", "trial": "t", "attempt": 0, "sequence": 0}
    task |= {"gpus": None, "spec": {}, "code": "c", "keeper": "k", "files": {"limit_bytes": 1}, "period_s": 60}
    return {**task, "orphan_s": 60, "checkpoint_s": 0, "keep": "", **more}


ODD_TASKS = {
    "the worker's own file in the place of the experiment's folder": odd_task(experiment="lock"),
    "a grace that is no number": odd_task(spec={"grace_s": [1]}),
    "another job": odd_task(job="other"),
    "a store that is none": odd_task(files={"limit_bytes": [1]}),
}


@pytest.mark.parametrize("task", ODD_TASKS.values(), ids=list(ODD_TASKS))
def test_a_task_that_makes_no_sense_keeps_no_worker_from_others(
    shared_server, prefix, write, open_bench, start_worker, task
):
    bench = open_bench(shared_server)
    write("HSET", "job:j", "task", json.dumps(task), "queue", "q")
    write("HSET", "queues", "q", Requirements(experiment="x").text)
    write("XADD", "queue:q", "1-1", "job", "j")
    write("XGROUP CREATE", "queue:q", "workers", "0")
    start_worker(shared_server.url, "--processors", "1")
    eventually(lambda: b'"LOST"' in (write("HGET", "job:j", "report") or b""), 60)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
