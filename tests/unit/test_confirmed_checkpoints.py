"""A checkpoint counts only once the manager has what was reported before it, whatever happens in which order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnilite._keeper.folder import Folder
from nnilite._keeper.link import LinkDown
from nnilite._keeper.outbox import ManagerAnswer, Outbox
from nnilite._keeper.report_sender import ReportSender
from nnilite._keeper.saver import Saver

LIST = "checkpoints/t/0.json"
ALWAYS = 1e9
STEPS = ("report", "checkpoint", "deliver", "lose", "look")


class World:
    """A trial that reports each step before its checkpoint, its keeper, the manager and the storage, in one thread.

    `orders` says what happens next; it also happens wherever the saver or the report_sender waits for something.
    """

    def __init__(self, path: Path, orders: list[str]) -> None:
        self.orders = orders
        self.confirmed = self.reported = self.saved = 0
        self.kept: dict[str, bytes] = {}
        self.waits: list[float] = []
        self.folder = Folder(str(path))
        self.folder.create()
        self.step = path / "checkpoint" / "step"
        self.step.parent.mkdir()
        spec: Any = SimpleNamespace(
            storage={"parts": ["checkpoints"]}, checkpoint_dir=None, directory=str(path), trial="t", attempt=0
        )
        self.saver = Saver(spec, self.folder)
        self.saver._shared._storage = self  # type: ignore[assignment]
        link: Any = SimpleNamespace(post=self.post)
        self.report_sender = Waiting(self, link)
        self.saver._sender = self.report_sender
        self._lost = False
        self._delivers = self._looks = False

    def go_on(self) -> bool:
        """Let the next thing happen. Return False once nothing is left to happen."""
        if not self.orders:
            return False
        getattr(self, self.orders.pop(0))()
        self.check()
        return True

    def check(self) -> None:
        """Whenever the power goes, the next attempt begins after nothing that the manager does not have."""
        if LIST in self.kept:
            step = json.loads(self.kept[LIST])["files"]["step"]["object"]
            assert int(self.kept[step]) <= self.confirmed

    def report(self) -> None:
        if self.reported == self.saved:
            self.reported += 1
            with Path(self.folder.metrics).open("a", encoding="ascii") as spool:
                spool.write(f"intermediate {self.reported}\n")

    def checkpoint(self) -> None:
        if self.reported > self.saved:
            self.saved += 1
            self.step.with_name(".step.new").write_text(str(self.saved))
            self.step.with_name(".step.new").rename(self.step)

    def lose(self) -> None:
        self._lost = True

    def deliver(self) -> None:
        if not self._delivers:
            self._delivers = True
            self.report_sender._deliver()
            self._delivers = False

    def look(self) -> None:
        if not self._looks:
            self._looks = True
            self.saver._save_checkpoints(lambda: bool(self.orders), ALWAYS)
            self._looks = False

    def post(self, events: list[dict[str, Any]]) -> ManagerAnswer:
        self.go_on()
        if self._lost:
            self._lost = False
            raise LinkDown("no route")
        self.confirmed += sum(event["type"] == "metric" for event in events)
        self.go_on()
        return ManagerAnswer(200, metrics=self.confirmed)

    def put(self, name: str, path: str, moved: Callable[[int], None]) -> None:
        self.go_on()
        self.kept[name] = Path(path).read_bytes()
        self.check()
        self.go_on()

    def delete(self, name: str) -> None:
        self.kept.pop(name, None)


class Waiting(ReportSender):
    """A report_sender without a thread: its world goes on while it is waited for."""

    def __init__(self, world: World, link: Any) -> None:
        spec: Any = SimpleNamespace(heartbeat_s=10.0)
        super().__init__(spec, world.folder, Outbox(world.folder, {}), link, lambda: None)
        self._world = world

    def is_confirmed(self, number: int, limit_s: float) -> bool:
        self._world.waits.append(limit_s)
        self._world.go_on()
        return self._confirmed >= number


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(orders=st.lists(st.sampled_from(STEPS), max_size=40))
def test_in_any_order_of_events_no_listed_checkpoint_is_ahead_of_the_manager(
    tmp_path_factory: pytest.TempPathFactory, orders: list[str]
) -> None:
    world = World(tmp_path_factory.mktemp("world"), orders)
    while world.go_on():
        pass
    world.report()
    world.checkpoint()
    for _ in range(4):
        world.orders[:] = ["deliver"] * 8
        world.look()
    step = json.loads(world.kept[LIST])["files"]["step"]["object"]
    assert world.kept[step] == str(world.saved).encode(), "once the manager answers, the newest checkpoint counts"
    assert set(world.kept) == {LIST, step}, "what is never listed goes"


def test_a_manager_that_confirms_nothing_for_ten_minutes_is_not_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, ["report", "checkpoint"])
    world.go_on(), world.go_on()
    world.check = lambda: None  # type: ignore[method-assign]
    world.saver._save_checkpoints(lambda: True, 600.0)
    assert LIST in world.kept
    assert sum(world.waits) == pytest.approx(600.0, abs=1.0)
    world.report()
    world.checkpoint()
    before = len(world.waits)
    world.saver._save_checkpoints(lambda: True, 600.0)
    assert sum(world.waits[before:]) == pytest.approx(10.0, abs=1.0)
    assert "although the manager has not confirmed" in Path(world.folder.log).read_text()
    world.report()
    world.checkpoint()
    world.orders = ["deliver"] * 12
    world.saver._save_checkpoints(lambda: True, 600.0)
    assert world.saver._unconfirmed_s == 0.0


def test_what_a_given_up_attempt_has_saved_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, ["report", "checkpoint"])
    world.go_on(), world.go_on()
    world.report_sender.fenced = True
    assert "the manager has not confirmed the reports before them" in world.saver.finish(True, lambda: True)
    assert LIST not in world.kept
