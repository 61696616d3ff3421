"""Which folders are experiments, and which of them `nnictl experiment delete` may touch."""

from __future__ import annotations

import argparse
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nnilite._cli import access
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._manager import search_from
from nnilite.errors import Conflict, DamagedFile, NotFound
from stand_in_manager import Make


def test_a_running_experiment_is_not_deleted(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("abcd")
    assert run(["experiment", "delete", "abcd", "--yes"]) == 4
    assert folder.exists()


def test_a_stopped_experiment_is_deleted_after_a_yes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make("abcd", running=False)
    monkeypatch.setattr("nnilite._cli.screen.confirm", lambda question: False)
    run(["experiment", "delete", "abcd"])
    assert folder.exists()
    monkeypatch.setattr("nnilite._cli.screen.confirm", lambda question: True)
    run(["experiment", "delete", "abcd"])
    assert not folder.exists()
    assert registry.entries() == []


def test_what_a_stop_has_left_behind_is_said_again_before_that_is_forgotten(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("abcd", running=False)
    write_json(folder / "manager.json", {"state": "STOPPED", "left": "box was away: `ssh box rm -r x`"})
    run(["experiment", "delete", "abcd", "-y"])
    assert "WARNING: box was away: `ssh box rm -r x`." in capsys.readouterr().err


def test_a_folder_that_is_no_experiments_is_never_deleted(home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    registry.add("abcd", "", precious, "local", 1.0)
    assert run(["experiment", "delete", "abcd", "-y"]) == 1
    assert precious.exists()


def test_the_registry_forgets_an_experiment_whose_folder_is_gone(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(make("abcd", running=False))
    assert run(["experiment", "show", "abcd"]) == 1
    assert "`nnictl experiment delete abcd` forgets" in capsys.readouterr().err
    assert run(["experiment", "delete", "abcd", "-y"]) == 0
    assert registry.entries() == []


def test_many_experiments_whose_folders_are_gone_are_one_warning_and_are_forgotten_at_once(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    here = make("here", running=False)
    for number in range(6):
        shutil.rmtree(make(f"gone{number}", running=False))
    assert run(["experiment", "list", "--all"]) == 0
    warnings = capsys.readouterr().err
    assert warnings.count("forgets the experiment") == 3
    assert "The folders of 3 more experiments are gone, too; `nnictl experiment delete --gone`" in warnings
    assert run(["experiment", "delete", "--gone"]) == 0
    assert capsys.readouterr().out == "6 experiments kept; --yes forgets without a question.\n"
    assert len(registry.entries()) == 7
    assert run(["experiment", "delete", "--gone", "-y"]) == 0
    assert capsys.readouterr().out == "6 experiments forgotten.\n"
    assert [entry.id for entry in registry.entries()] == ["here"]
    assert here.exists()
    assert run(["experiment", "delete", "--gone"]) == 0
    assert capsys.readouterr().out == "No experiment's folder is gone.\n"


def test_deleting_all_leaves_alone_what_is_damaged(make: Make) -> None:
    folder = make("abcd", running=False)
    (folder / "manager.json").write_text("{")
    run(["experiment", "delete", "--all", "-y"])
    assert folder.exists()


@pytest.mark.parametrize("command", [["experiment", "save", "-p"], ["experiment", "export", "-f"]])
def test_a_target_whose_folder_is_missing_is_named_as_it_was_given(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    make("abcd", running=command[1] == "export")
    target = tmp_path / "missing" / "target"
    assert run([*command, str(target), "abcd"]) == 1
    assert f"{target}: its folder does not exist\n" in capsys.readouterr().err


def test_an_experiment_that_the_registry_lost_is_found_by_its_folder(
    whole: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(whole / "manager.json", {"state": "DONE", "created": 12.0})
    shutil.rmtree(home / ".nnilite")
    [entry] = registry.entries()
    assert (entry.id, entry.directory, entry.platform, entry.started) == ("abcd", whole, "local", 12.0)
    assert run(["experiment", "list", "--all"]) == 0
    assert run(["trial", "ls", "abcd"]) == 0
    shown = capsys.readouterr().out
    assert "abcd" in shown
    assert "done1" in shown


def test_a_copied_folder_of_experiments_is_found_though_its_registry_names_the_other_machine(
    whole: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "home here"
    home.rename(here)
    monkeypatch.setenv("NNILITE_HOME", str(here))
    assert registry.find("abcd").directory == here / "abcd"
    assert run(["experiment", "delete", "abcd", "-y"]) == 0
    assert registry.list_all() == []
    assert not (here / "abcd").exists()


@pytest.mark.parametrize("lost", ["config.json", "nnilite.sqlite"])
def test_a_folder_that_is_not_whole_is_no_experiment(whole: Path, home: Path, lost: str) -> None:
    shutil.rmtree(home / ".nnilite")
    (whole / lost).unlink()
    assert registry.entries() == []
    assert registry.entry("abcd") is None


def test_a_link_to_a_folder_of_an_experiment_is_no_second_experiment(whole: Path, home: Path) -> None:
    (home / "wxyz").symlink_to(whole)
    assert [entry.id for entry in registry.entries()] == ["abcd"]


def test_a_registered_folder_elsewhere_comes_before_a_copy(whole: Path, home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "abcd"
    shutil.copytree(whole, elsewhere)
    registry.add("abcd", "digits", elsewhere, "local", 1.0)
    assert [entry.directory for entry in registry.entries()] == [elsewhere]


@pytest.mark.parametrize("config", ["[]", "{", '{"experimentName": 5, "trainingService": [null, {"platform": []}]}'])
def test_a_found_folder_with_an_odd_config_is_listed_without_name_and_platform(
    whole: Path, home: Path, config: str
) -> None:
    shutil.rmtree(home / ".nnilite")
    (whole / "config.json").write_text(config)
    [entry] = registry.entries()
    assert (entry.name, entry.platform) == ("", "")


@pytest.fixture
def moved(make: Make, tmp_path: Path) -> Callable[[str, str], Path]:
    """Moves the folder of a new experiment out of the home."""

    def move(experiment: str, place: str) -> Path:
        folder = make(experiment, running=False)
        write_json(folder / "config.json", {})
        (tmp_path / place).parent.mkdir(exist_ok=True)
        return folder.rename(tmp_path / place)

    return move


def test_an_experiment_that_was_moved_opens_by_the_start_of_its_id_and_its_folder_or_the_one_around(
    moved: Callable[[str, str], Path],
) -> None:
    place = moved("abcd1234", "data/abcd1234")
    for folder in (place.parent, place):
        assert access.find_with_folder(argparse.Namespace(folder=folder, id="abc")).directory == place


def test_an_experiment_whose_folder_has_another_name_is_answered_with_the_id_that_it_has_now(
    moved: Callable[[str, str], Path],
) -> None:
    place = moved("abcd1234", "best")
    with pytest.raises(NotFound, match=r"has the id best, not abcd; write that, or rename the folder"):
        access.find_with_folder(argparse.Namespace(folder=place, id="abcd"))
    assert [entry.id for entry in registry.entries()] == ["abcd1234"]


def test_an_id_that_begins_several_in_a_folder_is_refused(moved: Callable[[str, str], Path], tmp_path: Path) -> None:
    for name in ("abcd1234", "abcd5678"):
        moved(name, name)
    with pytest.raises(Conflict, match="'abcd' is the start of several ids: abcd1234, abcd5678"):
        access.find_with_folder(argparse.Namespace(folder=tmp_path, id="abcd"))


@pytest.mark.parametrize("name", ["ENOSYS", "EPERM", "EOPNOTSUPP"])
def test_a_file_system_without_links_has_experiments_without_nni_s_names_of_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As exFAT and FAT."""

    def fail(place: Path, target: str) -> None:
        raise OSError(getattr(errno, name), "no links", str(place))

    monkeypatch.setattr(Path, "symlink_to", fail)
    registry.make_folders(tmp_path)
    assert list((tmp_path / "log").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "cure"),
    [("gone.json", "there is no experiment folder or file"), ("results.csv", "only JSON is read: `nnictl experiment")],
)
def test_a_file_of_results_that_cannot_be_learned_from_is_answered_with_how_to_write_one(
    tmp_path: Path, name: str, cure: str
) -> None:
    (tmp_path / "results.csv").write_text("x,reward\n0.5,1\n")
    with pytest.raises((NotFound, DamagedFile), match=cure):
        search_from.results(str(tmp_path / name) if (tmp_path / name).exists() else name)
