"""What the code of a trial sets about it: by the SDK, by a line, and in a function of a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nnilite
from nnilite._keeper.spool import ATTRIBUTE, SpoolReader
from nnilite.errors import ConfigError, Conflict, NniliteError
from nnilite.records import Attributed, set_within_limits
from nnilite.search import Search
from nnilite.services import keeper_folder
from nnilite.services.keeper_events import parse_event, read_batch
from shim import nni_modules

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a trial, as a keeper sets it up for a program that starts now."""
    (tmp_path / ".nni").mkdir()
    variables = {"NNI_PLATFORM": "local", "NNI_SYS_DIR": str(tmp_path), "NNI_TRIAL_JOB_ID": "Xy12z"}
    for name, value in {**variables, "NNILITE_METRICS": f"{tmp_path}/.nni/metrics"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())
    return tmp_path


def reports(folder: Path) -> list[Any]:
    return list(keeper_folder.read_metrics(folder))


def test_attributes_and_metrics_are_numbered_together(trial: Path) -> None:
    nnilite.report_intermediate_result(0.5)
    nnilite.set_attribute("device", "cpu")
    nnilite.report_final_result(1.0)
    found = reports(trial)
    assert [one.index for one in found] == [0, 1, 2]
    assert (found[1].name, found[1].value, found[2].sequence) == ("device", "cpu", 0)


@pytest.mark.parametrize("value", [None, True, 3, float("nan"), "ä\n'\"", [1, {"a": None}], {"nested": [1.5]}])
def test_a_value_arrives_as_it_was_set(trial: Path, value: Any) -> None:
    nnilite.set_attribute("it's a $name", value)
    (found,) = reports(trial)
    assert json.dumps(found.value) == json.dumps(value)
    assert found.name == "it's a $name"


def test_programs_in_any_language_set_attributes_by_a_line(trial: Path) -> None:
    (trial / ".nni" / "metrics").write_text('attribute device "cpu"\nattribute epochs 12\nattribute lonely\nfinal 1\n')
    reader = SpoolReader(str(trial / ".nni" / "metrics"))
    found = reader.read(10, 1000, final=True)
    assert [(one.kind, one.name, one.value) for one in found[:2]] == [
        (ATTRIBUTE, "device", '"cpu"'),
        (ATTRIBUTE, "epochs", "12"),
    ]
    assert reader.unreadable == 1
    assert found[2].number == 2


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("", 1, ValueError, "1 to 100 characters"),
        ("n" * 101, 1, ValueError, "1 to 100 characters"),
        (7, 1, TypeError, "must be a text, not int"),
        ("x", object(), TypeError, "must be a JSON value"),
        ("x", "y" * 10_000, ValueError, "10,000 characters"),
    ],
    ids=["no name", "long name", "odd name", "no JSON", "large"],
)
def test_what_cannot_be_kept_is_refused_at_once(
    trial: Path, name: Any, value: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        nnilite.set_attribute(name, value)
    assert reports(trial) == []


def test_a_trial_has_a_hundred_attributes_at_most(trial: Path) -> None:
    for number in range(100):
        nnilite.set_attribute(f"a{number}", number)
    nnilite.set_attribute("a7", "another value of one that is known")
    with pytest.raises(ValueError, match="at most 100 attributes"):
        nnilite.set_attribute("one more", 1)
    assert len(reports(trial)) == 101


def test_the_limits_of_sdk_and_manager_are_the_same() -> None:
    known = {f"a{number}": 1 for number in range(100)}
    assert "at most 100" in set_within_limits(known, "one more", 1)[1]
    fits = "y" * (10_000 - len('{"x": ""}'))
    assert set_within_limits({}, "x", fits) == ({"x": fits}, "")
    assert "10,000 characters" in set_within_limits({}, "x", fits + "y")[1]
    assert "1 to 100" in set_within_limits({}, "", 1)[1]


def test_other_ranks_of_a_distributed_trial_set_nothing(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.warns(RuntimeWarning, match="rank 1"):
        nnilite.set_attribute("device", "cpu")
    assert reports(trial) == []


def test_programs_of_nni_can_set_attributes(trial: Path) -> None:
    with nni_modules() as load:
        load("nni").set_attribute("device", "cpu")
    assert [one.value for one in reports(trial)] == ["cpu"]


@pytest.mark.parametrize("change", [{"name": 7}, {"name": "n" * 101}, {"index": -1}, {"value": 3}, {"time": "now"}])
def test_events_are_checked_where_they_come_in(change: dict[str, Any]) -> None:
    event = {"type": "attribute", "index": 0, "name": "x", "value": "1", "time": 1.0}
    assert parse_event(event) == Attributed(0, "x", 1, 1.0)
    with pytest.raises(ConfigError):
        parse_event({**event, **change})


def test_attributes_and_metrics_come_in_order() -> None:
    event = {"type": "attribute", "index": 3, "name": "x", "value": "1", "time": 1.0}
    with pytest.raises(ConfigError, match="must be 4"):
        read_batch([event, {**event, "index": 5}])


def describe(parameters: Any) -> float:
    nnilite.set_attribute("half", parameters["x"] / 2)
    nnilite.set_attribute("list", [1, None])
    return float(parameters["x"])


def test_functions_of_a_search_set_attributes() -> None:
    result = Search(SPACE, "Random", seed=1).run(describe, trials=3, progress=False)
    assert [one.attributes for one in result] == [
        {"half": one.parameters["x"] / 2, "list": [1, None]} for one in result
    ]
    frame = pytest.importorskip("pandas") and result.to_dataframe()
    assert list(frame["attributes.half"]) == [one.value / 2 for one in result]


def test_threads_of_a_search_set_attributes_of_their_own_trials() -> None:
    result = Search(SPACE, "Random", seed=1).run(describe, trials=12, concurrency=4, progress=False)
    assert all(one.attributes["half"] == one.value / 2 for one in result)


def test_a_kept_search_keeps_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    Search(SPACE, "Random", storage=tmp_path / "first").run(describe, trials=2, progress=False)
    again = Search(SPACE, "Random", storage=tmp_path / "first").result()
    assert [one.attributes["half"] for one in again] == [one.value / 2 for one in again]


def test_what_a_search_does_not_keep_is_said() -> None:
    search = Search(SPACE, "Random")
    trial = search.ask()
    with pytest.raises(Conflict, match="10,000 characters"):
        search.set_attribute(trial, "x", "y" * 10_000)
    search.set_attribute(trial, "x", 1)
    assert search.tell(trial, 1.0).attributes == {"x": 1}
    with pytest.raises(NniliteError, match="has ended already"):
        search.set_attribute(trial, "x", 2)
