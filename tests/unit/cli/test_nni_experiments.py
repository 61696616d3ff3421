"""Experiments that Microsoft NNI has left: they are listed, read, exported and learned from, and never changed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foreign_journal import write_foreign_journal
from nni_experiment import NniFolder, NniTrial, fingerprint, make
from nnilite import Experiment
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._manager import search_from
from nnilite.errors import NotFound

ENDED = ("RUNNING", "SUCCEEDED")
Say = Callable[..., str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs nnictl; returns what it printed, on stderr if it is to fail."""

    def one(*arguments: object, fails: bool = False) -> str:
        assert bool(run([str(argument) for argument in arguments])) is fails
        printed = capsys.readouterr()
        return printed.err if fails else printed.out

    return one


@pytest.fixture
def old(home: Path) -> Path:
    """An experiment with two good trials, one that failed, and one whose end NNI did not record."""
    trials = [
        NniTrial(
            "AAAAA", {"x": 0.5}, 0, final={"default": 0.25, "acc": 1}, intermediates=[0.1, 0.2], output="printed\n"
        ),
        NniTrial("BBBBB", {"x": 0.75}, 1, final=0.5, number=1),
        NniTrial("CCCCC", {"x": 0.125}, 2, events=("RUNNING", "FAILED"), number=2),
        NniTrial("DDDDD", {"x": 0.25}, 3, events=("RUNNING",), intermediates=[0.3], number=3),
    ]
    home.mkdir()
    return make(home, NniFolder(trials=trials, imports=[[{"parameter": {"x": 0.9}, "value": 1}]]))


def _trials(say: Say, experiment: str) -> dict[str, Any]:
    return {one["id"]: one for one in json.loads(say("trial", "ls", experiment, "--json"))}


def test_it_is_listed_as_nnis(old: Path, say: Say) -> None:
    assert "oldone12" not in say("experiment", "list")
    (one,) = json.loads(say("experiment", "list", "--all", "--json"))
    assert (one["id"], one["name"], one["state"], one["madeBy"]) == ("oldone12", "an old one", "DONE", "nni")
    assert one["directory"] == str(old)
    assert (one["started"], one["ended"]) == (1.7e9, 1.7e9 + 60)
    assert "NNI" in say("experiment", "list", "--all")


def test_its_trials_metrics_and_files_are_read_and_nothing_is_changed(old: Path, say: Say) -> None:
    before = fingerprint(old)
    trials = _trials(say, "oldone12")
    assert {name: one["state"] for name, one in trials.items()} == {
        **{"AAAAA": "SUCCEEDED", "BBBBB": "SUCCEEDED", "CCCCC": "FAILED", "DDDDD": "UNKNOWN"}
    }
    assert trials["AAAAA"]["value"] == {"default": 0.25, "acc": 1}
    assert trials["DDDDD"]["reason"].startswith("NNI ended before this trial did")
    assert "default=0.25" in say("trial", "show", "oldone12", "-T", "AAAAA")
    assert say("log", "trial", "oldone12", "-T", "AAAAA") == "printed\n"
    assert str(old / "environments/local-env/trials/AAAAA") in say("log", "trial", "oldone12")
    assert "Experiment done." in say("log", "manager", "oldone12")
    assert fingerprint(old) == before


def test_its_profile_is_shown_without_its_secrets(old: Path, say: Say) -> None:
    profile = json.loads(say("experiment", "show", "oldone12", "--json"))
    assert (profile["state"], profile["counts"]["SUCCEEDED"], profile["best"]["id"]) == ("DONE", 2, "BBBBB")
    assert profile["limits"]["maxExperimentDuration"] == 3600
    assert profile["duration"] == 14
    assert "never shown" not in say("config", "show", "oldone12")


def test_its_results_are_exported(old: Path, say: Say, tmp_path: Path) -> None:
    say("experiment", "export", "oldone12", "-f", tmp_path / "out.json", "-i")
    exported = json.loads((tmp_path / "out.json").read_text())
    assert [(one["trialJobId"], one["parameter"], one["intermediate"]) for one in exported] == [
        ("AAAAA", {"x": 0.5}, [0.1, 0.2]),
        ("BBBBB", {"x": 0.75}, []),
    ]


@pytest.mark.parametrize(
    "command",
    [
        ("resume", "oldone12"),
        ("experiment", "delete", "oldone12", "-y"),
        ("experiment", "save", "oldone12"),
        ("trial", "kill", "oldone12", "-T", "AAAAA"),
        ("update", "trialnum", "oldone12", "-v", "9"),
        ("experiment", "import", "oldone12", "-f", "oldone12"),
    ],
)
def test_what_would_change_it_is_refused_with_what_can_be_done(old: Path, say: Say, command: tuple[str, ...]) -> None:
    before = fingerprint(old)
    said = say(*command, fails=True)
    assert "was made by Microsoft NNI and can only be read" in said
    assert "searchFrom: [oldone12]" in said
    assert fingerprint(old) == before


def test_parameters_that_nni_mixed_up_are_put_right_and_said(home: Path, say: Say) -> None:
    home.mkdir()
    swapped = [
        NniTrial("AAAAA", {"x": 0.1}, 0, reported_as=1, final=0.9),
        NniTrial("BBBBB", {"x": 0.9}, 1, reported_as=0, final=0.1, number=1),
    ]
    make(home, NniFolder(trials=swapped))
    trials = _trials(say, "oldone12")
    assert (trials["AAAAA"]["parameters"], trials["BBBBB"]["parameters"]) == ({"x": 0.9}, {"x": 0.1})
    assert "(number 0, while it reported with number 1); shown are those it had" in trials["AAAAA"]["reason"]


def test_parameters_that_cannot_be_told_any_more_are_neither_exported_nor_learned(home: Path, say: Say) -> None:
    home.mkdir()
    trials = [
        NniTrial("AAAAA", {"x": 0.1}, 0, reported_as=1, final=0.9),
        NniTrial("BBBBB", {"x": 0.2}, 1, final=0.2, number=1),
        NniTrial("CCCCC", {"x": 0.3}, 1, final=0.3, number=1),  # a resume used number 1 again
    ]
    folder = make(home, NniFolder(trials=trials))
    assert [one["trialJobId"] for one in json.loads(say("experiment", "export", "oldone12"))] == ["BBBBB", "CCCCC"]
    assert search_from.results(str(folder)) == [
        {"parameter": {"x": 0.2}, "value": 0.2},
        {"parameter": {"x": 0.3}, "value": 0.3},
    ]
    trials_by_id = _trials(say, "oldone12")
    assert trials_by_id["AAAAA"]["reason"].endswith("its real parameters are unknown")
    assert [one["sequence"] for one in trials_by_id.values()] == [0, 1, 2]


def test_a_folder_that_nnis_list_does_not_have_is_found(home: Path, say: Say) -> None:
    home.mkdir()
    make(home, NniFolder(listed=False))
    (home / ".experiment").write_text("{ cut off")
    assert [one["id"] for one in json.loads(say("experiment", "list", "--all", "--json"))] == ["oldone12"]


def test_a_journal_that_names_a_further_file_deletes_nothing(old: Path, tmp_path: Path, say: Say) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    write_foreign_journal(old / "db/nni.sqlite", mine)
    assert "leads to another file" in " ".join(say("trial", "ls", "oldone12", fails=True).split())
    assert mine.read_text() == "mine"


def test_results_are_read_again_once_nni_has_added_some(old: Path, home: Path, say: Say) -> None:
    assert len(_trials(say, "oldone12")) == 4
    other = make(home / "elsewhere", NniFolder(trials=[NniTrial("ZZZZZ", {"x": 0.5}, final=1)]))
    (other / "db/nni.sqlite").replace(old / "db/nni.sqlite")
    assert set(_trials(say, "oldone12")) == {"ZZZZZ"}


def test_a_database_that_is_none_is_refused_by_its_path(old: Path, say: Say) -> None:
    (old / "db/nni.sqlite").write_bytes(b"no database at all, but long enough" * 100)
    said = say("experiment", "show", "oldone12", fails=True)
    assert "nni.sqlite" in said
    assert "cannot be read as a database of NNI" in said.replace("\n", "")


@pytest.mark.parametrize(
    "code",
    ["CREATE VIEW innocent AS SELECT 1", "ALTER TABLE MetricData ADD COLUMN more AS (hex(zeroblob(1e9))) VIRTUAL"],
)
def test_a_database_with_code_in_it_is_refused(old: Path, say: Say, code: str) -> None:
    with contextlib.closing(sqlite3.connect(old / "db/nni.sqlite")) as db:
        db.execute(code)
    assert "contains what NNI did not make" in say("experiment", "show", "oldone12", fails=True)


def test_old_tables_without_later_columns_are_read(old: Path, say: Say) -> None:
    with contextlib.closing(sqlite3.connect(old / "db/nni.sqlite")) as db:
        db.executescript("ALTER TABLE TrialJobEvent DROP environmentId; ALTER TABLE TrialJobEvent DROP message")
    assert set(_trials(say, "oldone12")) == {"AAAAA", "BBBBB", "CCCCC", "DDDDD"}


def test_nnis_own_archive_is_loaded_for_reading(old: Path, home: Path, say: Say, tmp_path: Path) -> None:
    archive = tmp_path / "nni_experiment_oldone12.zip"
    entry = json.loads((home / ".experiment").read_text())["oldone12"]
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(old.rglob("*")):
            packed.write(path, f"experiment/{path.relative_to(old)}")
        packed.writestr("nnictl/.experiment", json.dumps(entry))
        packed.writestr("nnictl/oldone12/log/x", "")
        packed.writestr("code/trial.py", "print(1)")
    assert "is already on this machine" in say("experiment", "load", "-p", archive, fails=True)
    (home / ".experiment").unlink()
    old.rename(tmp_path / "away")
    assert "made by NNI" in say("experiment", "load", "-p", archive, "-c", tmp_path / "code")
    assert (tmp_path / "code" / "trial.py").read_text() == "print(1)"
    assert _trials(say, "oldone12")["BBBBB"]["value"] == 0.5


def test_an_archive_that_leaves_its_folder_is_refused(home: Path, say: Say, tmp_path: Path) -> None:
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("experiment/db/nni.sqlite", b"")
        packed.writestr("nnictl/.experiment", json.dumps({"id": "oldone12"}))
        packed.writestr("experiment/../../out", b"")
    assert "contains a path that no experiment has" in say("experiment", "load", "-p", archive, fails=True)
    assert not list(tmp_path.glob("out"))
    assert not list(home.glob("*"))


def test_a_source_may_be_an_id_a_folder_or_an_exported_file(old: Path, tmp_path: Path, whole: Path) -> None:
    known = [{"parameter": {"x": 0.5}, "value": {"default": 0.25, "acc": 1}}, {"parameter": {"x": 0.75}, "value": 0.5}]
    file = tmp_path / "exported.json"
    file.write_text(json.dumps([{"parameter": {"x": 0.5}, "value": "0.25", "trialJobId": "A"}]))
    assert search_from.collect(["oldone12"]) == known
    assert search_from.collect([str(old)]) == known
    assert search_from.collect([str(file)]) == [{"parameter": {"x": 0.5}, "value": 0.25, "trialJobId": "A"}]
    assert search_from.collect(["abcd", str(whole)]) == [{"parameter": {"x": 0.5}, "value": 0.25}] * 2


@pytest.mark.parametrize("source", ["nobody", "/no/such/folder", ".", "a" * 300, "/a\0"])
def test_a_source_that_is_none_is_named(home: Path, source: str) -> None:
    with pytest.raises(NotFound):
        search_from.results(source)


def test_the_python_api_knows_it(old: Path) -> None:
    metadata = {one["id"]: one for one in Experiment(id="oldone12").get_all_experiments_metadata()}
    assert metadata["oldone12"]["status"] == "DONE"
    assert metadata["oldone12"]["logDir"] == str(old.parent)


def test_a_moved_experiment_of_ours_is_known_again_by_its_folder(whole: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "abcd"
    moved.parent.mkdir()
    whole.rename(moved)
    assert registry.at(moved).directory == moved
    assert registry.find("abcd").directory == moved


def test_the_folder_in_which_nni_puts_its_archive_is_told_apart(say: Say, tmp_path: Path) -> None:
    archive = tmp_path / "saved" / "nni_experiment_oldone12.zip"
    archive.parent.mkdir()
    archive.touch()
    said = say("experiment", "load", "-p", archive.parent, fails=True)
    assert f"is a folder; give the zip file {archive}" in said
