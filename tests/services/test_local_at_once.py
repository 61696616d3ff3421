"""The local service gets several submissions at once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from nnilite.errors import NoCapacity
from nnilite.testing import ServiceBench, eventually
from nnilite.testing.probes import quoted
from nnilite_local import LocalConfig, LocalService

pytestmark = pytest.mark.process


def opened(folder: Path, **config: Any) -> ServiceBench:
    return ServiceBench(folder, lambda context: LocalService("local", LocalConfig(**config), context))


def submit_at_once(bench: ServiceBench, *commands: str) -> tuple[list[str], list[BaseException]]:
    """The jobs that were taken, and why others were not."""
    jobs = [bench.job(command) for command in commands]

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*map(bench.service.submit, jobs), return_exceptions=True)

    taken, refused = [], []
    for job, answer in zip(jobs, bench.call(all_at_once()), strict=True):
        if isinstance(answer, BaseException):
            refused.append(answer)
        else:
            bench.handles[job.name] = answer
            taken.append(job.name)
    return taken, refused


def test_all_run_once_and_each_has_a_keeper_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        mark = bench.mark()
        names, refused = submit_at_once(bench, *[f"echo {n} >> {quoted(mark)}; sleep 1" for n in range(6)])
        assert refused == []
        assert len({bench.handles[name]["pid"] for name in names}) == 6
        for name in names:
            assert bench.finish(name).exits[0]["code"] == 0
        assert sorted(bench.lines()) == list("012345")


def test_no_more_get_a_slot_than_there_are(tmp_path: Path) -> None:
    with opened(tmp_path, max_slots=2) as bench:
        names, refused = submit_at_once(bench, *["sleep 60"] * 6)
        assert len(names) == 2
        assert [type(error) for error in refused] == [NoCapacity] * 4


@pytest.mark.parametrize("how", [signal.SIGKILL, None])
def test_one_fork_server_is_started_for_all_of_them(tmp_path: Path, how: signal.Signals | None) -> None:
    with opened(tmp_path) as bench:
        server = bench.service._server  # type: ignore[attr-defined]
        first = server.pid
        if how is not None:
            os.kill(first, how)
            eventually(lambda: server.pid != first)
        names, refused = submit_at_once(bench, *["true"] * 5)
        assert (len(names), refused) == (5, [])
        assert len({bench.handles[name]["server"] for name in names}) == 1
        assert (server.pid == first) == (how is None)
