"""What the Redis service makes of what it sees, without a server."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnilite.errors import ConfigError
from nnilite.service import Job, JobState
from nnilite.services.slots import SlotTerms
from nnilite_redis import RedisConfig
from nnilite_redis._api import ClaimedJob, JobRecord, PoolShares, QueuePlace, WorkerRecord, _claim, _worker, claim_of
from nnilite_redis._connection import RedisAddress, aioredis
from nnilite_redis._convert import (
    PoolView,
    Requirements,
    WorkerFacts,
    explain_wait,
    find_blocking_experiment,
    find_requirements,
    ordinal,
    read_requirements,
    read_worker_facts,
    status_of,
    task_of,
)
from nnilite_redis._mailbox import PoolMessage
from nnilite_redis._relay import is_of_keeper, put
from nnilite_redis._silence import Silence
from nnilite_redis._worker import leases
from nnilite_redis._worker.attempt import WorkerAttempt, list_attempts
from nnilite_redis._worker.file_cache import FileCache
from nnilite_redis._worker.held_attempts import HeldAttempts
from nnilite_redis._worker.intake import Intake
from nnilite_redis._worker.pool_worker import WorkerOptions, run_worker
from nnilite_redis._worker.task import BadTask, read_task
from other_user import STRANGER, known_user
from silent_disk import failing_at
from waiting import pause_async

START = "nnictl worker --redis redis://host"
CONFIG = RedisConfig("redis://host", worker_labels=["gpu=a100"])


def worker(name: str, *labels: str, **more) -> WorkerFacts:
    return WorkerFacts(name, name, **{"processors": 2, "labels": frozenset(labels), **more})


def job(**more) -> Job:
    return Job("nni-Ex-Tr-0", "Ex", "Tr", 0, 3, {"token": "secret", "parameters": None}, **more)


@pytest.mark.parametrize(
    ("workers", "wants", "reason"),
    [
        ([], Requirements(), f"3rd in the queue; no worker has joined: start one with `{START}`"),
        (
            [worker("silent")],
            Requirements(),
            f"3rd in the queue; no worker has joined (1 that had joined no longer report): start one with `{START}`",
        ),
        (
            [worker("a", running=2), worker("b", running=2)],
            Requirements(),
            "3rd in the queue; 2 workers, all 4 processors busy",
        ),
        (
            [worker("a"), worker("b", "gpu=a100", running=2)],
            Requirements(frozenset({"gpu=a100"})),
            "3rd in the queue; 1 worker with the label gpu=a100, all 2 processors busy",
        ),
        (
            [worker("a", gpus=1)],
            Requirements(gpus=2),
            "3rd in the queue; none of 1 worker has 2 GPUs",
        ),
        ([worker("a"), worker("b")], Requirements(), "3rd in the queue; 2 of 2 workers can take a trial"),
        (
            [worker("a", state="draining")],
            Requirements(),
            "3rd in the queue; all of 1 worker accept no more trials, since they are stopping",
        ),
    ],
)
def test_a_waiting_trial_says_its_place_and_what_it_waits_for(workers, wants, reason):
    view = PoolView(workers, {"silent": 301.0}, (), 300)
    assert explain_wait(3, wants, view, START) == reason


def test_a_trial_that_lacks_but_a_slot_says_whom_it_waits_for():
    claims = [claim_of("nni-a-1-0", "a", 2, (5, 0)), claim_of("nni-b-1-0", "b", 0, (7, 0))]
    places = [QueuePlace("nni-c-1-0", "q", (6, 0))]
    view = PoolView([worker("w")], places=places, shares=PoolShares(["d"], claims))
    whom = find_blocking_experiment("nni-c-1-0", "c", SlotTerms(1), view)
    assert whom == "waits for experiment a, whose priority 2 is higher"
    assert explain_wait(1, Requirements(), view, START, whom) == f"1st in the queue; {whom}"
    blocking = find_blocking_experiment("nni-c-1-0", "c", SlotTerms(1, 3), view)
    assert blocking.endswith("1 of 1 (maxSlots) are taken, by d")
    assert find_blocking_experiment("nni-c-1-0", "c", SlotTerms(2, 3), view) == ""
    assert find_blocking_experiment("nni-c-1-0", "c", SlotTerms(), view) == ""


class Walked(list[QueuePlace]):
    """Counts how often the whole queue is gone through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_a_queue_is_gone_through_once_however_many_trials_wait_in_it():
    places = Walked(QueuePlace(f"nni-c-{n}-0", "q", (1000 + n, 0)) for n in range(1000))
    view = PoolView([worker("w")], places=places, shares=PoolShares(["d"], ()))
    waits = {find_blocking_experiment(place.job, "c", SlotTerms(1), view) for place in list(places)}
    assert waits == {"waits for a slot of this pool: 1 of 1 (maxSlots) are taken, by d"}
    assert places.walks == 2, "by this test, and by the view"


def test_places_are_numbers_that_people_say():
    said = [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111)]
    assert said == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th"]


def test_jobs_that_want_the_same_wait_in_one_queue_and_others_do_not():
    same = find_requirements(job(), CONFIG), find_requirements(job(), CONFIG)
    assert same[0].queue == same[1].queue
    assert same[0].queue != find_requirements(job(gpus=1), CONFIG).queue
    assert read_requirements(same[0].text) == same[0]


@pytest.mark.parametrize("text", ["", "[]", "null", '{"labels": 1}', '{"labels": [], "gpus": "x", "most": null}'])
def test_a_queue_that_cannot_be_read_is_nobodys(text):
    assert read_requirements(text) is None


def test_hosts_are_the_workers_with_the_queue():
    view = PoolView([worker("a", running=1), worker("b")], {"b": 400.0}, [QueuePlace("job", "q", (1, 0))], 300)
    first, second = view.hosts({"a": 1})
    assert (first.state, first.running, first.details["queue"], first.details["processors"]) == ("up", 1, 1, 2)
    assert (second.state, second.reason) == ("unhealthy", "silent for 6m 40s")


def test_a_worker_that_says_nonsense_of_itself_has_nothing():
    facts = {"host": None, "processors": -1, "running": "x", "gpus": True, "labels": 7, "state": []}
    assert read_worker_facts(WorkerRecord("w", "1", facts)) == WorkerFacts("w", "w")


@pytest.mark.parametrize("report", [{}, {"state": "ODD"}, {"state": None}])
def test_a_report_that_is_none_makes_a_job_wait(report):
    record = JobRecord("w", "1", report, False, "", "", False)
    assert status_of(record).state is JobState.WAITING


def test_a_report_is_checked_field_by_field():
    report = {"state": "FAILED", "exit_code": True, "started": "soon", "ended": float("nan"), "host": None}
    status = status_of(JobRecord("w", "1", report, False, "", "", False))
    assert (status.exit_code, status.started, status.ended, status.host) == (None, None, None, "w")


def test_texts_of_workers_are_short_and_can_be_sent():
    text = "\ud800\0" + "x" * 10_000
    facts = read_worker_facts(WorkerRecord("w", "1", {"host": text, "trouble": text, "labels": [text] * 100_000}))
    report = {"state": "RUNNING", "reason": text, "host": text}
    status = status_of(JobRecord("w", "1", report, False, "", "", False))
    texts = [facts.host, facts.trouble, *facts.labels, status.reason, status.host]
    assert [len(one) for one in texts] == [254, 499, 254, 3999, 254]
    assert {one[:2] for one in texts} == {"?x"}


def test_a_worker_has_no_more_labels_than_people_give():
    facts = read_worker_facts(WorkerRecord("w", "1", {"labels": [f"l{number}" for number in range(100_000)]}))
    assert len(facts.labels) == 1000


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000])
def test_a_claim_with_numbers_that_cannot_be_is_left_out(digits):
    assert _claim("j", f"1 {digits}-3 99999999999999 e", 0) is None
    assert _claim("j", f"1 2-3 {digits} e", 0) is None


def test_a_worker_whose_time_cannot_be_has_just_been_seen():
    (record,) = [_worker("w", [b"1", b"{}", b"-" + b"9" * 400], 1_790_000_000)]
    assert Silence().measure("w", record.beat, record.age_s) == 0.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_silence_counts_only_while_redis_answers():
    clock = Clock()
    silence = Silence(clock)
    assert [_heard(silence, clock, now) for now in (0, 5, 10)] == [0, 5, 10]
    silence.note_outage()
    assert _heard(silence, clock, 600) == 10
    assert _heard(silence, clock, 605) == 15
    assert silence.measure("worker", "another sign") == 0


def test_a_manager_that_was_stopped_takes_it_for_nobodys_silence():
    clock = Clock()
    silence = Silence(clock)
    assert [_heard(silence, clock, now) for now in (0, 3600)] == [0, 15]


def _heard(silence: Silence, clock: Clock, now: float) -> float:
    clock.now = now
    silence.note_answer()
    return silence.measure("worker", "sign")


def test_a_task_is_read_as_it_was_written():
    task = read_task(task_of(job(gpus=2), CONFIG, "code.tar.gz", "keeper-1"))
    assert (task.name, task.job.gpus, task.period_s, task.code) == ("nni-Ex-Tr-0", 2, 300.0, "code.tar.gz")


def test_where_the_disk_does_not_answer_no_keeper_counts_as_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    attempt = WorkerAttempt(read_task(task_of(job(), CONFIG, "code.tar.gz", "keeper-1")), tmp_path, None)
    assert not attempt.begun
    monkeypatch.setattr(os, "stat", failing_at(attempt.path / "job.json"))
    with pytest.raises(OSError, match="Input/output error"):
        _ = attempt.begun


async def test_a_job_whose_lease_could_not_be_written_is_begun_at_a_later_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written, prepared = leases.write_private, []

    def refuse(path: str, text: str) -> None:
        monkeypatch.setattr(leases, "write_private", written)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(leases, "write_private", refuse)
    monkeypatch.setattr(leases.Leases, "ensure_guard", lambda self: None)
    monkeypatch.setattr(Intake, "prepare", lambda self, attempt: prepared.append(attempt.name))
    taken = ClaimedJob("nni-Ex-Tr-0", task_of(job(), CONFIG, "code.tar.gz", "keeper-1"), "queue", "1")

    async def pending(worker: str) -> list[ClaimedJob]:
        return [taken]

    kept: list[str] = []

    async def keep(one: ClaimedJob) -> None:
        kept.append(one.job)

    parts = dict.fromkeys(("mail", "checkpoints", "gpus", "cache", "address"))
    intake = Intake(
        pool=SimpleNamespace(pending=pending, keep=keep),
        holdings=HeldAttempts(tmp_path, SimpleNamespace()),
        folder=tmp_path,
        worker="w",
        processors=1,
        labels=frozenset(),
        changed=lambda: None,
        **parts,
    )
    with pytest.raises(OSError, match="No space left"):
        await intake.take_pending("beat")
    assert (prepared, kept) == ([], [])
    await intake.take_pending("beat")
    assert (prepared, kept) == (["nni-Ex-Tr-0"], ["nni-Ex-Tr-0"])


@pytest.mark.parametrize("unreadable", ["", "exp/trials", "exp/trials/t", "exp/trials/t/0/job.json"])
def test_where_the_disk_does_not_answer_no_trial_of_an_earlier_worker_is_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str
):
    """It may have reported what was not delivered yet."""
    path = tmp_path / "exp/trials/t/0"
    path.mkdir(parents=True)
    (path / "job.json").write_text(json.dumps({"name": "t-0"}))
    assert list_attempts(tmp_path) == [path]
    for module, name in ((os, "listdir"), (os, "scandir"), (io, "open")):
        monkeypatch.setattr(module, name, failing_at(tmp_path / unreadable, getattr(module, name)))
    with pytest.raises(OSError, match="Input/output error"):
        [WorkerAttempt.found(one, tmp_path) for one in list_attempts(tmp_path)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"experiment": "../x"},
        {"trial": "a/b"},
        {"job": 7},
        {"attempt": -1},
        {"code": "../../etc/passwd"},
        {"keeper": ".hidden"},
        {"spec": None},
        {"gpus": "all"},
        {"period_s": float("inf")},
    ],
)
def test_a_task_that_no_manager_would_write_is_refused(wrong):
    with pytest.raises(BadTask):
        read_task({**task_of(job(), CONFIG, "code.tar.gz", "keeper-1"), **wrong})


@pytest.mark.parametrize(
    ("method", "path", "passes"),
    [
        ("POST", "/api/v1/callback/nni-a-b-0", True),
        ("GET", "/api/v1/callback/nni-a-b-0/proof?nonce=" + "0" * 32, True),
        ("GET", "/api/v1/callback/nni-a-b-0", False),
        ("POST", "/api/v1/callback/../experiment", False),
        ("GET", "/api/v1/experiment", False),
        ("DELETE", "/api/v1/callback/nni-a-b-0", False),
        ("POST", "/api/v1/callback/a HTTP/1.1\r\nX: y", False),
    ],
)
def test_only_what_keepers_ask_is_put_to_the_manager(method, path, passes):
    assert is_of_keeper(method, path) is passes
    if not passes:
        answer = put(lambda: "http://127.0.0.1:1", PoolMessage({"method": method, "path": path, "headers": {}}))
        assert answer.head == {"status": 403}


class SlowStore:
    """Has one file, which comes slowly."""

    def __init__(self):
        self.asked = 0

    async def get(self, name, path):
        self.asked += 1
        if name != "code":
            return False
        draft = path.with_name(f".{path.name}.new")
        draft.write_bytes(b"half")
        await pause_async(0.02, "the others come meanwhile")
        draft.write_bytes(b"whole")
        draft.replace(path)
        return True


async def test_attempts_that_begin_together_fetch_a_file_once(tmp_path):
    """They wrote into one draft, so that one of them failed and its trial was tried again."""
    store, cache = SlowStore(), FileCache(tmp_path / "cache")
    assert await asyncio.gather(*(cache.fetch("code", "code.tar", store) for _ in range(6))) == [True] * 6
    assert (store.asked, cache.place("code.tar").read_bytes()) == (1, b"whole")


async def test_a_file_that_nobody_has_can_be_asked_for_again(tmp_path):
    store, cache = SlowStore(), FileCache(tmp_path / "cache")
    assert [await cache.fetch("other", "other.tar", store) for _ in range(2)] == [False, False]
    assert store.asked == 2


def test_the_certificate_must_name_the_host_with_each_version_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(aioredis, "Redis", lambda **words: given.update(words))
    RedisAddress("rediss://redis.example.org").client()
    assert given["ssl_check_hostname"] is True  # before 6, its own default was False


async def test_a_worker_does_not_work_in_a_folder_that_another_user_has_laid(tmp_path: Path) -> None:
    stranger = known_user(STRANGER).pw_uid
    tmp_path.chmod(0o1777)
    (tmp_path / "work").mkdir()
    os.chown(tmp_path / "work", stranger, stranger)
    with pytest.raises(ConfigError, match="is another user's"):
        await run_worker(WorkerOptions(RedisAddress("redis://127.0.0.1:1"), "p", tmp_path / "work"))
