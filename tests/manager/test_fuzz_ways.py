"""Whatever a trial writes to its folder or to its platform's log cannot end the manager, nor break what it keeps."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, open_bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manager.test_rest_callbacks import CUT, JSON, LONG_INPUTS, LOOSE, ODD, SOUND, TWISTED, metric
from nnilite._engine.dedupe import Fenced, GapFound
from nnilite.errors import ServiceError, StoreError
from nnilite.records import KeeperEvent
from nnilite.services.keeper_folder import MARK, read_events, read_log

pytestmark = pytest.mark.usefixtures("impatient")

INPUTS = 200
MEMORY = Path("/dev/shm")
FUZZED = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

# ---------------------------------------------------------------- what trials may write

NUMBERS = st.sampled_from(
    ["0.5", "nan", "-inf", "1e999", "9" * 400, "[" * 300, "[" * 120 + "]" * 120, '{"default": 1}']
)
VALUES = NUMBERS | JSON.map(json.dumps)
RECORDS = st.builds(
    lambda kind, value, more: {"type": kind, "value": value, "sequence": 0, **more},
    st.sampled_from(["PERIODICAL", "PERIODICAL", "FINAL", "REQUEST_PARAMETER"]) | ODD,
    VALUES | JSON,
    st.dictionaries(st.sampled_from(["time", "sequence", "parameter_id", "value"]), JSON, max_size=2),
)
NNI_LINES = st.builds(
    lambda record, size: (b"ME%06d" % size if size >= 0 else b"ME") + json.dumps(record).encode(),
    RECORDS,
    st.integers(-1, 999_999),
)
PLAIN_LINES = st.builds(
    lambda word, value: f"{word} {value}".encode("utf-8", "replace"),
    st.sampled_from(["intermediate", "final", "Final", "finally", ""]),
    VALUES,
)
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"", b"\0", b"\n\n"])
LINES = st.builds(lambda line, end: line + end, NNI_LINES | PLAIN_LINES | st.binary(max_size=60), ENDS)
SPOOL = st.lists(LINES, max_size=6).map(b"".join)
RECORD_FILE = (
    (TWISTED | LOOSE | SOUND | JSON).map(lambda value: json.dumps(value).encode()) | CUT | st.binary(max_size=60)
)
FILES = st.fixed_dictionaries({}, optional={"metrics": SPOOL, "started": RECORD_FILE, "exit": RECORD_FILE})
NUMBERED = st.builds(metric, st.integers(0, 6), VALUES).map(lambda event: json.dumps(event).encode())
LOG_LINES = st.builds(
    lambda front, mark, data, end: front + mark + data + end,
    st.sampled_from([b"", b"", b"2026-11-22T08:00:00Z stdout F ", b"\xff"]),
    st.sampled_from([MARK.encode(), MARK.encode(), MARK.encode() * 2, b""]),
    RECORD_FILE | NUMBERED,
    ENDS,
)
LOGS = st.lists(LOG_LINES, max_size=6).map(b"".join)


# ---------------------------------------------------------------- a manager that takes it


class Taking:
    """A real engine with a real store, which is given events as a service's `reports` are."""

    def __init__(self, running: Bench, loop: asyncio.AbstractEventLoop) -> None:
        self.running = running
        self.outcomes: Counter[str] = Counter()
        self._loop = loop

    def take(self, events: list[KeeperEvent], over_gaps: bool) -> None:
        self._loop.run_until_complete(self._take(events, over_gaps))

    async def _take(self, events: list[KeeperEvent], over_gaps: bool) -> None:
        await self.running.until(self.running.engine.submitted)
        attempt = self.running.engine.submitted()[0]
        try:
            taken = await self.running.engine.commit_events(attempt.trial, attempt.number, events, over_gaps)
        except (Fenced, GapFound, ServiceError, StoreError) as error:
            self.outcomes[type(error).__name__] += 1
        else:
            self.outcomes["taken"] += 1
            known = await self.running.store.find_attempt((attempt.trial, attempt.number))
            assert known is not None
            assert known[2].metrics == taken.metrics, "what was acknowledged is not stored"
        assert not self.running.ended.done(), "the manager has ended"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand complaints about what is fed are of no use."""
    monkeypatch.setattr(logging.getLogger("nnilite"), "level", logging.CRITICAL)


@contextmanager
def taking() -> Iterator[Taking]:
    """At the end everything can be shown, and the next manager can go on with it."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        limits: dict[str, Any] = {"max_trials": 10**9, "concurrency": 1, "retries_lost": 10**9, "stop_on_same_error": 0}
        for work in (None, "resumed"):
            manager = open_bench(Path(folder), **limits, assess=True)
            running = loop.run_until_complete(manager.__aenter__())
            try:
                if work is None:
                    yield Taking(running, loop)
                loop.run_until_complete(_show(running))
            finally:
                loop.run_until_complete(manager.__aexit__(None, None, None))
        loop.close()


async def _show(running: Bench) -> None:
    """What the page, the export and the tuner are given."""
    await running.until(running.engine.submitted)
    for (value,) in running.store._store.file.db.execute("SELECT value FROM metrics"):
        json.dumps(json.loads(value), ensure_ascii=False).encode("utf-8")
    async for trial in running.manager.results.read_ended():
        json.dumps([trial.value, trial.reason], ensure_ascii=False).encode("utf-8")
    await running.manager.profile()


def feed(inputs: int, strategy: st.SearchStrategy[Any], read: Callable[[Any], list[KeeperEvent]]) -> Counter[str]:
    with taking() as manager:

        @settings(max_examples=inputs, **FUZZED)  # type: ignore[arg-type]
        @given(strategy, st.booleans())
        def send(written: Any, over_gaps: bool) -> None:
            manager.take(read(written), over_gaps)

        send()
        return manager.outcomes


def folder_way(folder: Path) -> Callable[[dict[str, bytes]], list[KeeperEvent]]:
    inner = folder / ".nni"
    inner.mkdir()

    def read(files: dict[str, bytes]) -> list[KeeperEvent]:
        for name in ("metrics", "started", "exit"):
            (inner / name).unlink(missing_ok=True)
        for name, data in files.items():
            (inner / name).write_bytes(data)
        return read_events(folder)

    return read


def shown(way: str, outcomes: Counter[str]) -> str:
    return f"fuzz of the {way}: {sum(outcomes.values())} inputs, no crash ({dict(outcomes)})"


WAYS = {"folder": (FILES, folder_way), "log": (LOGS, lambda folder: read_log)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.timeout(300)
def test_nothing_that_a_trial_writes_ends_the_manager(way: str, tmp_path: Path, record_property: Any) -> None:
    strategy, reader = WAYS[way]
    outcomes = feed(INPUTS, strategy, reader(tmp_path))
    assert outcomes["taken"] > INPUTS / 4
    record_property("shown", shown(way, outcomes))


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.timeout(3600)
def test_nothing_that_a_trial_writes_ends_the_manager_in_a_long_run(
    way: str, tmp_path: Path, record_property: Any
) -> None:
    strategy, reader = WAYS[way]
    outcomes = feed(LONG_INPUTS // 2, strategy, reader(tmp_path))
    assert outcomes["taken"] > LONG_INPUTS / 8
    record_property("shown", shown(way, outcomes))


def test_a_folder_in_the_place_of_a_file_is_no_report(tmp_path: Path) -> None:
    for name in ("started", "exit"):
        (tmp_path / ".nni" / name).mkdir(parents=True)
    assert read_events(tmp_path) == []
