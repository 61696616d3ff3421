"""Slots that experiments share: who is next, whom one waits for, and what dead managers leave."""

from __future__ import annotations

import errno
import fcntl
import heapq
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite.errors import ConfigError
from nnilite.services import slots
from nnilite.services.slots import RENEWED_S, STARTING_S, Claim, SlotAllocator, SlotError, SlotTerms, reason_to_wait
from nnilite.testing.fakes import fake_context
from nnilite_local import LocalConfig, LocalService


@dataclass
class Part:
    """An experiment's part on a machine."""

    desk: SlotAllocator
    terms: SlotTerms


class Machine:
    """A folder of experiments, and the truth about their trials."""

    def __init__(self, place: Path) -> None:
        self.place = place / "it's\n $x"
        self.now = 1000.0
        self.tick_s = 1.0  # passes before each question
        self.running: set[str] = set()
        self.begun: set[str] = set()

    def desk(self, experiment: str, limit: int | None = 1, priority: int = 0, name: str = "local") -> Part:
        def runs(directory: Path) -> bool | None:
            job = directory.name
            return (job in self.running) if job in self.begun and job != "starting" else None

        desk = SlotAllocator(self.place / f"{experiment}.{name}.json", experiment, runs, patience_s=0.1)
        desk._clock = lambda: self.now
        return Part(desk, SlotTerms(limit, priority))

    def book(self, part: Part, job: str) -> str:
        """Why the job waits; "" if it runs now."""
        self.now += self.tick_s
        self.begun.discard(job)
        reason = part.desk.book(job, Path("/trials") / job, part.terms)
        if not reason:
            self.running.add(job)
            self.begun.add(job)
        return reason

    def end(self, part: Part, job: str) -> None:
        self.running.discard(job)
        part.desk.free(job)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_first_come_first_served_and_it_is_said_who_one_waits_for(machine: Machine) -> None:
    a, b, c = (machine.desk(name) for name in "abc")
    assert machine.book(a, "a1") == ""
    assert machine.book(b, "b1") == "waits for a slot of this machine: 1 of 1 (maxSlots) are taken, by a"
    assert machine.book(c, "c1") == "waits for experiment b, which asked before"
    machine.end(a, "a1")
    assert machine.book(a, "a2") == "waits for experiment b, which asked before"
    assert machine.book(c, "c1") == "waits for experiment b, which asked before"
    assert machine.book(b, "b1") == ""


def test_a_higher_priority_is_served_first_and_interrupts_nobody(machine: Machine) -> None:
    low, high = machine.desk("low"), machine.desk("high", priority=5)
    assert machine.book(low, "l1") == ""
    assert machine.book(low, "l2").endswith("are taken, by low")
    assert machine.book(high, "h1").endswith("are taken, by low")
    assert machine.running == {"l1"}
    machine.end(low, "l1")
    assert machine.book(low, "l2") == "waits for experiment high, whose priority 5 is higher"
    assert machine.book(high, "h1") == ""


def test_a_claim_that_is_not_renewed_holds_nobody_up_and_has_its_place_again_later(machine: Machine) -> None:
    a, killed, c = (machine.desk(name) for name in "akc")
    machine.book(a, "a1")
    machine.book(killed, "k1")
    machine.book(c, "c1")
    machine.end(a, "a1")
    machine.now += RENEWED_S
    assert machine.book(c, "c1") == ""
    assert machine.book(a, "a2").endswith("are taken, by c")
    assert machine.book(machine.desk("k"), "k1").endswith("are taken, by c")
    machine.end(c, "c1")
    assert machine.book(a, "a2") == "waits for experiment k, which asked before"


def test_a_dead_manager_s_slot_is_free_when_its_trial_has_ended(machine: Machine) -> None:
    a, b = machine.desk("a"), machine.desk("b")
    machine.book(a, "a1")
    machine.now += 3600.0
    assert machine.book(b, "b1").endswith("are taken, by a"), "the trial goes on without its manager"
    machine.running.discard("a1")
    assert machine.book(b, "b1") == ""


def test_a_slot_that_becomes_free_without_a_word_is_taken_at_once(machine: Machine) -> None:
    a, b = machine.desk("a"), machine.desk("b")
    machine.tick_s = 0.001
    machine.book(a, "a1")
    assert [machine.book(b, job).partition(":")[0] for job in ("b1", "b2")] == ["waits for a slot of this machine"] * 2
    machine.running.discard("a1")
    assert machine.book(b, "b2") != ""
    assert machine.book(b, "b1") == ""


def test_a_slot_of_a_trial_that_was_never_begun_is_free_after_a_while(machine: Machine) -> None:
    a, b = machine.desk("a"), machine.desk("b")
    assert machine.book(a, "starting") == ""
    assert machine.book(b, "b1").endswith("are taken, by a")
    machine.now += STARTING_S
    assert machine.book(b, "b1") == ""


def test_a_job_that_was_about_to_start_when_its_manager_died_has_its_slot(machine: Machine) -> None:
    assert machine.book(machine.desk("a"), "starting") == ""
    assert machine.book(machine.desk("a"), "starting") == ""


def test_who_cannot_use_a_slot_now_keeps_the_place(machine: Machine) -> None:
    a, b = machine.desk("a"), machine.desk("b")
    machine.book(a, "a1")
    a.desk.give_back("a1")
    assert machine.book(b, "b1") == ""
    assert machine.book(b, "b2").endswith("are taken, by b")
    machine.book(a, "a1")
    assert machine.book(b, "b2") == "waits for experiment a, which asked before"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b'{"held":{"x":1},"waiting":{},"priority":0}', b"\xff", b"[" * 100_000),
        *(b'{"priority":0,"held":{"x":["/a\\u0000",1]},"waiting":{}}', b'{"priority":Infinity,"held":{},"waiting":{}}'),
        *(
            b'{"priority":0,"held":{},"waiting":{"x":[1%s,1]}}' % (b"0" * 400),
            b'{"priority":0,"held":{"x":["\\ud800",1]}}',
        ),
    ],
)
def test_a_broken_file_of_another_experiment_is_left_out(machine: Machine, content: bytes) -> None:
    machine.place.mkdir()
    (machine.place / "other.json").write_bytes(content)
    assert machine.book(machine.desk("a"), "a1") == ""
    assert list(json.loads((machine.place / "a.local.json").read_text())["held"]) == ["a1"]


@pytest.mark.timeout(10)
def test_something_else_in_the_place_of_a_file_of_another_experiment_is_left_out(machine: Machine) -> None:
    machine.place.mkdir()
    os.mkfifo(machine.place / "pipe.json")
    (machine.place / "folder.json").mkdir()
    assert machine.book(machine.desk("a"), "a1") == ""


def test_a_file_that_cannot_be_read_now_may_hold_slots_so_nobody_starts(machine: Machine) -> None:
    machine.place.mkdir()
    (machine.place / "other.json").symlink_to("other.json")
    with pytest.raises(SlotError, match=r"other\.json cannot be read"):
        machine.book(machine.desk("a"), "a1")


def test_a_slot_that_cannot_be_written_down_is_not_taken(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = machine.desk("a"), machine.desk("b")

    def full(path: str, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(slots, "write_private", full)
        with pytest.raises(SlotError, match="No space left"):
            machine.book(a, "a1")
    assert machine.book(b, "b1") == ""
    assert machine.book(a, "a1").endswith("are taken, by b")


def test_a_manager_that_is_stopped_with_the_lock_makes_others_wait_and_say_so(machine: Machine) -> None:
    machine.place.mkdir()
    with (machine.place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "the manager of another experiment" in machine.book(machine.desk("a"), "a1")


def test_two_services_of_one_experiment_share_the_slots(machine: Machine) -> None:
    one, other = machine.desk("a", limit=2), machine.desk("a", limit=2, name="other")
    assert [machine.book(one, "a1"), machine.book(other, "a2")] == ["", ""]
    assert machine.book(one, "a3") == "waits for a slot of this machine: 2 of 2 (maxSlots) are taken, by a"


def test_without_a_limit_an_experiment_takes_no_part(machine: Machine) -> None:
    assert machine.book(machine.desk("a", limit=None), "a1") == ""
    assert not machine.place.exists()
    with pytest.raises(ConfigError, match="only with maxSlots"):
        LocalConfig(priority=3)


def test_a_priority_that_is_changed_without_slots_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    service = LocalService("local", LocalConfig(), fake_context(tmp_path))
    with pytest.raises(ConfigError, match="priority: takes effect only with maxSlots"):
        service.share_slots(None, 5)
    for terms in ((2, 5), (2, None), (None, 0), (None, None)):
        service.share_slots(*terms)
    LocalService("local", LocalConfig(max_slots=1), fake_context(tmp_path)).share_slots(None, 5)


TRIALS = st.lists(
    st.tuples(st.sampled_from("ABC"), st.integers(-1, 1), st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=12
)


@given(TRIALS, st.randoms(use_true_random=False))
def test_no_limit_is_passed_and_no_trial_starves(trials: list[tuple[str, int, int, int]], chance: object) -> None:
    """Trials ask in any order, and those that run end at some time: each starts, in the order of the rule."""
    claims = {
        Claim(f"{experiment}{k}", experiment, priority, float(since)): limit
        for k, (experiment, priority, since, limit) in enumerate(trials)
    }
    waiting, running, started = dict(claims), [], []
    while waiting:
        asking = list(waiting)
        chance.shuffle(asking)  # type: ignore[attr-defined]
        for claim in asking:
            if not reason_to_wait(claim, set(waiting) - {claim}, [one.experiment for one in running], claims[claim]):
                running.append(claim)
                started.append(claim)
                del waiting[claim]
                assert len(running) <= claims[claim]
        assert running, "nobody runs, and yet all wait"
        running.pop(0)
    assert started == sorted(claims, key=lambda claim: claim.place)


def test_where_files_cannot_be_locked_it_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SlotError, match="cannot lock the slots of this machine: No locks available"):
        machine.book(machine.desk("a"), "a1")


def test_terms_may_change_while_trials_wait(machine: Machine) -> None:
    a, b, c = (machine.desk(name) for name in "abc")
    for part, job in ((a, "a1"), (b, "b1"), (c, "c1")):
        machine.book(part, job)
    c.terms = SlotTerms(2, priority=5)
    assert machine.book(c, "c1") == ""
    b.terms = SlotTerms(2)
    assert machine.book(b, "b1") == "waits for a slot of this machine: 2 of 2 (maxSlots) are taken, by a, c"
    b.terms = SlotTerms(None)
    assert machine.book(b, "b1") == ""


def test_who_leaves_waits_no_more_and_the_last_one_leaves_nothing(machine: Machine) -> None:
    a, b, c = (machine.desk(name) for name in "abc")
    for part, job in ((a, "a1"), (b, "b1"), (c, "c1")):
        machine.book(part, job)
    a.desk.leave()
    assert machine.book(c, "c1") == "waits for experiment b, which asked before", "a trial that runs keeps its slot"
    b.desk.leave()
    machine.end(a, "a1")
    assert machine.book(c, "c1") == ""
    machine.end(c, "c1")
    c.desk.leave()
    assert not machine.place.exists()
    assert machine.book(b, "b1") == ""


class Crash(BaseException):
    """The end of a manager in the middle of its work."""


@contextmanager
def crashing(before: bool) -> Iterator[None]:
    """The next manager that writes dies, just before or just after its file is there."""
    real = slots.write_private

    def write(path: str, text: str) -> None:
        if not before:
            real(path, text)
        raise Crash

    slots.write_private = write  # type: ignore[attr-defined]
    try:
        yield
    except Crash:
        pass
    finally:
        slots.write_private = real  # type: ignore[attr-defined]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "end", "die before", "die after", "restart", "pause"]),
        st.sampled_from("ABC"),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(STEPS, st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 1)), min_size=3, max_size=3))
def test_whenever_managers_die_no_limit_is_passed_and_no_slot_is_lost(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]], terms: list[tuple[int, int]]
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    made = {name: machine.desk(name, *terms[k]) for k, name in enumerate("ABC")}
    for what, name, number in steps:
        job, part = f"{name}{number}", made[name]
        if what in ("die before", "die after") and job not in machine.running:
            with crashing(before=what == "die before"):
                machine.book(part, job)
        elif what == "ask" and job not in machine.running and not machine.book(part, job):
            assert len(machine.running) <= (part.terms.limit or 0)
        elif what == "end" and job in machine.running:
            machine.end(part, job)
        elif what == "pause":
            machine.now += RENEWED_S
        if what not in ("ask", "end", "pause"):
            made[name] = machine.desk(name, *terms["ABC".index(name)])
    machine.running.clear()
    machine.now += STARTING_S
    for name, part in made.items():
        assert machine.book(part, f"{name}9") == "", "all trials have ended, and nobody waits"
        machine.end(part, f"{name}9")


ASKS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "ask", "end", "cancel", "pause", "more", "less"]),
        st.sampled_from("ABC"),
        st.integers(0, 3),
        st.sampled_from([0.001, 0.1, 1.0]),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(ASKS)
def test_whom_a_trial_waits_for_is_what_the_rule_says_of_all_claims(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, float]]
) -> None:
    """The rule sees the first claim of each file alone, and files that are written now and then: it must not matter."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.tick_s = 0.0
    parts = {name: machine.desk(name, limit=2) for name in "ABC"}
    asked: dict[str, tuple[float, float]] = {}
    for what, name, number, later_s in steps:
        job, part = f"{name}{number}", parts[name]
        machine.now += 2 * RENEWED_S if what == "pause" else later_s
        ages = {one: machine.now - seen for one, (_, seen) in asked.items() if one != job}
        if what == "ask" and job not in machine.running and not any(9.0 < age < 15.1 for age in ages.values()):
            asked[job] = (asked.get(job, (machine.now,))[0], machine.now)
            part.desk._own.priority = part.terms.priority
            claims = {
                one: Claim(one, one[0], parts[one[0]].desk._own.priority, since)
                for one, (since, _) in asked.items()
                if ages.get(one, 0.0) <= RENEWED_S
            }
            mine = claims.pop(job)
            wanted = reason_to_wait(mine, claims.values(), [one[0] for one in machine.running], 2)
            assert machine.book(part, job) == wanted
            if not wanted:
                del asked[job]
        elif what == "end" and job in machine.running:
            machine.end(part, job)
        elif what == "cancel" and job in asked:
            machine.now += 1.0
            del asked[job]
            part.desk.free(job)
        elif what in ("more", "less"):
            part.terms = SlotTerms(2, 1 if what == "more" else -1)


class Ledger:
    """Counts what asking costs: files that are read, files that are written, trials that are looked at."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        for name in ("write_private", "_parsed", "_content", "Claim"):
            monkeypatch.setattr(slots, name, self._counted(name, getattr(slots, name)))
        monkeypatch.setattr(heapq, "heappop", self._counted("heappop", heapq.heappop))
        self._machine = machine

    def _counted(self, name: str, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.counts[name] += 1
            return real(*arguments)

        return call

    def round(self, part: Part, jobs: list[str]) -> Counter[str]:
        """All ask within a tenth of a second."""
        self.counts.clear()
        for job in jobs:
            self._machine.now += 0.1 / len(jobs)
            part.desk.book(job, Path("/trials") / job, part.terms)
        return Counter(self.counts)


def test_what_asking_costs_does_not_grow_with_the_number_of_trials_that_wait(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(machine, monkeypatch)
    parts = {name: machine.desk(name) for name in "ab"}
    looks: list[Path] = []
    for name, part in parts.items():
        runs = part.desk._runs
        part.desk._runs = lambda directory, runs=runs: looks.append(directory) or runs(directory)
        ledger.round(part, [f"{name}{k}" for k in range(1000)])
    machine.begun.add("a0")
    machine.running.add("a0")
    for name, part in parts.items():
        looks.clear()
        machine.now += 1.0
        spent = ledger.round(part, [f"{name}{k}" for k in range(1, 1000)])
        assert spent["write_private"] <= 2
        assert spent["_parsed"] <= 1
        assert spent["Claim"] <= 4 * 1000, "a claim of its own, and the first one of each experiment"
        assert spent["heappop"] == 0
        assert len(looks) <= 6


def test_many_trials_that_are_canceled_while_they_wait_cost_little_and_hold_nobody_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(machine, monkeypatch)
    a, b = machine.desk("a"), machine.desk("b")
    jobs = [f"a{k}" for k in range(500)]
    ledger.round(a, jobs)
    machine.book(b, "b1")
    ledger.counts.clear()
    for job in jobs[1:]:
        a.desk.free(job)
    assert ledger.counts["write_private"] <= 3
    a.desk.free("a0")
    assert machine.book(b, "b1") == ""


def test_the_file_is_read_by_an_earlier_version_and_one_of_an_earlier_version_is_read(machine: Machine) -> None:
    a, b = machine.desk("a"), machine.desk("b", priority=2)
    machine.book(a, "a1")
    machine.book(b, "b1")
    found = json.loads((machine.place / "b.local.json").read_text())
    assert found == {"priority": 2, "held": {}, "waiting": {"b1": [1002.0, 1002.0]}}
    old = {"priority": 0, "held": {"c1": ["/trials/c1", 1000.0]}, "waiting": {"c2": [1000.5, machine.now]}}
    (machine.place / "c.local.json").write_text(json.dumps(old))
    machine.end(a, "a1")
    assert machine.book(a, "a2") == "waits for experiment b, whose priority 2 is higher"
    assert machine.book(machine.desk("d", priority=-1), "d1").startswith("waits for experiment b")
