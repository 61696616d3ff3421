"""The clusters of these tests: a real one for all tests of a run, and stand-ins."""

from __future__ import annotations

import pytest

from platforms.ray_cluster.bench import RayBench, have_patience
from platforms.ray_cluster.cluster import RayCluster, missing
from platforms.ray_cluster.head import RayHead


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave a real cluster to the long tests: each job takes it some two seconds of the processor.

    Every day there is the stand-in, whose answers a long test compares with those of the real one.
    """
    for item in items:
        if "real_ray" in item.fixturenames:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def real_ray():
    """A real cluster of one node, for all tests."""
    if missing():
        pytest.skip(missing())
    cluster = RayCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def head(tmp_path):
    """A stand-in; with it ends the test of whether Ray would have understood all requests."""
    with RayHead(tmp_path / "the cluster's $HOME") as head:
        yield head
    assert head.broken == []


@pytest.fixture
def open_bench(tmp_path, head):
    """Opens a bench whose jobs have this in their specifications, and whose section has these fields."""
    opened: list[RayBench] = []

    def make(common=None, **fields) -> RayBench:
        opened.append(RayBench(tmp_path, head.url, common, **fields))
        return opened[-1].__enter__()

    yield make
    head.steps, head.token = [], ""
    for bench in opened:
        bench.__exit__()


@pytest.fixture
def impatient(monkeypatch):
    """A call is given up soon."""
    have_patience(monkeypatch, call_s=1.0, log_call_s=0.5, end_pending_s=0.2)
