"""Experiments that share the workers of a pool: priorities, slots, and what dead workers leave."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite.service import JobState
from nnilite.services.slots import SlotTerms
from nnilite.testing import eventually
from nnilite.testing.probes import quoted
from nnilite_redis import RedisConfig
from nnilite_redis._api import Pool
from nnilite_redis._convert import Requirements

pytestmark = [pytest.mark.real]


def name_of(bench) -> str:
    return bench.job("true").experiment


def test_a_higher_priority_is_served_first(shared_server, open_bench, start_worker):
    low, high = open_bench(shared_server), open_bench(shared_server, priority=3)
    place = quoted(low.mark())
    names = [low.run(f"echo low >> {place}") for _ in range(2)]
    urgent = high.run(f"echo high >> {place}")
    assert high.status(urgent).reason.startswith("1st in the queue")
    assert low.status(names[0]).reason.startswith("2nd in the queue")
    start_worker(shared_server.url, "--processors", "1")
    high.wait(urgent)
    for name in names:
        low.wait(name)
    assert low.lines() == ["high", "low", "low"]


def test_a_priority_that_is_raised_while_trials_wait_moves_them(shared_server, open_bench, start_worker):
    first, second = open_bench(shared_server, priority=1), open_bench(shared_server)
    place = quoted(first.mark())
    ahead, behind = first.run(f"echo first >> {place}"), second.run(f"echo second >> {place}")
    assert second.status(behind).reason.startswith("2nd in the queue")
    second.service.share_slots(None, 2)
    assert second.status(behind).reason.startswith("1st in the queue")
    first.service.share_slots(None, 9)
    first.service.share_slots(None, None)
    assert first.status(ahead).reason.startswith("2nd in the queue")
    start_worker(shared_server.url, "--processors", "1")
    second.wait(behind)
    first.wait(ahead)
    assert first.lines() == ["second", "first"]


def test_a_limit_that_is_lowered_ends_nothing_and_holds_new_trials_back(shared_server, open_bench, start_worker):
    shared = open_bench(shared_server)
    shared.service.share_slots(2, None)
    running = [shared.run("sleep 60") for _ in range(2)]
    start_worker(shared_server.url, "--processors", "4")
    for name in running:
        shared.wait(name, JobState.RUNNING)
    shared.service.share_slots(1, None)
    waiting = shared.run("true")
    eventually(lambda: "2 of 1 (maxSlots) are taken" in shared.status(waiting).reason, 60)
    shared.call(shared.service.cancel(shared.handles[running[0]]))
    shared.wait(running[0])
    assert shared.status(waiting).state is JobState.WAITING
    assert shared.status(running[1]).state is JobState.RUNNING
    shared.service.share_slots(2, None)
    shared.wait(waiting)


def test_slots_are_shared_and_it_is_said_who_one_waits_for(shared_server, open_bench, start_worker):
    first, second, third = (open_bench(shared_server, max_slots=1) for _ in range(3))
    running, waiting, behind = first.run("sleep 60"), second.run("sleep 60"), third.run("true")
    start_worker(shared_server.url, "--processors", "4")
    first.wait(running, JobState.RUNNING)
    taken = f"1st in the queue; waits for a slot of this pool: 1 of 1 (maxSlots) are taken, by {name_of(first)}"
    eventually(lambda: second.status(waiting).reason == taken, 60)
    ahead = f"2nd in the queue; waits for experiment {name_of(second)}, which asked before"
    eventually(lambda: third.status(behind).reason == ahead, 60)
    first.call(first.service.cancel(first.handles[running]))
    second.wait(waiting, JobState.RUNNING)
    assert third.status(behind).state is JobState.WAITING


def test_what_strangers_write_among_slots_and_claims_keeps_no_trial_from_one(
    shared_server, prefix, open_bench, start_worker
):
    shared = open_bench(shared_server, max_slots=1)
    with shared_server.client() as client:
        client.hset(f"{prefix}:slots", mapping={"a": "", "b": "soon", "c": "9" * 400 + " x"})
        client.hset(f"{prefix}:claims", mapping={"a": "", "b": "1 2", "c": f"{'9' * 400} 1-1 {'9' * 400} x"})
    start_worker(shared_server.url)
    assert shared.wait(shared.run("true")).state is JobState.SUCCEEDED


def test_who_sets_no_slots_takes_no_part(shared_server, open_bench, start_worker):
    limited, free = open_bench(shared_server, max_slots=1), open_bench(shared_server)
    running, waiting, other = limited.run("sleep 60"), limited.run("sleep 60"), free.run("true")
    start_worker(shared_server.url, "--processors", "2")
    limited.wait(running, JobState.RUNNING)
    free.wait(other, JobState.SUCCEEDED)
    assert limited.status(waiting).state is JobState.WAITING


def test_the_slot_of_a_worker_that_was_killed_is_free_when_its_trial_cannot_run_any_more(
    shared_server, open_bench, start_worker
):
    lost, other = (open_bench(shared_server, max_slots=1, worker_healthy_period=6) for _ in range(2))
    running = lost.run("sleep 60")
    worker = start_worker(shared_server.url)
    lost.wait(running, JobState.RUNNING)
    waiting = other.run("true")
    worker.kill()
    start_worker(shared_server.url)
    assert other.wait(waiting, JobState.SUCCEEDED).exit_code == 0


class Model:
    """A pool, and the truth about its trials. Workers die or fall silent without a word; their time passes at once."""

    def __init__(self, pool: Pool, terms: dict[str, SlotTerms]) -> None:
        self.pool = pool
        self.terms = terms
        self.queued: set[str] = set()
        self.running: dict[str, str] = {}  # by job: its worker
        self.still: dict[str, str] = {}  # the same of those that the guard has stopped
        self.number = 0

    async def submit(self, experiment: str) -> None:
        await self.pool.set_terms(experiment, self.terms[experiment], 600)
        self.number += 1
        job, required = f"nni-{experiment}-{self.number}-0", Requirements(experiment=experiment)
        await self.pool.submit(job, experiment, {"n": self.number}, required.queue, required.text)
        self.queued.add(job)

    async def take(self, worker: str, experiments: str = "ABC") -> bool:
        """Whether there was something to do for a worker that can run trials of these experiments."""
        taken = await self.pool.take_job(worker, {Requirements(experiment=name).queue: name for name in experiments})
        if taken is None:
            return False
        await self.pool.keep(taken)
        self.queued.remove(taken.job)
        self._runs(taken.job, worker)
        return True

    def _runs(self, job: str, worker: str) -> None:
        self.running[job] = worker
        assert len(self.running) <= (self.terms[job.split("-")[1]].limit or 0)

    async def tell(self, job: str, state: str) -> None:
        await self.pool.sync(self.running[job], "1", [(job, job.split("-")[1], {"state": state})])
        if state != "RUNNING":
            del self.running[job]

    async def die(self, worker: str) -> None:
        for job in await self.fall_silent(worker):
            del self.still[job]

    async def fall_silent(self, worker: str) -> list[str]:
        """For longer than the period: its slots run out. All that stands still there."""
        for job in [job for job, owner in self.running.items() if owner == worker]:
            await self.pool.client.hset(self.pool.keys.slots, job, f"0 {job.split('-')[1]}")
            self.still[job] = self.running.pop(job)
        return [job for job, owner in self.still.items() if owner == worker]

    async def come_back(self, worker: str) -> None:
        """Ask once for all that stands still there."""
        for job in [job for job, owner in self.still.items() if owner == worker]:
            [answer] = await self.pool.sync(worker, "2", [(job, job.split("-")[1], {"state": "RUNNING"})])
            if not answer.waits:
                self._runs(job, self.still.pop(job))


@contextlib.asynccontextmanager
async def model_of(url: str, **terms: SlotTerms) -> AsyncIterator[Model]:
    config = RedisConfig(url, prefix=f"test-{secrets.token_hex(4)}")
    pool = Pool(config.address, config.prefix)
    try:
        yield Model(pool, terms)
    finally:
        await pool.close()


async def test_a_trial_whose_slot_ran_out_stands_still_until_it_has_one_again(shared_server):
    async with model_of(shared_server.url, A=SlotTerms(1), B=SlotTerms(1), C=SlotTerms(1)) as model:
        for name in "ABC":
            await model.submit(name)
        assert await model.take("first")
        await model.fall_silent("first")
        assert await model.take("second")
        await model.come_back("first")
        assert list(model.running.values()) == ["second"]
        await model.tell(*model.running, "SUCCEEDED")
        assert not await model.take("third"), "the trial that stands still came before"
        await model.come_back("first")
        assert list(model.running.values()) == ["first"]
        await model.tell(*model.running, "SUCCEEDED")
        assert await model.take("third")


async def test_a_limit_that_comes_later_stops_nothing_that_runs(shared_server):
    async with model_of(shared_server.url, A=SlotTerms(2)) as model:
        for _ in range(2):
            await model.submit("A")
            assert await model.take("w", "A")
        for terms in (SlotTerms(None), SlotTerms(1)):
            await model.pool.set_terms("A", terms, 600)
            answers = await model.pool.sync("w", "2", [(job, "A", {"state": "RUNNING"}) for job in model.running])
            assert not any(answer.waits for answer in answers)


STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "take", "take", "end", "tell", "die", "silent", "back"]), st.integers(0, 2)),
    min_size=5,
    max_size=30,
)
TERMS = st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 1)), min_size=3, max_size=3)


async def play_and_check(model: Model, steps: list[tuple[str, int]]) -> None:
    for name in "AABBCC":
        await model.submit(name)
    for what, number in steps:
        await step(model, what, number)
    for _ in range(model.number + 1):
        await let_end(model)
    assert (model.queued, model.still) == (set(), {}), "all others have ended, and yet these wait"
    assert (await model.pool.shares()).holders == []


async def step(model: Model, what: str, number: int) -> None:
    jobs, worker = sorted(model.running), f"w{number}"
    of_workers = {"take": model.take, "die": model.die, "silent": model.fall_silent, "back": model.come_back}
    if what == "submit":
        await model.submit("ABC"[number])
    elif what in of_workers:
        await of_workers[what](worker)
    elif jobs:
        await model.tell(jobs[number % len(jobs)], "SUCCEEDED" if what == "end" else "RUNNING")


async def let_end(model: Model) -> None:
    """What runs ends, and the next one runs."""
    for job in sorted(model.running):
        await model.tell(job, "SUCCEEDED")
    for number in range(3):
        await model.come_back(f"w{number}")
    if not model.running:
        await model.take("w0")


async def test_nobody_passes_who_is_ahead_and_lacks_but_a_slot(shared_server):
    async with model_of(shared_server.url, A=SlotTerms(1), B=SlotTerms(2), C=SlotTerms(2)) as model:
        for name in "CAB":
            await model.submit(name)
        taken = [await model.take(f"w {name}", name) for name in "CAB"]
        assert taken == [True, False, False], "B would have a slot, and A is ahead"
        await model.tell(next(iter(model.running)), "SUCCEEDED")
        assert not await model.take("w B", "B")
        assert await model.take("w A", "A")
        assert await model.take("w B", "B")


async def test_who_does_not_ask_any_more_holds_nobody_up(shared_server):
    async with model_of(shared_server.url, A=SlotTerms(1), B=SlotTerms(2), C=SlotTerms(2)) as model:
        for name in "CAB":
            await model.submit(name)
        assert [await model.take(f"w {name}", name) for name in "CA"] == [True, False]
        [(job, claim)] = (await model.pool.client.hgetall(model.pool.keys.claims)).items()
        priority, entry, _, experiment = claim.split()
        await model.pool.client.hset(model.pool.keys.claims, job, b" ".join([priority, entry, b"0", experiment]))
        assert await model.take("w B", "B")


@settings(max_examples=20)
@given(STEPS, TERMS)
async def test_whenever_workers_die_no_limit_is_passed_and_nobody_starves(shared_server, steps, terms):
    known = {name: SlotTerms(*terms[number]) for number, name in enumerate("ABC")}
    async with model_of(shared_server.url, **known) as model:
        await play_and_check(model, steps)
