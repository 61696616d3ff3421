"""An engine that runs for the time of a test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, StartBench, open_bench

from nnilite._engine import service_caller


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the engine's pauses. What hangs for good, a test ends itself: a limit may pass on a busy machine, too."""
    monkeypatch.setattr(service_caller, "POLL_EVERY_S", 0.05)
    monkeypatch.setattr(service_caller, "_LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr("nnilite._engine.live_trial._LONGEST_RETRY_DELAY_S", 0.05)
    monkeypatch.setattr("nnilite._engine.engine._TICK_S", 0.05)
    monkeypatch.setattr("nnilite._engine.state._DELIVERING_S", 0.5)


@pytest.fixture
async def start_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StartBench]:
    """Start an engine with these settings in `tmp_path`; it ends before what the test has patched comes back."""
    async with contextlib.AsyncExitStack() as benches:

        async def start(**settings: Any) -> Bench:
            return await benches.enter_async_context(open_bench(tmp_path, **settings))

        yield start


@pytest.fixture
async def bench(start_bench: StartBench) -> Bench:
    """Run an engine with the usual settings: four trials, two at a time."""
    return await start_bench()
