"""The processes of `pytest -n` compute and wait at the same time, and none holds work that another could do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.mixed_work import MixedWork, put_longest_first

COMPUTING = [f"tests/unit/test_a.py::test_{number}" for number in range(9)] + ["tests/tuners/test_b.py::test_it"]
WAITING = [
    "tests/e2e/test_c.py::test_one",
    "tests/services/test_d.py::test_one@group",
    *(f"tests/e2e/test_e.py::test_{n}" for n in range(4)),
]


class Process:
    """A process of `pytest -n` that keeps what it is sent."""

    def __init__(self, number: int, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.tests = tests
        self.sent: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += [self.tests[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    """Hands out tests to so many processes."""

    def __init__(self, count: int, tests: list[str]) -> None:
        options = {"tx": ["popen"] * count}
        option = SimpleNamespace(loadscopereorder=True)
        config: Any = SimpleNamespace(getvalue=options.get, option=option, rootpath="/")
        self.work = MixedWork(config)
        self.processes = [Process(number, tests) for number in range(count)]
        for process in self.processes:
            self.work.add_node(process)
        for process in self.processes:
            self.work.add_node_collection(process, tests)
        self.work.schedule()

    def finish(self, process: Process, test: str) -> None:
        self.work.mark_test_complete(process, process.tests.index(test))


@pytest.fixture
def run() -> Run:
    return Run(2, WAITING + COMPUTING)


def test_one_process_computes_while_the_other_waits(run: Run) -> None:
    computing, waiting = run.processes
    assert set(computing.sent) <= set(COMPUTING)
    assert set(waiting.sent) <= set(WAITING)


def test_a_process_takes_all_tests_of_a_file_that_computes(run: Run) -> None:
    assert run.processes[0].sent == COMPUTING[:9]


def test_a_process_holds_no_test_but_its_next_one(run: Run) -> None:
    waiting = run.processes[1]
    assert len(waiting.sent) == 2
    run.finish(waiting, waiting.sent[0])
    assert len(waiting.sent) == 3


def test_each_process_takes_the_other_kind_when_its_own_is_done(run: Run) -> None:
    while not all(process.shutting_down for process in run.processes):
        for process in run.processes:
            for test in list(process.sent):
                run.finish(process, test)
    computing, waiting = run.processes
    assert sorted(computing.sent + waiting.sent) == sorted(WAITING + COMPUTING)
    assert set(computing.sent) & set(WAITING)


class Item:
    """A test with these markers and their first arguments."""

    def __init__(self, nodeid: str, **markers: object) -> None:
        self.nodeid = nodeid
        self.get_closest_marker = {name: SimpleNamespace(args=(value,)) for name, value in markers.items()}.get


def test_what_may_take_long_begins_first_and_then_what_many_tests_share() -> None:
    single = Item("tests/e2e/test_c.py::test_one")
    pair = [Item(f"tests/services/test_d.py::test_{number}", xdist_group="pair") for number in range(2)]
    file = [Item(f"tests/unit/test_a.py::test_{number}") for number in range(3)]
    long = Item("tests/e2e/test_e.py::test_long", timeout=300)
    items: Any = [single, *pair, *file, long]
    put_longest_first(items)
    assert items == [long, *file, *pair, single]
