"""Run what managers and workers do in Redis, one method for each action: a pool of workers, and their shared queue.

Every method takes one or two round trips, and raises ServiceError or ConfigError with a sentence
(`RedisAddress.explained`). What must not be torn apart is a script (`_scripts`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from nnilite.errors import ServiceError
from nnilite.records import JobState, Json
from nnilite.services.slots import RENEWED_S, Claim, SlotTerms
from nnilite_redis import _scripts as scripts
from nnilite_redis._bounded_reads import MOST_LIST_BYTES, BoundedReads
from nnilite_redis._connection import REDIS_ERRORS, RedisAddress
from nnilite_redis._keys import GROUP, KEPT_S, PoolKeys, name_manager_party, name_worker_party

SETTLE_S = 6
"""After the server's start no job is taken for this time: workers first report the ones they have, in two beats."""

_WORKER_KEPT_S = 86400
_MOST_PLACES = 10_000
_MOST_WORKERS = 10_000
_MOST_QUEUES = 10_000
_MOST_SHARES = 10_000  # slots, and claims: a job at the head of a queue has one
_MOST_NAME_BYTES = 1000
_MOST_NUMBER = 2**63
_OVER = {state.value for state in JobState if state.ended}
_CLAIM = re.compile(r"(-?\d{1,15}) (\d{1,20})-(\d{1,20}) (\d{1,20}) (\S+)", re.ASCII)
_JOB_FIELDS = ("worker", "beat", "report", "fenced", "queue", "entry", "cancel")


@dataclass(frozen=True)
class JobRecord:
    """The record of a job in Redis. `None` where it has no job of that name, see `Pool.jobs`."""

    worker: str
    beat: str  # changes with each sign of life of the worker that has it; "" before the first
    report: Mapping[str, Json]  # the worker's word on it; {} before the first
    fenced: bool
    queue: str
    entry: str
    cancel: bool


@dataclass(frozen=True)
class QueuePlace:
    """A job's place among those that wait: `entry` grows with the time at which it was queued."""

    job: str
    queue: str
    entry: tuple[int, int]
    priority: int = 0  # the experiment's priority

    @property
    def order(self) -> tuple[int, tuple[int, int], str]:
        """Lower ones are taken first."""
        return (-self.priority, self.entry, self.job)


@dataclass(frozen=True)
class PoolShares:
    """The holders of the slots that experiments share, and the jobs that wait for one."""

    holders: Sequence[str] = ()  # the experiment of each slot that is taken
    claims: Sequence[Claim] = ()


@dataclass(frozen=True)
class WorkerRecord:
    """A worker's facts about itself."""

    id: str
    beat: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    age_s: float = 0.0
    """The time since the beat, by the clock of the server; 0 for a worker of an older version, which gives none."""


@dataclass(frozen=True)
class ClaimedJob:
    """A job that a worker has got, and where its entry is."""

    job: str
    task: Mapping[str, Json]
    queue_key: str
    entry: str


@dataclass(frozen=True)
class Synced:
    """The answer to a worker's report of a job."""

    fenced: bool  # the job is no longer this worker's
    removed: bool  # its manager needs nothing of it any more
    cancel: bool
    waits: bool  # its slot has run out, and it must stand still until it has one again


class ServerStarting(ServiceError):
    """The server has just started: jobs cannot be taken yet."""


class Pool:
    """One pool of workers, in one database of one server. Use from one event loop."""

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self.address = address
        self.keys = PoolKeys(prefix)
        self.client: Any = address.client()  # its types differ from version to version
        self.reads = BoundedReads(address, self.client)

    async def check(self) -> None:
        """Check that the server can be used. Raises: ConfigError, ServiceError."""
        await self.address.check(self.client)

    async def close(self) -> None:
        with contextlib.suppress(*REDIS_ERRORS):
            await self.client.aclose()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Turn errors of the client, and of reading its answers, into sentences. Raises: ServiceError, ConfigError."""
        with self.reads.asking():
            yield

    async def _run(self, script: str, keys: Sequence[str], *words: str | int | bytes) -> Any:
        return await self.reads.run(script, keys, *words)

    # ------------------------------------------------------------ what managers do

    async def submit(self, job: str, experiment: str, task: Json, queue: str, wants: str) -> None:
        """Put a job into its queue, unless Redis knows it already."""
        keys = self.keys
        names = [keys.job(job), keys.queue(queue), keys.queues, keys.bell, keys.jobs(experiment)]
        await self._run(scripts.SUBMIT, names, job, json.dumps(task), queue, wants, KEPT_S)

    async def jobs(self, names: Sequence[str]) -> list[JobRecord | None]:
        """Return the records of jobs. They stay for longer by being asked for."""
        found = await self.reads.hashes([self.keys.job(name) for name in names], _JOB_FIELDS, KEPT_S)
        with self.asking():
            return [_job(fields) if exists else None for exists, *fields in found]

    async def queues(self) -> dict[str, str]:
        """Return what the jobs of each queue require, as the JSON text that names the queue."""
        found = await self.reads.list_all("HGETALL", self.keys.queues, _MOST_QUEUES)
        with self.asking():
            return {_text(name): _text(wants) for name, wants in zip(found[::2], found[1::2], strict=True)}

    async def places(self, experiment: str = "") -> list[QueuePlace]:
        """Return the jobs that wait, the first one first.

        If there are too many, those of `experiment` are among them.
        """
        queues = await self.queues()
        names = sorted(queues, key=lambda name: _find_experiment_of(queues[name]) != experiment)
        if not names:
            return []
        keys = [self.keys.queue(name) for name in names]
        found = await self._run(scripts.PLACES, keys, _MOST_PLACES, _MOST_NAME_BYTES)
        with self.asking():
            owners = {index: _find_experiment_of(queues[names[index - 1]]) for index, _, _ in found}
            priorities = await self._read_priorities(set(owners.values()))
            places = [
                QueuePlace(_text(job), names[index - 1], _entry(entry), priorities[owners[index]])
                for index, entry, job in found
            ]
            return sorted(places, key=lambda place: place.order)

    async def _read_priorities(self, experiments: Collection[str]) -> dict[str, int]:
        found = await self.reads.hashes([self.keys.experiment(name) for name in experiments], ["priority"])
        return {name: _whole(value) for name, (_, value) in zip(experiments, found, strict=True)}

    async def set_terms(self, experiment: str, terms: SlotTerms, period_s: float) -> None:
        """Set how the experiment shares the pool. A slot is held for `period_s` after a beat of its worker."""
        key = self.keys.experiment(experiment)
        with self.asking():
            async with self.client.pipeline(transaction=False) as pipe:
                pipe.hset(key, mapping={"priority": terms.priority, "period": int(period_s * 1000)})
                if terms.limit is None:
                    pipe.hdel(key, "slots")
                else:
                    pipe.hset(key, mapping={"slots": terms.limit})
                pipe.expire(key, KEPT_S)
                await pipe.execute()

    async def shares(self) -> PoolShares:
        """Return who has the slots, and who waits for one."""
        keys = self.keys.slots, self.keys.claims
        with self.asking():
            limits = _MOST_SHARES, _MOST_NAME_BYTES, MOST_LIST_BYTES
            seconds, *lists = await self._run(scripts.SHARES, keys, *limits)
            slots, claims = [self.reads.check_list(*one, _MOST_SHARES) for one in zip(keys, lists, strict=True)]
            now_ms = int(seconds) * 1000
            held = [value.partition(b" ") for value in slots[1::2]]
            waiting = [
                _claim(_text(job), _text(value), now_ms) for job, value in zip(claims[::2], claims[1::2], strict=True)
            ]
            holders = [_text(who) for ends, _, who in held if _whole(ends) >= now_ms]
            return PoolShares(holders, [one for one in waiting if one])

    async def workers(self) -> list[WorkerRecord]:
        """Return all workers that reported within a day."""
        found = await self.reads.list_all("SMEMBERS", self.keys.workers, _MOST_WORKERS)
        with self.asking():
            ids = sorted(_text(name) for name in found if len(name) <= _MOST_NAME_BYTES)
            now_s, _ = await self.client.time()
        found = await self.reads.hashes([self.keys.worker(worker) for worker in ids], ("beat", "facts", "at"))
        with self.asking():
            pairs = zip(ids, found, strict=True)
            return [_worker(worker, fields, now_s) for worker, (_, *fields) in pairs if fields[0]]

    async def fence(self, job: str, beat: str) -> bool:
        """Take a job from its worker, if there was no sign of life since that beat; return whether it is taken away."""
        return bool(await self._run(scripts.FENCE, [self.keys.job(job)], beat) == b"fenced")

    async def cancel(self, job: str, report: Json) -> str:
        """Ask for a job's end; return the worker that has it. One that still waits gets this report at once."""
        with self.asking():
            words = (json.dumps(report), self.keys.queue_prefix)
            return _text(await self._run(scripts.CANCEL, [self.keys.job(job)], *words))

    async def remove(self, job: str, experiment: str) -> str:
        """Free what a job holds; return the worker that has still to tidy up after it."""
        keys = [self.keys.job(job), self.keys.jobs(experiment)]
        with self.asking():
            return _text(await self._run(scripts.REMOVE, keys, job, KEPT_S, self.keys.queue_prefix))

    async def set_experiment(self, experiment: str, closed: bool) -> None:
        """Tell workers whether the experiment is at rest, so that they may tidy up after it."""
        key = self.keys.experiment(experiment)
        with self.asking():
            async with self.client.pipeline(transaction=False) as pipe:
                pipe.hset(key, mapping={"closed": int(closed)})
                pipe.expire(key, KEPT_S)
                await pipe.execute()

    async def forget_experiment(self, experiment: str) -> bool:
        """Remove what is left of an experiment, unless it still has jobs; return whether it was removed."""
        with self.asking():
            if await self.client.scard(self.keys.jobs(experiment)):
                return False
            mine = [name for name, wants in (await self.queues()).items() if _find_experiment_of(wants) == experiment]
            keys = [self.keys.mail(name_manager_party(experiment)), self.keys.manager(experiment)]
            await self.client.delete(*keys, *(self.keys.queue(name) for name in mine))
            if mine:
                await self.client.hdel(self.keys.queues, *mine)
        return True

    # ------------------------------------------------------------ what workers do

    async def take_job(self, worker: str, queues: Mapping[str, str]) -> ClaimedJob | None:
        """Take the first job of these queues, which then belongs to this worker. Raises: ServerStarting.

        `queues`: the experiment of each. A first job without a slot waits for one from now on; no job behind it gets a
        slot, as long as it is asked for at least every RENEWED_S.
        """
        keys = [self.keys.slots, self.keys.claims, *(self.keys.queue(name) for name in queues)]
        words = (SETTLE_S, self.keys.job_prefix, self.keys.experiment_prefix, int(RENEWED_S * 1000), KEPT_S)
        with self.asking():
            found = await self._run(scripts.TAKE, keys, worker, *words, *queues.values())
            if found[0] == b"settling":
                raise ServerStarting(f"Redis at {self.address.title} has just started")
            if found[0] != b"taken":
                return None
            _, job, task, queue_key, entry = found
            return ClaimedJob(_text(job), _mapping(task), _text(queue_key), _text(entry))

    async def keep(self, taken: ClaimedJob) -> None:
        """Confirm that the job is on the worker's disk.

        Its entry, and its specification with the secret in it, can go.
        """
        with self.asking():
            async with self.client.pipeline(transaction=False) as pipe:
                pipe.hdel(self.keys.job(taken.job), "task")
                pipe.xack(taken.queue_key, GROUP, taken.entry)
                pipe.xdel(taken.queue_key, taken.entry)
                await pipe.execute()

    async def pending(self, worker: str) -> list[ClaimedJob]:
        """Return jobs that this worker was given without knowing it: the answer was lost on its way."""
        keys = [self.keys.queue(name) for name in await self.queues()]
        found: list[ClaimedJob] = []
        for key in keys:
            with self.asking():
                for entry, fields in await _read_given(self.client, worker, key):
                    job = _text((fields or {}).get(b"job"))
                    owner, task = await self.client.hmget(self.keys.job(job), ("worker", "task"))
                    mine = task is not None and _text(owner) == worker
                    found.append(ClaimedJob(job, _mapping(task) if mine else {}, key, _text(entry)))
        return found

    async def beat(self, worker: str, beat: str, facts: Json, experiments: Sequence[str]) -> dict[str, dict[str, str]]:
        """Record a sign of life of a worker. Return what is known of these experiments: `closed`."""
        key = self.keys.worker(worker)
        with self.asking():
            async with self.client.pipeline(transaction=False) as pipe:
                pipe.eval(scripts.BEAT, 1, key, beat, json.dumps(facts))
                pipe.expire(key, _WORKER_KEPT_S)
                pipe.sadd(self.keys.workers, worker)
                pipe.expire(self.keys.workers, _WORKER_KEPT_S)
                await pipe.execute()
        found = await self.reads.hashes([self.keys.experiment(name) for name in experiments], ["closed"])
        return {name: {"closed": _text(closed)} for name, (_, closed) in zip(experiments, found, strict=True)}

    async def sync(self, worker: str, beat: str, reports: Sequence[tuple[str, str, Json]]) -> list[Synced]:
        """Report that a worker still has these jobs, and how they are: (job, experiment, report) each.

        Running jobs keep their slots by it. One whose slot has expired gets another, or waits for it. A job that Redis
        has forgotten is there again; one that Redis remembers as waiting waits no more.
        """
        keys = self.keys
        with self.asking():
            async with self.client.pipeline(transaction=False) as pipe:
                for job, experiment, report in reports:
                    over = "over" if report.get("state") in _OVER else ""
                    words = (worker, beat, json.dumps(report), KEPT_S, keys.queue_prefix, job, experiment, over)
                    mine = (keys.job(job), keys.jobs(experiment), keys.experiment(experiment))
                    names = (*mine, keys.slots, keys.bell, keys.claims)
                    pipe.eval(scripts.SYNC, len(names), *names, *words, int(RENEWED_S * 1000))
                found = await pipe.execute() if reports else []
            return [_read_synced(answer) for answer in found]

    async def forget(self, job: str) -> None:
        """Confirm that all is tidied up after a job that its manager has removed."""
        with self.asking():
            await self.client.delete(self.keys.job(job))

    async def leave(self, worker: str) -> None:
        """Record that the worker has left."""
        with self.asking():
            async with self.client.pipeline(transaction=False) as pipe:
                pipe.delete(self.keys.worker(worker), self.keys.mail(name_worker_party(worker)))
                pipe.srem(self.keys.workers, worker)
                await pipe.execute()


async def _read_given(client: Any, worker: str, key: str) -> list[Any]:
    """Return a worker's entries of a queue: none of one that has run out, and is still listed."""
    try:
        streams = await client.xreadgroup(GROUP, worker, {key: "0"}, count=100)
    except ResponseError as error:
        if str(error).startswith(("NOGROUP", "WRONGTYPE")):
            return []
        raise
    return [item for _, entries in streams for item in entries]


def _worker(worker: str, fields: Sequence[bytes | None], now_s: int) -> WorkerRecord:
    beat, facts, at = fields
    at_s = _whole(at)
    return WorkerRecord(worker, _text(beat), _mapping(facts), max(0, now_s - at_s) if at_s > 0 else 0.0)


def _job(fields: Sequence[bytes | None]) -> JobRecord:
    worker, beat, report, fenced, queue, entry, cancel = fields
    return JobRecord(
        worker=_text(worker),
        beat=_text(beat),
        report=_mapping(report),
        fenced=fenced is not None,
        queue=_text(queue),
        entry=_text(entry),
        cancel=cancel is not None,
    )


def _read_synced(answer: Sequence[bytes]) -> Synced:
    words = [_text(word) for word in answer]
    return Synced(words[0] == "fenced", bool(words[1]), len(words) > 2 and bool(words[2]), words[0] == "waits")


def _entry(identifier: bytes) -> tuple[int, int]:
    first, _, second = identifier.decode().partition("-")
    return int(first), int(second)


def _claim(job: str, value: str, now_ms: int) -> Claim | None:
    """Return a valid claim; None for one that is not renewed any more, and for anything else."""
    found = _CLAIM.fullmatch(value)
    if found is None or int(found[4]) < now_ms:
        return None
    return claim_of(job, found[5], int(found[1]), (int(found[2]), int(found[3])))


def claim_of(job: str, experiment: str, priority: int, entry: tuple[int, int]) -> Claim:
    """Return a job's claim by its entry in the queue, which is a time in milliseconds, and a number."""
    return Claim(job, experiment, priority, entry[0] / 1000 + entry[1] / 1e6)


def _find_experiment_of(wants: str) -> str:
    """Return the experiment of a queue, by what its jobs require."""
    try:
        return str(json.loads(wants)["experiment"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


def _whole(value: bytes | None) -> int:
    """Return an integer of 64 bits; 0 in place of any other value."""
    try:
        found = int(value or 0)
    except ValueError:
        return 0
    return found if abs(found) < _MOST_NUMBER else 0


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _mapping(value: bytes | None) -> dict[str, Json]:
    """Return a JSON object; {} in place of any other value."""
    try:
        found = json.loads(value) if value is not None else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
