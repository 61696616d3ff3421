"""What a trial uses, from files like those of Linux in /proc, and how its keeper tells it."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keeper_bench import Bench
from nnilite._keeper import report_sender
from nnilite._keeper.folder import Folder
from nnilite._keeper.link import RestLink
from nnilite._keeper.link_choice import Link
from nnilite._keeper.outbox import ManagerAnswer, Outbox
from nnilite._keeper.process import identity
from nnilite._keeper.report_sender import ReportSender
from nnilite._keeper.resource_usage import TrialMeter
from nnilite._keeper.spec import Spec, load
from nnilite._keeper.stdout_link import StdoutLink
from nnilite.testing import eventually

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Machine:
    """A /proc whose processes a test sets, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 100.0
        (folder / "self").symlink_to(str(os.getpid()))

    def process(self, pid: int, parent: int, seconds: float, pages: int, children: Sequence[int] = ()) -> None:
        """A process that has worked so long; half of that were children that have ended."""
        own = int(seconds * TICKS / 4)
        fields = ["S", str(parent), *["1"] * 9, *[str(own)] * 4, *["1"] * 4, f"start-of-{pid}", "1", str(pages), "1"]
        threads = self.folder / str(pid) / "task" / str(pid)
        threads.mkdir(parents=True, exist_ok=True)
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}\n")
        (threads / "children").write_text("".join(f"{child} " for child in children))

    def meter(self, start: str = "start-of-7", **env: str) -> TrialMeter:
        return TrialMeter(7, start, env, 100.0, str(self.folder), lambda: self.now)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    found.process(7, 1, seconds=5, pages=10, children=[8])
    found.process(8, 7, seconds=10, pages=20)
    found.process(9, 1, seconds=1000, pages=1000)
    return found


def test_a_process_and_its_descendants_are_added_up(machine: Machine) -> None:
    meter = machine.meter()
    machine.now = 110.0
    assert meter.read() == {"type": "use", "processors": 1.5, "memory": 30 * PAGE, "gpus": []}
    machine.process(8, 7, seconds=15, pages=5)
    machine.now = 120.0
    assert meter.read() == {"type": "use", "processors": 0.5, "memory": 15 * PAGE, "gpus": []}


def test_it_looks_at_most_once_in_ten_seconds(machine: Machine) -> None:
    meter = machine.meter()
    machine.now = 105.0
    assert meter.read() is not None
    machine.now = 114.9
    assert meter.read() is None
    machine.now = 115.0
    assert meter.read() is not None


def test_time_that_is_lost_with_children_that_nobody_waits_for_is_not_negative(machine: Machine) -> None:
    meter = machine.meter()
    machine.now = 110.0
    meter.read()
    machine.process(7, 1, seconds=5, pages=10)
    machine.now = 120.0
    assert meter.read() == {"type": "use", "processors": 0.0, "memory": 10 * PAGE, "gpus": []}


def test_descendants_are_found_where_the_system_does_not_list_children(machine: Machine) -> None:
    for listed in machine.folder.glob("*/task/*/children"):
        listed.unlink()
    meter = machine.meter()
    machine.now = 110.0
    assert meter.read() == {"type": "use", "processors": 1.5, "memory": 30 * PAGE, "gpus": []}


def test_nothing_is_said_of_a_process_that_only_has_the_same_id(machine: Machine) -> None:
    machine.now = 110.0
    assert machine.meter(start="another").read() is None
    assert machine.meter(start="").read() is None


def test_nothing_is_said_where_proc_has_the_ids_of_another_namespace(machine: Machine) -> None:
    (machine.folder / "self").unlink()
    (machine.folder / "self").symlink_to(str(os.getpid() + 1))
    machine.now = 110.0
    assert machine.meter().read() is None


@pytest.mark.parametrize("text", ["", "7", "7 (x) S 1", "7 (x) " + " ".join(["x"] * 40)])
def test_nothing_is_said_where_proc_is_something_else(machine: Machine, text: str) -> None:
    (machine.folder / "7" / "stat").write_text(text)
    machine.now = 110.0
    assert machine.meter(start="x").read() is None


def test_gpus_are_named_where_the_trial_numbers_them_as_its_host_does(machine: Machine) -> None:
    machine.now = 110.0
    by_bus = machine.meter(CUDA_VISIBLE_DEVICES="0,3", CUDA_DEVICE_ORDER="PCI_BUS_ID").read()
    assert by_bus is not None
    assert by_bus["gpus"] == [0, 3]
    by_speed = machine.meter(CUDA_VISIBLE_DEVICES="0,3").read()
    assert by_speed is not None
    assert by_speed["gpus"] == []


class Batches:
    """What a report_sender sends; the answer to batches with a use is `answer`."""

    def __init__(self, answer: int) -> None:
        self.sent: list[list[dict[str, Any]]] = []
        self.answer = answer

    def post(self, events: list[dict[str, Any]]) -> ManagerAnswer:
        self.sent.append(events)
        return ManagerAnswer(self.answer if self.uses(events) else 200, metrics=0, output={})

    def uses(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [event for event in events if event["type"] == "use"]

    def heard(self) -> list[dict[str, Any]]:
        return [use for events in self.sent for use in self.uses(events)]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    with Bench(tmp_path) as bench:
        return load(str(bench.spec("true", heartbeat_s=0.02)))


def told(spec: Spec, link: Link, batches: Batches, monkeypatch: pytest.MonkeyPatch) -> ReportSender:
    """A report_sender that measures this process from the start on, and sends heartbeats."""
    monkeypatch.setattr(report_sender, "_MEASURED_FROM_S", 0.0)
    monkeypatch.setattr(link, "post", batches.post)
    monkeypatch.setattr(link, "prepare", lambda: None)
    folder = Folder(spec.directory)
    found = ReportSender(spec, folder, Outbox(folder, {}), link, lambda: None)
    found.measure(identity(os.getpid()))
    found.start()
    return found


def test_a_keeper_tells_with_its_heartbeat_what_the_trial_uses(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(200)
    teller = told(spec, RestLink(spec), batches, monkeypatch)
    eventually(batches.heard)
    teller.stop()
    assert batches.heard()[0]["memory"] > 1_000_000


def test_an_older_manager_that_refuses_what_a_trial_uses_is_not_told_again(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(400)
    Path(spec.directory, ".nni").mkdir(parents=True)
    teller = told(spec, RestLink(spec), batches, monkeypatch)
    eventually(lambda: len(batches.sent) > 5)
    teller.stop()
    assert len(batches.heard()) == 1
    assert batches.sent[-1] == []


@pytest.mark.parametrize("trouble", ["too many files", "no keeper to load from"])
def test_reports_go_on_where_what_a_trial_uses_cannot_be_told(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def fail(meter: TrialMeter) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    if trouble == "too many files":
        monkeypatch.setattr(TrialMeter, "read", fail)
    else:
        monkeypatch.setitem(sys.modules, "nnilite._keeper.resource_usage", None)
    batches = Batches(200)
    Path(spec.directory, ".nni").mkdir(parents=True)
    teller = told(spec, RestLink(spec), batches, monkeypatch)
    eventually(lambda: len(batches.sent) > 5)
    teller.stop()
    assert batches.heard() == []
    notes = Path(spec.directory, ".nni", "keeper.log").read_text()
    assert notes.count("cannot measure what the trial uses") == 1


def test_a_log_is_not_told_what_a_trial_uses(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(200)
    teller = told(spec, StdoutLink(), batches, monkeypatch)
    eventually(lambda: len(batches.sent) > 5)
    teller.stop()
    assert batches.heard() == []


@pytest.mark.process
def test_a_short_trial_is_not_measured(tmp_path: Path) -> None:
    with Bench(tmp_path) as bench:
        bench.run(f"{shlex.quote(sys.executable)} -c pass", heartbeat_s=0.01)
        assert bench.callback.uses == []
