"""Answers about many trials at once, from a real store: rows, curves, importance."""

from __future__ import annotations

import asyncio
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from nnilite._answers.backend import TrialQuery
from nnilite._answers.bulk_queries import ImportanceMethod, PageCursor, Table
from nnilite._engine import messages
from nnilite._rest.bulk_handlers import write_rows
from nnilite._store import tables
from nnilite._store.importance import columns, compute, flatten
from nnilite._store.reader import Reader
from nnilite._store.tables import BulkReader
from nnilite._store.writer import Store
from nnilite.records import Attempt, Metric, MetricKind, Trial, TrialState

Ask = Callable[[Callable[[BulkReader], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    found = Store.create(tmp_path / "it's $x.sqlite", "exp12345", 1000.0)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first import of the libraries, which compiles them, takes longer than a page may wait."""
    monkeypatch.setattr(tables, "_IMPORTANCE_TIMEOUT_S", 1000.0)


@pytest.fixture
def ask(store: Store) -> Ask:
    """Ask a `BulkReader` over the store."""

    def run(question: Callable[[BulkReader], Coroutine[Any, Any, Any]]) -> Any:
        async def work() -> Any:
            reader = Reader(store.path)
            bulk = BulkReader(reader, {"default": "maximize", "cost": "minimize"})
            try:
                return await question(bulk)
            finally:
                reader.close()

        return asyncio.run(work())

    return run


def trial(sequence: int, **more: Any) -> Trial:
    fields = {"parameters": {"x": sequence}, "state": TrialState.SUCCEEDED, "value": float(sequence), **more}
    return Trial(f"t{sequence}", sequence, created=1.0, started=2.0, ended=3.0, **fields)


def save(store: Store, trials: Sequence[Trial]) -> None:
    store.write([messages.SaveTrial(one) for one in trials])


def rows_of(page: Any) -> list[dict[str, Any]]:
    answer = json.loads(write_rows(Table.TRIALS, page))
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def test_pages_of_rows_hold_every_trial_once_though_many_were_written_together(store: Store, ask: Ask) -> None:
    save(store, [trial(number) for number in range(7)])

    async def all_pages(bulk: BulkReader) -> list[int]:
        found, after = [], PageCursor()
        while (page := await bulk.rows(Table.TRIALS, after, 3)).count:
            found += [row["sequence"] for row in rows_of(page)]
            after = page.next
        return found

    assert ask(all_pages) == list(range(7))


def test_only_what_changed_comes_after_a_page(store: Store, ask: Ask) -> None:
    save(store, [trial(number) for number in range(4)])
    after = ask(lambda bulk: bulk.rows(Table.TRIALS, PageCursor(), 100)).next
    save(store, [trial(2, state=TrialState.FAILED)])
    page = ask(lambda bulk: bulk.rows(Table.TRIALS, after, 100))
    assert [(row["sequence"], row["state"]) for row in rows_of(page)] == [(2, "FAILED")]


def test_rows_survive_values_that_are_no_json(store: Store, ask: Ask) -> None:
    save(store, [trial(0, value={"default": math.nan}, parameters={"k": 'é\u2028"\n'})])
    (row,) = rows_of(ask(lambda bulk: bulk.rows(Table.TRIALS, PageCursor(), 10)))
    assert row["value"] == '{"default": NaN}'
    assert row["parameters"] == {"k": 'é\u2028"\n'}
    assert tuple(row) == Table.TRIALS.columns


@pytest.mark.parametrize("state", [TrialState.RUNNING, TrialState.EARLY_STOPPED])
def test_trials_without_a_final_result_bring_their_latest_one(store: Store, ask: Ask, state: TrialState) -> None:
    save(store, [trial(0, state=state, value=None), trial(1), trial(2, value=None)])
    metrics = [Metric(f"t{t}", 0, k, MetricKind.PERIODICAL, k, k / 2, 1.0) for t in range(2) for k in range(4)]
    store.write([messages.SaveMetric(metric) for metric in metrics])
    rows = rows_of(ask(lambda bulk: bulk.rows(Table.TRIALS, PageCursor(), 10)))
    assert [row["latest"] for row in rows] == [1.5, None, None]
    assert ask(lambda bulk: bulk._reader.trials(TrialQuery())).latest == {"t0": 1.5}


def test_attempts_are_listed_with_their_hosts(store: Store, ask: Ask) -> None:
    save(store, [trial(0)])
    store.write([messages.SaveAttempt(Attempt("t0", number, host=f"h{number}")) for number in (0, 1)])
    page = ask(lambda bulk: bulk.rows(Table.ATTEMPTS, PageCursor(), 10))
    answer = json.loads(write_rows(Table.ATTEMPTS, page))
    assert [row[answer["columns"].index("host")] for row in answer["rows"]] == ["h0", "h1"]
    assert answer["next"] == "0-1"


def test_curves_are_thinned_and_keep_their_end(store: Store, ask: Ask) -> None:
    save(store, [trial(0)])
    metrics = [Metric("t0", 0, k, MetricKind.PERIODICAL, k, {"default": k, "loss": -k}, 1.0) for k in range(1000)]
    store.write([messages.SaveMetric(metric) for metric in metrics])
    (curve,) = ask(lambda bulk: bulk.curves(["t0", "unknown"], 50, "loss"))
    assert len(curve.steps) <= 51
    assert (curve.steps[0], curve.steps[-1], curve.values[-1]) == (0, 999, -999.0)


@pytest.mark.process
def test_the_parameter_that_decides_is_found_to_matter_most(store: Store, ask: Ask) -> None:
    luck = random.Random(0)
    points = [(luck.random(), luck.choice("abc")) for _ in range(60)]
    save(store, [trial(n, parameters={"x": x, "noise": k}, value=x * x) for n, (x, k) in enumerate(points)])
    found = ask(lambda bulk: bulk.importance(ImportanceMethod.PED_ANOVA, "default"))
    assert (found.reason, found.trials, found.shares[0][0]) == ("", 60, "x")
    assert found.shares[0][1] > 0.6


@pytest.mark.process
def test_an_importance_has_an_interval_around_it(store: Store, ask: Ask) -> None:
    luck = random.Random(0)
    points = [(luck.random(), luck.random()) for _ in range(60)]
    save(store, [trial(n, parameters={"x": x, "noise": y}, value=x * x) for n, (x, y) in enumerate(points)])
    found = ask(lambda insight: insight.importance(ImportanceMethod.PED_ANOVA, "default"))
    (low, high), _ = found.intervals
    assert 0 <= low <= found.shares[0][1] + 0.1
    assert low < high <= 1


@pytest.mark.process
def test_a_result_that_has_changed_is_seen_in_the_importance(store: Store) -> None:
    async def work() -> None:
        reader = Reader(store.path)
        bulk = BulkReader(reader, {"default": "maximize"})
        parameters = [{"x": n, "y": (n * 7) % 30} for n in range(30)]
        try:
            for wanted in ("x", "y"):
                save(store, [trial(n, parameters=one, value=float(one[wanted])) for n, one in enumerate(parameters)])
                found = await bulk.importance(ImportanceMethod.PED_ANOVA, "default")
                assert found.shares[0][0] == wanted
        finally:
            reader.close()

    asyncio.run(work())


@pytest.mark.process
def test_trials_that_were_stopped_early_count_for_the_importance_if_asked(store: Store, ask: Ask) -> None:
    stopped = [trial(n, state=TrialState.EARLY_STOPPED, value=None) for n in range(20)]
    save(store, stopped)
    reports = [Metric(f"t{n}", 0, k, MetricKind.PERIODICAL, k, float(n + k), 1.0) for n in range(20) for k in range(2)]
    store.write([messages.SaveMetric(metric) for metric in reports])
    method = ImportanceMethod.PED_ANOVA
    assert ask(lambda insight: insight.importance(method, "default")).trials == 0
    assert ask(lambda insight: insight.importance(method, "default", stopped=True)).trials == 20


def test_few_trials_have_no_importance_and_it_says_why(store: Store, ask: Ask) -> None:
    save(store, [trial(0)])
    assert "at least" in ask(lambda bulk: bulk.importance(ImportanceMethod.AUTO, "default")).reason


def test_equal_results_have_no_importance_and_it_says_why() -> None:
    assert "varies" in compute("pedAnova", [({"x": n}, 1.0) for n in range(9)], "maximize")["reason"]


def test_nested_choices_are_flattened_by_their_names() -> None:
    nested = {"layer": {"_name": "Conv", "size": 3, "inner": {"_name": "A", "q": 1}}, "x": [1, 2]}
    flat = {"layer": "Conv", "layer.size": 3, "layer.inner": "A", "layer.inner.q": 1, "x": [1, 2]}
    assert flatten(nested) == flat


def test_a_parameter_that_some_trials_lack_still_counts() -> None:
    found = columns([{"kind": {"_name": "A", "q": 1}}, {"kind": {"_name": "B"}}, {"kind": {"_name": "A", "q": 5}}])
    assert found == {"kind": ["A", "B", "A"], "kind.q": [1.0, 1.0, 5.0]}


@pytest.mark.process
def test_the_vendored_files_are_those_of_their_manifest() -> None:
    script = Path(__file__).parents[2] / "scripts" / "vendor-web"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False, timeout=60).returncode == 0
