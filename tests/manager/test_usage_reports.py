"""What running trials use: the gate takes a keeper's word, and it is shown as long as it is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine_bench import Bench

from nnilite._engine.dedupe import Fenced
from nnilite._engine.live_trial import ActiveTrial
from nnilite._engine.usage_reports import UsageReports
from nnilite.errors import ConfigError
from nnilite.records import Exited, Host, Started, Trial, Used
from nnilite.services.keeper_events import read_batch

USE = {"type": "use", "processors": 1.5, "memory": 4096, "gpus": [1]}
GPUS = [{"index": index, "percent": 90, "memoryUsed": 1, "memoryTotal": 2} for index in range(3)]


def test_a_use_is_read_from_json() -> None:
    assert read_batch([USE]) == [Used(1.5, 4096, (1,))]
    assert read_batch([{"type": "use", "processors": 0, "memory": 0}]) == [Used(0.0, 0)]


@pytest.mark.parametrize("number", [-1, "1", True, None, float("nan"), float("inf"), 10**400])
def test_a_number_that_cannot_be_is_refused(number: Any) -> None:
    for name in ("processors", "memory"):
        with pytest.raises(ConfigError) as caught:
            read_batch([{**USE, name: number}])
        assert caught.value.place.field == f"events[0].{name}"


@pytest.mark.parametrize("gpus", [1, "01", [-1], [True], [0.5], [1024], [0] * 1025, {"0": 1}])
def test_gpus_that_cannot_be_are_refused(gpus: Any) -> None:
    with pytest.raises(ConfigError, match="whole numbers"):
        read_batch([{**USE, "gpus": gpus}])


def test_a_batch_tells_it_once_and_never_after_the_end() -> None:
    exit_ = {"type": "exit", "time": 1, "code": 0}
    for events in ([USE, USE], [exit_, USE]):
        with pytest.raises(ConfigError, match="second report"):
            read_batch(events)


async def test_the_last_word_on_a_running_trial_is_shown_with_the_gpus_of_its_host(bench: Bench) -> None:
    bench.fake.hosts = lambda: [Host("box", "up", details={"gpuUse": GPUS}), Host("other", "up")]  # type: ignore[method-assign]
    await bench.until(lambda: len(bench.fake.jobs) == 2)
    await bench.engine.commit_events("t0", 0, [Started(1.0, "box"), Used(0.5, 10, (0, 2))])
    await bench.engine.commit_events("t1", 0, [Started(1.0, "nobody knows it"), Used(0.5, 10, (0,))])
    await bench.engine.commit_events("t0", 0, [Used(1.5, 4096, (0, 2))])
    found = await bench.manager.uses()
    assert (found["t0"].processors, found["t0"].memory, found["t0"].gpus) == (1.5, 4096, [GPUS[0], GPUS[2]])
    assert found["t1"].gpus == []


async def test_nothing_is_shown_of_a_trial_that_has_ended_or_taken_from_an_attempt_that_was_replaced(
    bench: Bench,
) -> None:
    await bench.until(lambda: len(bench.fake.jobs) == 2)
    with pytest.raises(Fenced):
        await bench.engine.commit_events("t0", 1, [Used(0.5, 10)])
    await bench.engine.commit_events("t0", 0, [Started(1.0), Used(0.5, 10)])
    await bench.engine.commit_events("t0", 0, [Exited(3.0, 0)])
    assert await bench.manager.uses() == {}


def live(trial: str, attempt: int = 0) -> dict[str, ActiveTrial]:
    return {trial: ActiveTrial(replace(Trial(trial, 0, {}), attempt=attempt))}


def test_what_was_told_long_ago_is_forgotten() -> None:
    uses = UsageReports(live("a"))
    uses.record(("a", 0), Used(1.0, 1), 100.0)
    assert list(uses.list_current(159.0)) == ["a"]
    assert uses.list_current(161.0) == {}


def test_a_further_attempt_has_not_used_anything_yet() -> None:
    uses = UsageReports(live("a", attempt=1))
    uses.record(("a", 0), Used(1.0, 1), 100.0)
    assert uses.list_current(101.0) == {}


def test_trials_that_have_ended_are_not_kept_in_memory() -> None:
    uses = UsageReports(live("a"))
    for number in range(1000):
        uses.record((f"ended{number}", 0), Used(1.0, 1), 100.0)
    assert len(uses._last) < 100
