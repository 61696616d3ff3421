"""Where a driver on Ray looks for further nodes of an elastic trial, and how long it leaves a place alone."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest


@functools.cache
def driver() -> Any:
    """Only the process that runs these tests imports Ray's library, which takes long."""
    return pytest.importorskip("nnilite_ray._start_nodes", reason="ray is not installed")


class Cluster:
    """Machines and what runs there; a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.machines = {"a": 8.0, "b": 8.0, "small": 1.0, "off": 0.0}
        self.busy: set[str] = set()
        self.ended: set[str] = set()
        self.killed: list[str] = []
        self.asked: list[str] = []
        self.waits = False
        cluster = self

        class NodeMember:
            def __init__(self, bundle: dict[str, float], place: str, strategy: object) -> None:
                cluster.asked.append(place)
                self.place, self.machine, self.actor, self.begun = place, "", place, cluster.now

            def is_there(self) -> bool:
                self.machine = "" if self.place in cluster.busy else self.place
                return bool(self.machine)

            def has_ended(self) -> bool:
                return self.place in cluster.ended

        fake = SimpleNamespace(nodes=self.list_nodes, kill=self.killed.append, exceptions=driver().ray.exceptions)
        monkeypatch.setattr(driver(), "ray", fake)
        monkeypatch.setattr(driver(), "NodeMember", NodeMember)
        monkeypatch.setattr(driver(), "placement_group_table", lambda: {"g": {"state": self.state}})
        monkeypatch.setattr(driver(), "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        for kind in ("PlacementGroupSchedulingStrategy", "NodeAffinitySchedulingStrategy"):
            monkeypatch.setattr(driver(), kind, lambda *args, **more: None)
        self.first = NodeMember({}, "bundle 0", None)
        self.first.machine = "head"
        self.members = [self.first]
        self.growth = driver().NodeSearch({"CPU": 2.0}, 3, None, 1)
        self.asked.clear()

    @property
    def state(self) -> str:
        return "PENDING" if self.waits else "CREATED"

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def list_nodes(self) -> list[dict[str, Any]]:
        found = {"head": 8.0, **self.machines}
        return [{"NodeID": name, "Alive": name != "off", "Resources": {"CPU": has}} for name, has in found.items()]

    def look(self, seconds: float) -> None:
        """Look once a second."""
        for _ in range(int(seconds)):
            self.now += 1
            joined = self.growth.look(self.members)
            self.members += [joined] if joined else []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_trial_begins_with_all_machines_that_have_room(cluster: Cluster) -> None:
    cluster.busy.add("a")
    found = cluster.growth.begin(cluster.members)
    assert ([one.place for one in found], cluster.killed) == (["b"], ["a"])


def test_it_grows_on_other_machines_one_after_the_other_and_no_further_than_it_may(cluster: Cluster) -> None:
    cluster.look(60)
    assert [one.place for one in cluster.members] == ["bundle 0", "a", "b"]
    assert cluster.asked == ["a", "b"]


def test_a_machine_without_room_is_given_up_for_another_and_asked_ever_more_rarely(cluster: Cluster) -> None:
    cluster.busy.add("a")
    cluster.look(600)
    assert [one.place for one in cluster.members] == ["bundle 0", "b"]
    assert 4 <= cluster.asked.count("a") <= 7
    assert cluster.killed == ["a"] * len(cluster.killed)


def test_a_node_that_has_ended_is_replaced_and_its_machine_left_alone_for_a_while(cluster: Cluster) -> None:
    cluster.look(30)
    cluster.ended.add("a")
    cluster.look(1)
    assert [one.place for one in cluster.members] == ["bundle 0", "b"]
    cluster.ended.clear()
    cluster.look(30)
    assert [one.place for one in cluster.members] == ["bundle 0", "b", "a"]


def test_a_ray_that_does_not_answer_ends_no_trial_and_is_reported_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("the head node\nis away")

    monkeypatch.setattr(driver().ray, "nodes", fail)
    nodes = driver().Nodes(1, {"CPU": 2.0}, 3)
    nodes._members = cluster.members
    for _ in range(20):
        cluster.now += 1
        nodes._grow(cluster.growth)
    assert capsys.readouterr().out == "the trial cannot grow now: is away\n"


def test_trials_that_wait_for_nodes_come_first(cluster: Cluster) -> None:
    cluster.waits = True
    cluster.look(60)
    assert cluster.asked == []


def test_a_bundle_of_the_reservation_that_has_lost_its_node_is_filled_again(cluster: Cluster) -> None:
    cluster.growth = driver().NodeSearch({"CPU": 2.0}, 2, None, 2)
    cluster.look(20)
    assert cluster.asked == ["bundle 1"]
