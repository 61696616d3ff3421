"""What a host says trials run with: by the SDK once, known to the manager, and read back whatever was sent."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

import nnilite
from nnilite._cli.provenance import differences
from nnilite._engine.known_workers import MOST, KnownWorkers
from nnilite._experiments.provenance_reading import comparable, describe_gpus
from nnilite._sdk import worker_facts
from nnilite._store.recorded_workers import find_workers
from nnilite.records import Attributed
from nnilite.services import keeper_folder


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a trial whose manager asks."""
    (tmp_path / ".nni").mkdir()
    (tmp_path / "parameter.cfg").write_text('{"parameter_id": 0, "parameters": {}}')
    variables = {"NNI_PLATFORM": "local", "NNI_SYS_DIR": str(tmp_path), worker_facts.ASKED: "abc,1"}
    for name, value in {**variables, "NNILITE_METRICS": f"{tmp_path}/.nni/metrics"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())
    return tmp_path


def facts(**changed: Any) -> dict[str, Any]:
    return {"host": "a", "executable": "/py", "python": "3.12.1", "system": "Linux", "packages": {"x": "1"}, **changed}


def event(value: Any, name: str = worker_facts.NAME) -> Attributed:
    return Attributed(0, name, value, 1.0)


def test_a_trial_says_it_before_its_first_report_and_once(trial: Path) -> None:
    nnilite.get_next_parameter()
    nnilite.report_final_result(1.0)
    first, _ = keeper_folder.read_metrics(trial)
    assert isinstance(first, Attributed)
    assert first.value["host"] == os.uname().nodename
    assert first.value["packages"]["pytest"] == pytest.__version__
    assert first.value["startS"] > 0
    assert worker_facts.ASKED not in os.environ  # the trial's own processes are not asked


@pytest.mark.parametrize("known", [None, nnilite._worker_key(os.uname().nodename, sys.executable) + ",0"])
def test_a_trial_says_nothing_unasked_or_where_it_is_known(
    trial: Path, known: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(worker_facts.ASKED)
    if known:
        monkeypatch.setenv(worker_facts.ASKED, known)
    nnilite.report_final_result(1.0)
    assert len(list(keeper_folder.read_metrics(trial))) == 1


DRIVERS = [
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: gcc 12.2",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.129.03  Release Build  (root@b)",
]


@pytest.mark.parametrize("version", DRIVERS)
def test_model_and_driver_of_each_gpu_of_a_host_are_known(tmp_path: Path, version: str) -> None:
    assert worker_facts.name_gpus(str(tmp_path)) == []
    (tmp_path / "version").write_text(version)
    for place, model in (("0000:65:00.0", "Tesla T4"), ("0000:0a:00.0", "NVIDIA H100 80GB HBM3")):
        (tmp_path / "gpus" / place).mkdir(parents=True)
        (tmp_path / "gpus" / place / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 16\n")
    (tmp_path / "gpus" / "0000:ff:00.0").mkdir()
    (tmp_path / "gpus" / "0000:ff:00.0" / "information").symlink_to("nothing")  # as of one that has failed
    said = worker_facts.name_gpus(str(tmp_path))
    [found] = find_workers(lambda *_: [(json.dumps(facts(gpus=said)), "", 1.0)])
    assert found["gpus"] == ["NVIDIA H100 80GB HBM3, 535.129.03", "Tesla T4, 535.129.03"]
    assert describe_gpus([*found["gpus"], "Tesla T4, 535.129.03"]) == (
        "NVIDIA H100 80GB HBM3, 535.129.03; 2 x Tesla T4, 535.129.03"
    )


@pytest.mark.parametrize("said", [None, 3, [], ["version 1.2"], [{"x": 1}, "Models: x", 4]])
def test_hosts_that_name_no_gpus_in_the_drivers_words_have_none(said: Any) -> None:
    [found] = find_workers(lambda *_: [(json.dumps(facts(gpus=said)), "", 1.0)])
    assert found["gpus"] == []


def test_no_trial_fails_for_it(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(worker_facts, "tell", fail)
    with pytest.warns(RuntimeWarning, match="is not recorded"):
        assert nnilite.get_next_parameter() == {}


def test_a_manager_asks_until_it_knows_enough_hosts() -> None:
    known = KnownWorkers()
    assert known.question() == {worker_facts.ASKED: ""}
    assert known.take(event(facts()))
    assert known.question() == {worker_facts.ASKED: nnilite._worker_key("a", "/py")}
    for number in range(MOST):
        known.take(event(facts(host=f"h{number}")))
    assert known.question() == {}


@pytest.mark.parametrize("wrong", [event(1), event({"host": 1}), event(facts(), "mine")])
def test_what_a_program_sets_under_that_name_is_an_attribute_as_any(wrong: Attributed) -> None:
    assert not KnownWorkers().take(wrong)


def test_hosts_with_the_same_are_shown_as_one_and_nonsense_not_at_all() -> None:
    values = [(facts(), "", 3.0), (facts(host="b"), "node b", 2.0), (facts(python=["x"] * 1000), "c", 1.0)]
    rows = [(json.dumps(value), host, time) for value, host, time in [*values, ({"packages": 1}, "d", 0.0)]]
    one, other = find_workers(lambda *_: rows)
    assert one["hosts"] == {"a": 3.0, "node b": 2.0}
    assert other["hosts"] == {"c": 1.0}
    assert len(str(other["python"])) == 300


def test_what_differs_between_workers_is_compared_with_all_values() -> None:
    manager = {"python": {"version": "3.12.1", "executable": "/py", "packages": {"x": "1"}}}
    assert "workers" not in comparable(manager)
    assert list(differences({"a": "1", "workers.python": "3.12"}, {"a": "2"})) == [("a", "1", "2")]
    found = comparable(manager, [facts(executable="/a"), facts(executable="/b", packages={"x": "2"})])
    assert found["workers"] == {
        "python": "3.12.1",
        "executable": "/a, /b",
        "gpus": "",
        "system": "Linux",
        "packages": {"x": "1, 2"},
    }


def test_of_what_trials_say_of_their_hosts_only_so_much_is_read_as_the_memory_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nnilite._store.recorded_workers._MOST_CHARS_READ", 1000)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE attempts (trial, number, host)")
        db.execute("CREATE TABLE attributes (trial, attempt, idx, name, value, time)")
        for trial, size in enumerate((10, 5000, 10, 10)):
            facts = {"host": "h", "packages": {"x" * size: "1"}, "python": str(trial)}
            db.execute("INSERT INTO attempts VALUES (?, 0, ?)", (trial, f"h{trial}"))
            db.execute(
                "INSERT INTO attributes VALUES (?, 0, 0, 'nnilite.worker', ?, ?)", (trial, json.dumps(facts), trial)
            )
        found = find_workers(lambda query, *values: db.execute(query, values).fetchall())
    assert [one["hosts"] for one in found] == [{"h3": 3}, {"h2": 2}]
