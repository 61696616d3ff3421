"""What is asked while a manager closes is answered with 503, so that the asker tries again."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manager.engine_bench import Bench
from nnilite._answers.queries import TrialQuery
from nnilite._experiments.manager_options import ManagerOptions
from nnilite._manager import __main__ as program
from nnilite._manager import manager_run
from nnilite._manager.ready_pipe import ReadyPipe
from nnilite._manager.served_experiment import ServedExperiment
from nnilite._rest.refusal import status_of
from nnilite._store.async_store import AsyncStore
from nnilite._store.writer import Store
from nnilite.errors import NniliteError, NotFound, ServiceError
from waiting import eventually_async

pytestmark = pytest.mark.usefixtures("impatient")


def _served(directory: Path) -> ServedExperiment:
    return ServedExperiment(directory, "resume", ManagerOptions(), ReadyPipe(None), with_parent=False)


async def _refusal(asked: Awaitable[Any]) -> NniliteError:
    with pytest.raises(NniliteError) as caught:
        await asked
    return caught.value


@pytest.mark.parametrize(
    "ask",
    [
        lambda manager: manager.files.output("t0", None, "stdout", 0, 100),
        lambda manager: manager.results.trials(TrialQuery()),
        lambda manager: manager.files.directory("t0"),
    ],
)
async def test_a_read_after_the_reader_was_closed_is_tried_again(
    bench: Bench, ask: Callable[[Any], Awaitable[Any]]
) -> None:
    await bench.until(lambda: bool(bench.fake.jobs), 60.0)
    bench.manager.results.close()
    error = await _refusal(ask(bench.manager))
    assert status_of(error) == 503
    assert "this manager is ending" in str(error)


async def test_a_report_after_the_store_was_closed_is_sent_again(tmp_path: Path) -> None:
    store = AsyncStore(Store.create(tmp_path / "nnilite.sqlite", "e", 1.0), tmp_path)
    store.close()
    assert status_of(await _refusal(store.find_attempt(("t0", 0)))) == 503


_SUBMITTED = "SELECT t.id FROM trials t JOIN attempts a ON a.trial = t.sequence WHERE a.handle IS NOT NULL"


async def _submitted(bench: Bench) -> str:
    """A trial whose handle is stored, which is later than the moment at which the engine knows it."""
    rows = await eventually_async(lambda: bench.manager.results._rows(_SUBMITTED))
    return str(rows[0][0])


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (RuntimeError("cannot schedule new futures after shutdown"), 503),
        (NniliteError("the connection is closed"), 503),
        (ServiceError("no answer"), 503),
        (ConnectionResetError("reset"), 503),
        (NotFound("there is no stream"), 404),
    ],
)
async def test_output_that_the_platform_cannot_give_now(bench: Bench, raised: Exception, status: int) -> None:
    trial = await _submitted(bench)

    async def logs(*arguments: Any) -> bytes:
        raise raised

    bench.fake.logs = logs  # type: ignore[method-assign]
    error = await _refusal(bench.manager.files.output(trial, None, "stdout", 0, 100))
    assert status_of(error) == status
    assert str(raised) in str(error)


@pytest.mark.parametrize("settled", [True, False])
async def test_the_tuner_hears_whether_all_that_it_was_told_is_committed(tmp_path: Path, settled: bool) -> None:
    """What it saves must not be ahead of the database. The end may come while a commit is held up by the disk."""
    told: list[bool] = []

    class Tuner:
        async def close(self, *, committed: bool) -> None:
            told.append(committed)

    class Service:
        async def close(self) -> None:
            """Nothing is open."""

    nothing = SimpleNamespace(close=lambda: None)
    store = SimpleNamespace(settled=settled, close=lambda: None)
    engine = SimpleNamespace(rules=SimpleNamespace(abandoned=()))
    parts: Any = SimpleNamespace(tuner=Tuner(), service=Service(), store=store, reader=nothing, engine=engine)
    await manager_run.close(_served(tmp_path), parts)
    assert told == [settled]


async def test_what_may_still_run_after_a_stop_is_kept_for_whoever_asked_for_it(tmp_path: Path) -> None:
    class Tuner:
        async def close(self, *, committed: bool) -> None:
            """It has no state."""

    class Service:
        async def close(self) -> None:
            raise ServiceError("process group 7 still runs")

    store: Any = SimpleNamespace(settled=True, close=lambda: None)
    engine = SimpleNamespace(rules=SimpleNamespace(abandoned=tuple("abcdefg")))
    parts: Any = SimpleNamespace(tuner=Tuner(), service=Service(), store=store, reader=store, engine=engine)
    await manager_run.close(_served(tmp_path), parts)
    left = json.loads((tmp_path / "manager.json").read_text())["left"]
    assert left.startswith("the end of trial a, b, c, d, e and 2 more was not confirmed by its platform")
    assert left.endswith("; process group 7 still runs")


async def test_a_manager_that_can_start_no_thread_names_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")  # as Python does at the limit

    monkeypatch.setattr(program, "serve", fails)
    assert await program.main(program.parse(["--directory", str(tmp_path), "--mode", "resume"])) == 1
    assert "the manager cannot start a thread on this machine; raise the limit of processes (`ulimit -u`" in caplog.text


@pytest.mark.parametrize(("callers", "left"), [(0, 0), (5, 0), (1000, 900)])
async def test_an_ended_manager_waits_half_a_second_for_callers_that_may_read_the_last_state(
    callers: int, left: int, tmp_path: Path
) -> None:
    seen = [True] * callers

    class ManagerContext:
        @property
        def has_callers(self) -> bool:
            return bool(seen and seen.pop())

    served = _served(tmp_path)
    served._context = ManagerContext()  # type: ignore[assignment]
    await served.await_last_readers()
    assert len(seen) >= left
    assert bool(seen) == bool(left)
