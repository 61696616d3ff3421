"""Which tests the processes of `pytest -n` take next, so that two processors are busy until the end.

Tests that start programs mostly wait for them, all others compute. Of four processes one first takes tests that
compute, while the others take those that wait: thus something computes all the time. Each takes the other kind when its
own is done. What is known to take long comes first, in both, and then what many tests share: a test or a group that
begins last may keep one process busy alone.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

COMPUTE = ("tests/unit/", "tests/manager/", "tests/tuners/")
"""Folders of which one process takes all tests of a file, one after the other: what they share is made once."""

_COMPUTING_ONE_OF = 4


class MixedWork(LoadGroupScheduling):
    """Hands out groups and single tests as `--dist loadgroup` does, in another order."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return scope.partition("::")[0] if scope == nodeid and nodeid.startswith(COMPUTE) else scope

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._choose(node), last=False)
        super()._assign_work_unit(node)

    def _choose(self, node: WorkerController) -> str:
        """Return the first unit of the kind that this process prefers, else the first of all."""
        computes = int(re.sub(r"\D", "", node.gateway.id)) % _COMPUTING_ONE_OF == 0
        kind = (unit for unit, tests in self.workqueue.items() if next(iter(tests)).startswith(COMPUTE) is computes)
        return next(kind, "") or next(iter(self.workqueue))

    def _reschedule(self, node: WorkerController) -> None:
        """Hand out a unit once a process has only its last test: what it holds nobody else can take."""
        pending = self._pending_of(self.assigned_work[node])
        if pending <= 1 or not self.workqueue:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> MixedWork | None:
    return MixedWork(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put first what may take long. All processes have the same order."""
    if hasattr(config, "workerinput"):
        put_longest_first(items)


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sort by the marker `timeout`, and then by the number of tests that one process takes together."""
    sizes = Counter(map(_unit, items))
    items.sort(key=lambda item: (_limit_s(item), sizes[_unit(item)]), reverse=True)


def _unit(item: pytest.Item) -> str:
    """Return what the tests that one process takes together have in common: their group, their file, or nothing."""
    marker = item.get_closest_marker("xdist_group")
    if marker:
        return str(marker.args[0])
    return item.nodeid.partition("::")[0] if item.nodeid.startswith(COMPUTE) else item.nodeid


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0.0
