"""Convert a job to its record in Redis, and the record to a job's status. Without a clock, and without the network."""

from __future__ import annotations

import hashlib
import json
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nnilite.records import Host, Json, storable
from nnilite.service import Job, JobState, JobStatus
from nnilite.services.slots import SlotTerms, reason_to_wait
from nnilite.units import format_duration
from nnilite_redis._api import JobRecord, PoolShares, QueuePlace, WorkerRecord, claim_of
from nnilite_redis._config import PREFIX, RedisConfig

TASK_VERSION = 1
"""The version of a job's record: both sides must use the same one."""

QUIET_S = 8.0
"""Some beats: after this time, what a worker has reported is old."""

_MOST_LABELS = 1000  # of one worker
_MOST_REASON = 4000  # characters
UP, DRAINING, UNHEALTHY = "up", "draining", "unhealthy"


@dataclass(frozen=True)
class Requirements:
    """What a job requires of its worker. Jobs of an experiment with the same requirements wait in one queue."""

    labels: frozenset[str] = frozenset()
    gpus: int = 0
    most: int | None = None  # trials of `experiment` at once on a worker
    experiment: str = ""

    @property
    def text(self) -> str:
        """Return canonical JSON: equal values give equal text."""
        known = {"labels": sorted(self.labels), "gpus": self.gpus, "most": self.most, "experiment": self.experiment}
        return json.dumps(known, sort_keys=True)

    @property
    def queue(self) -> str:
        """The name of the queue of such jobs."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def read_requirements(text: str) -> Requirements | None:
    """Return what a queue's jobs require; None if that cannot be read."""
    try:
        known = json.loads(text)
        most = known["most"]
        labels = frozenset(str(label) for label in known["labels"])
        return Requirements(labels, int(known["gpus"]), None if most is None else int(most), str(known["experiment"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def find_requirements(job: Job, config: RedisConfig) -> Requirements:
    """Return what a job requires by its experiment's settings and its own parameters."""
    here = [make_host_label(socket.gethostname())] if config.worker_mode == "singlenode" else []
    asked = frozenset((*config.worker_labels, *here, *job.labels))
    most = config.worker_processors
    return Requirements(asked, job.gpus or 0, most, job.experiment)


def make_host_label(host: str) -> str:
    """Return the label that every worker has of itself."""
    return f"host={host}"


def describe_files(config: RedisConfig) -> dict[str, Json]:
    """Return where files travel, for both sides: see `_file_store.files_of`."""
    storage = config.storage
    if storage is None:
        return {"limit_bytes": config.redis_size_limit}
    known = {"bucket": storage.bucket, "prefix": storage.prefix, "endpoint": storage.endpoint}
    return {"bucket": {**known, "region": storage.region}}


def task_of(job: Job, config: RedisConfig, code: str, keeper: str) -> dict[str, Json]:
    """Return what a worker needs to know of a job; `code` and `keeper` are names of files.

    It holds the trial's token.
    """
    return {
        "version": TASK_VERSION,
        "job": job.name,
        "experiment": job.experiment,
        "trial": job.trial,
        "attempt": job.attempt,
        "sequence": job.sequence,
        "gpus": job.gpus,
        "spec": dict(job.spec),
        "code": code,
        "keeper": keeper,
        "files": describe_files(config),
        "period_s": config.worker_healthy_period,
        "orphan_s": config.orphan_after,
        "checkpoint_s": config.checkpoint_every if job.spec.get("checkpoint_dir") else 0,
        "keep": config.keep,
    }


def start_command(config: RedisConfig) -> str:
    """Return the command with which a worker joins that suits the experiment."""
    prefix = ["--prefix", config.prefix] if config.prefix != PREFIX else []
    labels = ["--labels", ",".join(config.worker_labels)] if config.worker_labels else []
    return shlex.join(["nnictl", "worker", "--redis", config.redis, *prefix, *labels])


# ---------------------------------------------------------------- what workers are like


@dataclass(frozen=True)
class WorkerFacts:
    """A worker's facts about itself, checked, as they come from outside."""

    id: str
    host: str = ""
    processors: int = 0
    running: int = 0
    gpus: int = 0
    labels: frozenset[str] = frozenset()
    state: str = UP  # or DRAINING
    trouble: str = ""

    def suits(self, required: Requirements) -> bool:
        """Return whether the worker could ever run such a job."""
        return required.labels <= self.labels and required.gpus <= self.gpus

    @property
    def free(self) -> bool:
        return self.state == UP and self.running < self.processors


def read_worker_facts(record: WorkerRecord) -> WorkerFacts:
    """Return a worker's facts about itself; empty where they make no sense."""
    facts = record.facts
    labels = facts.get("labels")
    labels = labels if isinstance(labels, list) else []
    return WorkerFacts(
        id=record.id,
        host=_short(facts.get("host") or record.id, 255),
        processors=_count(facts.get("processors")),
        running=_count(facts.get("running")),
        gpus=_count(facts.get("gpus")),
        labels=frozenset(_short(label, 255) for label in labels[:_MOST_LABELS]),
        state=DRAINING if facts.get("state") == DRAINING else UP,
        trouble=_short(facts.get("trouble") or "", 500),
    )


def _short(value: Json, most: int) -> str:
    """Return the beginning of what should be a text, without what cannot be stored or sent."""
    return storable(str(value)[:most])


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6 else 0


@dataclass(frozen=True)
class PoolView:
    """The pool at the last look, as the source of reasons and pages."""

    workers: Sequence[WorkerFacts] = ()
    silent_s: Mapping[str, float] = field(default_factory=dict)  # seconds of silence by worker
    places: Sequence[QueuePlace] = ()
    period_s: float = 300.0
    shares: PoolShares = field(default_factory=PoolShares)

    def healthy(self, worker: str) -> bool:
        return self.silent_s.get(worker, 0.0) <= self.period_s

    @property
    def well(self) -> list[WorkerFacts]:
        """Return the workers that report."""
        return [worker for worker in self.workers if self.healthy(worker.id)]

    @cached_property
    def numbered(self) -> Mapping[str, tuple[int, QueuePlace]]:
        """Return the place of each waiting job and its number, from 1: thousands of jobs ask for theirs."""
        return {place.job: (number, place) for number, place in enumerate(self.places, 1)}

    def hosts(self, mine: Mapping[str, int]) -> list[Host]:
        """Return the hosts for the page; `mine`: the number of jobs of this experiment that run on each worker."""
        return [self._host(worker, mine.get(worker.id, 0)) for worker in self.workers]

    def _host(self, worker: WorkerFacts, mine: int) -> Host:
        silent_s = self.silent_s.get(worker.id, 0.0)
        state, reason = worker.state, worker.trouble
        if not self.healthy(worker.id):
            state, reason = UNHEALTHY, f"silent for {format_duration(silent_s)}"
        elif silent_s > QUIET_S:
            reason = f"silent for {format_duration(silent_s)}"
        details: dict[str, Json] = {
            "host": worker.host,
            "processors": worker.processors,
            "busy": worker.running,
            "labels": sorted(worker.labels),
            "gpus": worker.gpus,
            "queue": len(self.places),
        }
        return Host(worker.id, state, reason, mine, details)


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 21st ..."""
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def find_blocking_experiment(job: str, experiment: str, terms: SlotTerms, view: PoolView) -> str:
    """Return the experiment that a queued job waits for, where slots are shared.

    "" if it needs none, or could have one.
    """
    numbered = view.numbered.get(job)
    if terms.limit is None or numbered is None:
        return ""
    mine = claim_of(job, experiment, terms.priority, numbered[1].entry)
    others = [claim for claim in view.shares.claims if claim.job != job]
    return reason_to_wait(mine, others, view.shares.holders, terms.limit, "this pool")


def explain_wait(number: int, required: Requirements, view: PoolView, start: str, whom: str = "") -> str:
    """Return why a job waits, and what would help.

    `start`: the command with which a worker joins. `whom`: see `find_blocking_experiment`.
    """
    place = f"{ordinal(number)} in the queue" if number else "in the queue"
    well = view.well
    if not well:
        silent = f" ({len(view.workers)} that had joined no longer report)" if view.workers else ""
        return f"{place}; no worker has joined{silent}: start one with `{start}`"
    able = [worker for worker in well if worker.suits(required)]
    if not able:
        return f"{place}; none of {_workers(len(well))} has {_wanted(required)}"
    free = [worker for worker in able if worker.free]
    with_what = f" with {_wanted(required)}" if required.labels or required.gpus else ""
    if free and whom:
        return f"{place}; {whom}"
    if free:
        limit = f"; workerProcessors is {required.most}" if required.most is not None else ""
        return f"{place}; {len(free)} of {_workers(len(able))}{with_what} can take a trial{limit}"
    draining = [worker for worker in able if worker.state == DRAINING]
    state = "drain" if len(draining) == len(able) else "busy"
    processors = sum(worker.processors for worker in able)
    if state == "drain":
        return f"{place}; all of {_workers(len(able))}{with_what} accept no more trials, since they are stopping"
    return f"{place}; {_workers(len(able))}{with_what}, all {processors} processors busy"


def _workers(number: int) -> str:
    return f"{number} worker" + ("" if number == 1 else "s")


def _wanted(required: Requirements) -> str:
    labels = [f"the label {label}" for label in sorted(required.labels)]
    gpus = [f"{required.gpus} GPU{'' if required.gpus == 1 else 's'}"] if required.gpus else []
    return " and ".join([*labels, *gpus])


# ---------------------------------------------------------------- what jobs are like

CANCELED_IN_QUEUE: dict[str, Json] = {
    "state": JobState.CANCELED.value,
    "reason": "the job was canceled while it was in the queue",
}


def status_of(record: JobRecord) -> JobStatus:
    """Check a worker's report of its job."""
    report = record.report
    try:
        state = JobState(report.get("state"))
    except ValueError:
        return JobStatus(
            JobState.WAITING, f"worker {record.worker} has the job and has not reported on it yet", host=record.worker
        )
    code = report.get("exit_code")
    return JobStatus(
        state,
        _short(report.get("reason") or "", _MOST_REASON),
        code if isinstance(code, int) and not isinstance(code, bool) else None,
        _short(report.get("host") or record.worker, 255),
        started=_time(report.get("started")),
        ended=_time(report.get("ended")),
    )


def _time(value: Json) -> float | None:
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11 else None
    )


def judge_silent(record: JobRecord, silent_s: float) -> JobStatus:
    """Return the status of a job whose worker is silent, but not yet for long enough to lose the job."""
    silence = f"worker {record.worker} has not reported for {format_duration(silent_s)}"
    return JobStatus(JobState.UNKNOWN, silence, host=_short(record.report.get("host") or record.worker, 255))
