"""`nnictl verify` finds each damage that is done to a copy of a finished experiment, and none in a sound one."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._store.integrity import IntegrityCheck
from platforms.many_trials import COLUMNS

TRIAL = """
import os, sys, nnilite
p = nnilite.get_next_parameter()
for step in range(3):
    nnilite.report_intermediate_result(p["x"] * step)
if os.environ["NNILITE_ATTEMPT"] == "0" and nnilite.get_sequence_id() == 1:
    sys.exit(7)  # tried again
if nnilite.get_sequence_id() == 2:
    sys.exit(1)
nnilite.report_final_result(p["x"])
"""
CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": f"{sys.executable} trial.py",
    "trialConcurrency": 2,
    "maxTrialNumber": 5,
    "retryOn": [7],
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished experiment of five trials: one was tried again, and one has failed."""
    place = tmp_path_factory.mktemp("verify 'it' $HOME")
    (place / "trial.py").write_text(TRIAL)
    (place / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(place / "home"))
        patch.setattr(sys, "excepthook", sys.excepthook)
        assert run(["create", "-c", str(place / "config.yaml"), "-p", "0", "-f"]) == 0
    return place / "home"


@pytest.fixture
def copy(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a copy of the experiment."""
    home = tmp_path / "home"
    shutil.copytree(finished, home)
    monkeypatch.setenv("NNILITE_HOME", str(home))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    (known,) = (home / ".nnilite").glob("*.json")
    about = json.loads(known.read_text())
    folder = home / about["id"]
    known.write_text(json.dumps({**about, "directory": str(folder)}))
    return folder


def changed(*statements: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "nnilite.sqlite", isolation_level=None)) as db:
            for statement in statements:
                before = db.total_changes
                db.execute(statement)
                assert db.total_changes > before, f"{statement} changes nothing"

    return damage


def left(name: str, text: str) -> Callable[[Path], None]:
    """A file of a keeper, in the folder of an attempt from which its keeper's files were not taken away."""

    def damage(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "nnilite.sqlite")) as db:
            (trial,) = db.execute("SELECT id FROM trials WHERE sequence = 3").fetchone()
        inner = folder / "trials" / trial / "0" / ".nni"
        inner.mkdir()
        (inner / name).write_text(text)

    return damage


def cut(folder: Path) -> None:
    path = folder / "config.json"
    path.write_bytes(path.read_bytes()[:-20])


METRICS = "metrics WHERE trial"
OF_3 = "(SELECT id FROM trials WHERE sequence = 3)"
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a trial is missing": (
        changed(*(f"DELETE FROM {rows} = 2" for rows in ("trials WHERE sequence", "attempts WHERE trial", METRICS))),
        "the trials before it are missing: 2",
    ),
    "attempts have no trial": (changed("DELETE FROM trials WHERE sequence = 2"), "rows of a trial that does not exist"),
    "an attempt is missing": (changed("DELETE FROM attempts WHERE trial = 1 AND number = 0"), "some are missing"),
    "a metric is missing": (changed("DELETE FROM metrics WHERE trial = 3 AND idx = 1"), "1 are missing"),
    "a result is another": (changed("UPDATE trials SET value = '9.5', score = 9.5 WHERE sequence = 3"), "it reported"),
    "a score is another": (changed("UPDATE trials SET score = 5 WHERE sequence = 3"), "its score is 5.0"),
    "a state is another": (changed("UPDATE trials SET state = 'SUCCEEDED' WHERE sequence = 2"), "is FAILED"),
    "a trial never ended": (
        changed("UPDATE trials SET state = 'RUNNING', ended = NULL WHERE sequence = 3"),
        "it is RUNNING, and the experiment is ",
    ),
    "parameters are others": (
        changed("UPDATE trials SET parameters = '{\"x\": 0.125}' WHERE sequence = 3"),
        'and {"x": 0.125} is recorded',
    ),
    "a result did not reach the tuner": (
        changed(f"DELETE FROM calls WHERE kind = 'end' AND trial = {OF_3}"),
        "the tuner did not get its result",
    ),
    "a call is of no trial": (changed(f"UPDATE calls SET trial = 'nobody' WHERE trial = {OF_3}"), "trial nobody"),
    "an exit code is another": (left("exit", '{"time": 1.0, "code": 3}'), "it ended with exit code 3"),
    "a report is another": (left("metrics", "intermediate 9\n"), "as metric 0, and"),
    "a column has another type": (changed("UPDATE trials SET created = 'now' WHERE sequence = 0"), "cannot be 'now'"),
    "the config is cut off": (cut, "config.json"),
}


def test_a_sound_experiment_has_no_finding(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", copy.name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = {"trials": 5, "attempts": 6, "metrics": 22, "calls": 14, "folders": 6}
    found["checked"].pop("attributes")  # each trial that starts before the first has ended says what its host has
    assert (found["findings"], found["checked"]) == ([], counts)


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_named(name: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, words = DAMAGES[name]
    damage(copy)
    assert run(["verify", copy.name]) == 1
    out = capsys.readouterr().out
    assert words in out


def test_a_database_with_damaged_pages_is_said(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / "nnilite.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    assert run(["verify", copy.name]) == 1
    assert "damaged" in "".join(capsys.readouterr())


def test_what_is_verified_is_not_changed(copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"}
    run(["verify", copy.name])
    assert {path: path.read_bytes() for path in before} == before


def test_a_running_experiment_is_not_verified(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with registry.lock(copy):
        assert run(["verify", copy.name]) == 4
    assert "a manager that still runs" in capsys.readouterr().err


def test_thousands_of_equal_findings_are_not_all_printed(copy: Path) -> None:
    changed("UPDATE metrics SET value = '1' WHERE final = 1", "UPDATE trials SET revision = 1")(copy)
    changed(
        "WITH RECURSIVE n(i) AS (SELECT 5 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
        f"INSERT INTO trials ({COLUMNS}) SELECT i, 'more' || i, NULL, '{{}}', 'customized', 'USER_CANCELED', '', 0, "
        "1, NULL, NULL, NULL, NULL, 1 FROM n"
    )(copy)
    with IntegrityCheck(copy / "nnilite.sqlite") as check:
        findings = list(check.findings(copy.name))
    assert 20 < len(findings) < 100
