"""What trackers and webhooks have not got is counted from the database, waited for within limits, and said in words."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._answers.queries import Backlog
from nnilite._engine import messages
from nnilite._running import final_delivery
from nnilite._store.writer import Store
from nnilite._trackers import feed
from nnilite._trackers.feed import Feed, find_position_file
from nnilite._webhooks.undelivered import Undelivered
from nnilite._webhooks.webhook_events import Position, WebhookEventReader, write_position
from nnilite.records import ExperimentState, Metric, MetricKind, Trial, TrialState
from unit.test_trackers import Recording

CONFIG: dict[str, Any] = {
    "trackers": [{"name": "mlflow"}],
    "webhooks": [{"events": ["best", "end"]}, {"events": ["end"]}],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.create(tmp_path / "nnilite.sqlite", "abcd", 1.0)) as made:
        for name in ("trackers", "webhooks"):
            (tmp_path / name).mkdir()
        yield made


def end(store: Store, trials: int) -> None:
    """So many trials with a result each, and each better than those before it; then the experiment is DONE."""
    for number in range(trials):
        fields: dict[str, Any] = {"state": TrialState.SUCCEEDED, "created": 1.0, "ended": 9.0, "value": float(number)}
        store.write([messages.SaveTrial(Trial(f"T{number}", number, {}, number, **fields))])
        store.write([messages.SaveMetric(Metric(f"T{number}", 0, 0, MetricKind.FINAL, 0, float(number), 2.0))])
    store.write([messages.SaveExperiment(ExperimentState.DONE, "", 5.0, 9.0, messages.Settings(1))])


def owed(store: Store, config: Any = CONFIG) -> list[Backlog]:
    return list(Undelivered(store.path.parent, config, True).look(store.path))


def test_all_is_owed_before_a_process_has_begun_and_nothing_where_nobody_wants_any(store: Store) -> None:
    assert owed(store) == []
    end(store, 3)
    assert owed(store) == [
        Backlog("mlflow (tracker)", trials=3, results=3),
        Backlog("webhook 1", messages=4),
        Backlog("webhook 2", messages=1),
    ]
    assert owed(store, {"trackers": 5, "webhooks": [7]}) == []
    assert not Undelivered(store.path.parent, {}, True).is_possible


def test_what_was_taken_is_not_owed(store: Store) -> None:
    end(store, 3)
    process = Feed(store.path, find_position_file(store.path.parent, 0, "mlflow"), "abcd", Recording({}, {}))
    process.open()
    process.step()
    process.close()
    with contextlib.closing(WebhookEventReader(store.path, "abcd", "", True)) as news:
        *_, (_, last) = news.read_since(Position())
    for number in range(2):
        write_position(store.path.parent / "webhooks" / f"{number}.json", last)
    assert owed(store) == []


def test_what_a_tracker_has_taken_of_many_trials_is_seen_before_it_has_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(store, 5)
    monkeypatch.setattr(feed, "_NOTED_EVERY_S", -1.0)
    tracker = Recording({}, {})
    left: list[int] = []
    monkeypatch.setattr(tracker, "end", lambda run, state: left.append(owed(store)[0].trials))
    process = Feed(store.path, find_position_file(store.path.parent, 0, "mlflow"), "abcd", tracker)
    process.open()
    process.step()
    process.close()
    assert left == [5, 4, 3, 2, 1]
    assert [one.name for one in owed(store)] == ["webhook 1", "webhook 2"]


def test_a_position_that_cannot_be_read_now_changes_nothing(store: Store) -> None:
    end(store, 1)
    undelivered = Undelivered(store.path.parent, CONFIG, True)
    known = undelivered.look(store.path)
    undelivered._look_after = 0.0
    path = find_position_file(store.path.parent, 0, "mlflow")
    path.symlink_to(path)
    assert undelivered.look(store.path) == known


def test_no_more_messages_are_counted_than_anybody_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnilite._webhooks.undelivered._MOST_MESSAGES", 2)
    end(store, 5)
    assert owed(store)[1] == Backlog("webhook 1", messages=2)


class Answering:
    """A manager whose tracker takes one trial a second from the tenth second on, or nothing at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trials: int, takes: bool = True) -> None:
        self.now_s, self._trials, self._takes = 0.0, trials, takes
        monkeypatch.setattr(final_delivery.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(final_delivery.time, "sleep", self._pass)

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds

    def profile(self) -> dict[str, Any]:
        taken = max(0, int(self.now_s - 10.0)) if self._takes else 0
        left = max(self._trials - taken, 0)
        one = {"name": "mlflow (tracker)", "trials": left, "results": 0, "messages": 0}
        return {"id": "abcd", "state": "DONE", "owed": [one] if left else []}


def test_the_wait_lasts_as_long_as_something_is_taken_and_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, told = Answering(monkeypatch, 300), list[str]()
    assert final_delivery.wait_until_sent(manager, told.append)["owed"] == []  # type: ignore[arg-type]
    assert 309.0 <= manager.now_s <= 312.0
    assert told[0] == (
        "Waiting until trackers and webhooks have everything: mlflow (tracker) has not got 300 trials; "
        "Ctrl-C stops waiting"
    )
    assert 25 <= len(told) <= 32


def test_the_wait_is_given_up_when_nothing_is_taken_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Answering(monkeypatch, 2, takes=False)
    left = final_delivery.find_undelivered(final_delivery.wait_until_sent(manager, lambda _: None))  # type: ignore[arg-type]
    assert 60.0 <= manager.now_s <= 61.0
    assert final_delivery.sentence(left, "abcd").startswith(
        "mlflow (tracker) has not got 2 trials; `nnictl resume abcd --foreground` sends the rest"
    )


def test_the_wait_has_an_end_although_something_is_always_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Answering(monkeypatch, 1_000_000)
    final_delivery.wait_until_sent(manager, lambda _: None)  # type: ignore[arg-type]
    assert 3600.0 <= manager.now_s <= 3601.0


def test_what_is_taken_in_the_usual_moment_is_waited_for_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Answering(monkeypatch, 3)
    manager.now_s = 12.5
    final_delivery.wait_until_sent(manager, lambda sentence: pytest.fail(sentence))  # type: ignore[arg-type]
    assert manager.now_s <= 14.0


@pytest.mark.parametrize(
    ("counts", "words"),
    [((1, 0, 0), "1 trial"), ((2, 1, 0), "2 trials and 1 result"), ((0, 0, 3), "3 messages"), ((0, 4, 0), "4 results")],
)
def test_what_is_owed_is_said_in_words(counts: tuple[int, int, int], words: str) -> None:
    one = dict(zip(("trials", "results", "messages"), counts, strict=True), name="x")
    assert final_delivery.describe_undelivered([one]) == f"x has not got {words}"


def test_an_earlier_version_and_one_without_trackers_owe_nothing() -> None:
    assert final_delivery.find_undelivered({}) == []
    states = itertools.product(["DONE", "STOPPED"], [{}, {"trackers": []}, {"webhooks": [{}]}])
    waits = [final_delivery.may_owe({"state": state, "config": config}) for state, config in states]
    assert waits == [False, False, True, False, False, False]
