"""Attributes of trials in the manager: each exactly once, within limits, whatever a trial sends."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, StartBench, open_bench

from nnilite._sdk.worker_facts import NAME
from nnilite._store.database_file import FILE_NAME
from nnilite._store.integrity import IntegrityCheck
from nnilite._store.notices import find_notices
from nnilite.records import Attributed, Exited, KeeperEvent, MetricKind, Reported, Started

pytestmark = pytest.mark.usefixtures("impatient")

JOB = ("t0", 0)


def setting(index: int, name: str, value: Any, refused: str = "") -> KeeperEvent:
    return Attributed(index, name, value, 1.0 + index, refused)


async def begun(start_bench: StartBench) -> Bench:
    bench = await start_bench()
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    return bench


async def attributes(bench: Bench) -> Any:
    known = await bench.store.find_attempt(JOB)
    assert known is not None
    return known[0].attributes


def rows(folder: Path) -> list[Any]:
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as db:
        return db.execute("SELECT idx, name, value FROM attributes ORDER BY idx").fetchall()


async def test_the_last_value_of_a_name_counts_and_each_is_kept_once(start_bench: StartBench, tmp_path: Path) -> None:
    bench = await begun(start_bench)
    batch = [Started(1.0), setting(0, "a", 1), Reported(1, MetricKind.PERIODICAL, 0, 0.5, 2.0), setting(2, "a", [2])]
    for _ in range(3):  # the answer was lost on its way, twice
        assert (await bench.engine.commit_events(*JOB, batch)).metrics == 3
    assert await attributes(bench) == {"a": [2]}
    assert rows(tmp_path) == [(0, "a", "1"), (2, "a", "[2]")]


async def test_a_new_manager_goes_on_after_the_last_attribute(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
        await bench.engine.commit_events(*JOB, [Reported(0, MetricKind.PERIODICAL, 0, 0.5, 2.0), setting(1, "a", 1)])
    async with open_bench(tmp_path) as bench:
        assert (await bench.engine.commit_events(*JOB, [setting(1, "a", "again"), setting(2, "b", 2)])).metrics == 3
        assert await attributes(bench) == {"a": 1, "b": 2}
    assert len(rows(tmp_path)) == 2


async def test_attributes_that_come_after_the_end_are_kept(start_bench: StartBench) -> None:
    bench = await begun(start_bench)
    await bench.run_job("nni-e-t0-0")
    await bench.engine.commit_events(*JOB, [setting(1, "late", True)])
    assert await attributes(bench) == {"late": True}


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_over_the_limits_is_told_at_the_trial_and_the_rest_is_kept(
    start_bench: StartBench, late: bool
) -> None:
    bench = await begun(start_bench)
    if late:
        await bench.run_job("nni-e-t0-0")
    first = 1 if late else 0
    many = [setting(first + number, f"a{number}", number) for number in range(200)]
    await bench.engine.commit_events(*JOB, many)
    await bench.engine.commit_events(*JOB, [setting(first + 200, "large", "y" * 20_000)])
    await bench.engine.commit_events(
        *JOB, [setting(first + 201, "a0", "new"), setting(first + 202, "x", None, "it is not JSON")]
    )
    assert await attributes(bench) == {**{f"a{number}": number for number in range(100)}, "a0": "new"}
    if not late:
        await bench.engine.commit_events(*JOB, [Reported(203, MetricKind.FINAL, 0, 1.0, 2.0), Exited(3.0, 0)])
    trial = (await bench.store.find_attempt(JOB))[0]  # type: ignore[index]
    assert "attribute 'a100' was not kept: a trial has at most 100 attributes" in trial.reason
    assert len(trial.reason) < 300


async def test_a_further_attempt_begins_without_those_of_the_last_one(start_bench: StartBench) -> None:
    bench = await start_bench(retries_failed=1)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    await bench.engine.commit_events(*JOB, [setting(0, "a", 1), Exited(2.0, 1)])
    await bench.until(lambda: any(trial.id == "t0" and trial.attempt == 1 for trial in bench.live))
    assert next(trial for trial in bench.live if trial.id == "t0").attributes == {}


async def test_verify_finds_an_attribute_that_was_lost(tmp_path: Path) -> None:
    async with open_bench(tmp_path, max_trials=1) as bench:
        await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
        end = [setting(0, "a", 1), setting(1, "b", 2), Reported(2, MetricKind.FINAL, 0, 1.0, 2.0), Exited(3.0, 0)]
        await bench.engine.commit_events(*JOB, end)
    assert missing(tmp_path) == []
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("DELETE FROM attributes WHERE idx = 1")
        db.commit()
    assert missing(tmp_path) == ["it has 2 reports, and the last one is number 2: 1 are missing"]


def missing(folder: Path) -> list[str]:
    with IntegrityCheck(folder / FILE_NAME) as check:
        return [one.what for one in check.findings("e") if "missing" in one.what]


@pytest.mark.parametrize(
    ("start_s", "said"),
    [(1.5, "trial 0 took 2.0 s, 1.5 s of them before it asked for its parameters"), (0.8, ""), (2.5, ""), (None, "")],
)
async def test_a_start_that_takes_most_of_a_trial_is_told_with_its_figure(
    start_s: float | None, said: str, start_bench: StartBench, tmp_path: Path
) -> None:
    bench = await begun(start_bench)
    facts = {"host": "a", "executable": "/py", "startS": start_s}
    reports = [setting(0, NAME, facts), Reported(1, MetricKind.FINAL, 0, 0.5, 2.0)]
    await bench.engine.commit_events(*JOB, [Started(1.0), *reports, Exited(3.0, 0)])
    await bench.until(lambda: "t0" not in bench.engine.rules.live)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        found = find_notices(lambda query, *values: db.execute(query, values).fetchall(), ["default"], True)
    assert [sentence.partition(":")[0] for sentence in found] == ([said] if said else [])
    assert await attributes(bench) == {}
