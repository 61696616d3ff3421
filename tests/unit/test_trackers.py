"""Trackers get each attempt as a run, each value once, whatever happened to the process that feeds them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nnilite._engine import messages
from nnilite._experiments.documents import write_json
from nnilite._store.writer import Store
from nnilite._trackers.feed import Feed
from nnilite._trackers.runs import CurvePoint, Run, Runs, flat, list_points
from nnilite.config import from_dict
from nnilite.records import Attempt, JobState, Metric, MetricKind, Trial, TrialState
from nnilite.services.module_command import module_command

PARAMETERS = {"lr": 0.5, "layer": {"_name": "conv", "size": 3}}


class Recording(Runs):
    """A tracker that keeps what a process has sent beyond its life, and throws a run away that is begun again."""

    def __init__(self, kept: dict[str, list[tuple[str, int, float]]], ends: dict[str, str]) -> None:
        self.kept, self.ends = kept, ends
        self.fails_at: int | None = None

    def begin(self, run: Run) -> None:
        self.kept[run.name] = []

    def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
        for point in points:
            if point.step == self.fails_at:
                raise ConnectionError("the tracker is away")
            self.kept[run.name].append((point.key, point.step, point.value))

    def end(self, run: Run, state: str) -> None:
        self.ends[run.name] = state


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.create(tmp_path / "nnilite.sqlite", "abcd", 1.0)) as made:
        yield made


def trial(state: TrialState, attempt: int = 0, value: Any = None) -> messages.SaveTrial:
    ended = 9.0 if state.ended else None
    return messages.SaveTrial(
        Trial("Xy12z", 0, PARAMETERS, 0, state=state, attempt=attempt, created=1.0, ended=ended, value=value)
    )


def report(index: int, value: Any, attempt: int = 0, kind: MetricKind = MetricKind.PERIODICAL) -> messages.SaveMetric:
    return messages.SaveMetric(Metric("Xy12z", attempt, index, kind, index, value, 2.0 + index))


def attempt(number: int = 0) -> messages.SaveAttempt:
    return messages.SaveAttempt(Attempt("Xy12z", number, "local", None, JobState.RUNNING))


def begin(store: Store) -> None:
    store.write([trial(TrialState.RUNNING), attempt(), report(0, 0.1), report(1, 0.2)])


def finish(store: Store) -> None:
    store.write([report(2, {"default": 0.3, "loss": 1}), report(3, 0.9, kind=MetricKind.FINAL)])
    store.write([trial(TrialState.SUCCEEDED, value=0.9)])


ALL = [("default", 0, 0.1), ("default", 1, 0.2), ("default", 2, 0.3), ("final", 3, 0.9), ("loss", 2, 1.0)]


@contextlib.contextmanager
def process(store: Store, runs: Runs) -> Iterator[Feed]:
    """What one process does, from its start to its end; the position stays."""
    feed = Feed(store.path, store.path.with_name("position.json"), "abcd", runs)
    feed.open()
    try:
        yield feed
    finally:
        feed.close()


def test_a_run_gets_its_points_as_they_are_stored_and_its_end(store: Store) -> None:
    tracker = Recording({}, {})
    begin(store)
    with process(store, tracker) as feed:
        assert feed.step()
        assert tracker.kept == {"00000-Xy12z": ALL[:2]}
        assert not feed.step()
        finish(store)
        assert feed.step()
    assert {name: sorted(points) for name, points in tracker.kept.items()} == {"00000-Xy12z": ALL}
    assert tracker.ends == {"00000-Xy12z": "SUCCEEDED"}


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_a_process_that_fails_anywhere_is_followed_by_one_that_completes_the_run(store: Store, fails_at: int) -> None:
    tracker = Recording({}, {})
    begin(store)
    tracker.fails_at = fails_at
    with contextlib.suppress(ConnectionError), process(store, tracker) as feed:
        feed.step()
        finish(store)
        feed.step()
    if fails_at < 2:
        finish(store)
    tracker.fails_at = None
    with process(store, tracker) as feed:
        feed.step()
    assert sorted(tracker.kept["00000-Xy12z"]) == ALL
    assert tracker.ends == {"00000-Xy12z": "SUCCEEDED"}


def test_each_attempt_is_a_run_of_its_own(store: Store) -> None:
    tracker = Recording({}, {})
    begin(store)
    with process(store, tracker) as feed:
        feed.step()
    store.write([trial(TrialState.RUNNING, attempt=1), attempt(1), report(0, 0.7, attempt=1)])
    with process(store, tracker) as feed:
        feed.step()
    assert tracker.kept == {"00000-Xy12z": ALL[:2], "00000-Xy12z-1": [("default", 0, 0.7)]}
    assert tracker.ends == {"00000-Xy12z": "LOST"}


@pytest.mark.parametrize(
    ("state", "cancel", "told"),
    [
        (JobState.SUCCEEDED, None, "SUCCEEDED"),
        (JobState.FAILED, None, "FAILED"),
        (JobState.CANCELED, TrialState.EARLY_STOPPED, "EARLY_STOPPED"),
        (JobState.LOST, None, "LOST"),
    ],
)
def test_a_trial_that_is_run_again_keeps_the_end_of_the_attempt_before(
    store: Store, state: JobState, cancel: TrialState | None, told: str
) -> None:
    tracker = Recording({}, {})
    begin(store)
    with process(store, tracker) as feed:
        feed.step()
        store.write([messages.SaveAttempt(Attempt("Xy12z", 0, "local", None, state, cancel=cancel))])
        store.write([trial(TrialState.RUNNING, attempt=1), attempt(1)])
        feed.step()
        assert tracker.ends == {"00000-Xy12z": told}
    store.path.with_name("position.json").unlink()
    with process(store, tracker) as feed:
        feed.step()
    assert tracker.ends == {"00000-Xy12z": told}


def test_a_damaged_position_sends_everything_again(store: Store) -> None:
    tracker = Recording({}, {})
    begin(store)
    finish(store)
    store.path.with_name("position.json").write_text("{")
    with process(store, tracker) as feed:
        feed.step()
    assert sorted(tracker.kept["00000-Xy12z"]) == ALL


def test_the_database_is_not_held_while_a_tracker_hangs(store: Store) -> None:
    class Hanging(Recording):
        def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
            store.write([report(8 + len(self.ends), 1.0)])
            self.ends[str(len(self.ends))] = ""
            checkpoint = store.file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert checkpoint[0] == 0, "a reader holds up the checkpoint"
            if len(self.ends) > 3:
                raise ConnectionError("it has hung long enough")

    begin(store)
    with process(store, Hanging({}, {})) as feed, pytest.raises(ConnectionError):
        feed.step()


def test_what_is_no_number_makes_no_point() -> None:
    value = {"default": float("nan"), "text": "a", "flag": True, "n": 3}
    assert [(point.key, point.value) for point in list_points(value, 0, 0.0, final=True)] == [("final_n", 3.0)]
    assert flat([1, 2]) == {"value": "[1, 2]"}


# ---------------------------------------------------------------- the real ones, read back by their own libraries


def fed(store: Store, make: Any) -> None:
    """Two processes; the first one is killed after it has sent something that its position does not have."""
    begin(store)
    with process(store, make()) as feed:
        feed.step()
    store.path.with_name("position.json").unlink()
    finish(store)
    with process(store, make()) as feed:
        feed.step()


def test_tensorboard_reads_back_each_value_once(store: Store, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    from nnilite._trackers.tensorboard_runs import TensorBoardRuns

    fed(store, lambda: TensorBoardRuns(tmp_path / "events"))
    folder = tmp_path / "events" / "abcd" / "00000-Xy12z"
    events = [event for path in sorted(folder.iterdir()) for event in EventFileLoader(str(path)).Load()]
    found = [
        (value.tag, event.step, round(value.tensor.float_val[0], 6), event.wall_time)
        for event in events
        for value in event.summary.value
        if value.tensor.float_val and event.wall_time < 100
    ]
    assert sorted(found) == [(key, step, value, 2.0 + step) for key, step, value in ALL]


@pytest.mark.process  # MLflow asks the system for its name
def test_mlflow_reads_back_each_value_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    from nnilite._trackers.mlflow_runs import MlflowRuns

    uri = (tmp_path / "runs").as_uri()
    fed(store, lambda: MlflowRuns(uri, "my search"))
    client: Any = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("my search").experiment_id])
    history = {key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)] for key, *_ in ALL}
    assert history["default"] == [(0, 0.1), (1, 0.2), (2, 0.3)]
    assert (history["final"], run.info.status) == ([(3, 0.9)], "FINISHED")
    assert run.data.params == {"lr": "0.5", "layer._name": "conv", "layer.size": "3"}


@pytest.mark.process
def test_mlflow_takes_names_of_any_kind_and_more_parameters_than_it_accepts_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    from nnilite._trackers.mlflow_runs import MlflowRuns

    odd = ["../../up", "/root", "a/../b", "a//b", "", " ", "\0", "x" * 3000, "\ud800", "\x1b[0m", "a/" + "./" * 200]
    numbers = dict.fromkeys(odd, 1.0)
    known = Trial("Xy12z", 0, {**numbers, **{f"p{n}": n for n in range(250)}}, 0, state=TrialState.RUNNING, created=1.0)
    store.write([messages.SaveTrial(known), attempt(), report(0, {"default": 0.1, **numbers})])
    uri = (tmp_path / "runs").as_uri()
    with process(store, MlflowRuns(uri, "my search")) as feed:
        feed.step()
    client: Any = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("my search").experiment_id])
    assert {"default", "__/__/up", "a/__/b", "a/b"} <= set(run.data.metrics)
    assert {f"p{n}" for n in range(250)} <= set(run.data.params)


@pytest.mark.process
def test_mlflow_keeps_curves_in_files_of_which_one_has_the_name_of_a_group(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    from nnilite._trackers.mlflow_runs import MlflowRuns

    known = Trial("Xy12z", 0, {"lr/x": 1, "lr": 2, "y": 3}, 0, state=TrialState.RUNNING, created=1.0)
    store.write([messages.SaveTrial(known), attempt()])
    uri = (tmp_path / "runs").as_uri()
    for step in range(2):
        store.write([report(step, {"default": 0.1, "default/x": 0.2, "a/b/c": 0.3, "a/b": 0.4, "a_b": step})])
        with process(store, MlflowRuns(uri, "my search")) as feed:
            feed.step()
    client: Any = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("my search").experiment_id])
    values = {key: [m.value for m in client.get_metric_history(run.info.run_id, key)] for key in run.data.metrics}
    twice = {"default": 0.1, "default_x": 0.2, "a/b/c": 0.3, "a_b": 0.4}
    assert values == {**{key: [value, value] for key, value in twice.items()}, "a_b_": [0, 1]}
    assert run.data.params == {"lr/x": "1", "lr_": "2", "y": "3"}


@pytest.mark.process
def test_wandb_reads_back_each_value_once(store: Store, tmp_path: Path) -> None:
    from nnilite._trackers.wandb_runs import WandbRuns

    fed(store, lambda: WandbRuns(tmp_path / "files", "my search", "offline"))
    (path,) = (tmp_path / "files").rglob("*.wandb")
    values: list[tuple[str, str]] = []
    for record in wandb_records(path.read_bytes()):
        items = [(item.key or item.nested_key[0], item.value_json) for item in record.history.item]
        values += [(key, value) for key, value in items if not key.startswith("_")]
    assert sorted(values) == [
        ("default", "0.1"),
        ("default", "0.2"),
        ("default", "0.3"),
        ("final", "0.9"),
        ("loss", "1"),
    ]


@pytest.mark.process
def test_wandb_takes_no_settings_from_the_folder_where_the_manager_was_started(store: Store, tmp_path: Path) -> None:
    begin(store)
    (tmp_path / "here/wandb").mkdir(parents=True)
    (tmp_path / "here/wandb/settings").write_text("[default]\nbase_url = http://127.0.0.1:9\nentity = stranger\n")
    fields: dict[str, Any] = {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": "true"}
    fields |= {"trialConcurrency": 1, "trainingService": {"platform": "local"}, "trackers": [{"name": "wandb"}]}
    config = from_dict(fields, tmp_path).checked()
    write_json(tmp_path / "config.json", config.json(secrets=True))
    command = module_command("nnilite._trackers", str(tmp_path), "0")
    done = subprocess.run(command, cwd=tmp_path / "here", stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("*.wandb")
    assert b"stranger" not in path.read_bytes()
    assert b"here/wandb/settings" not in done.stderr


def wandb_records(content: bytes) -> Iterator[Any]:
    """The records of a file that W&B has written offline: LevelDB's log, after a header of 7 bytes, in one block."""
    from wandb.proto.wandb_internal_pb2 import Record

    assert content[:4] == b":W&B"
    at = 7
    while at + 7 < min(len(content), 32768):
        length, whole = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6] == 1
        assert whole, "the test wants records in one piece"
        record = Record()
        record.ParseFromString(content[at + 7 : at + 7 + length])
        yield record
        at += 7 + length
