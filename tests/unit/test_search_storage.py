"""`Search(storage=...)`: kept in a folder, gone on with by other processes, shown by nnictl."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interrupts import is_interrupted_at
from nnilite import Search
from nnilite._cli.nnictl import run as nnictl
from nnilite._experiments import registry, search_folder
from nnilite._running import launch, offline
from nnilite._store.database_file import FILE_NAME
from nnilite._store.integrity import IntegrityCheck
from nnilite.errors import ConfigError, Conflict, DamagedFile, NniliteError, StoreError, UnreadableFile
from nnilite.records import TrialState
from nnilite.testing import eventually
from silent_disk import failing_at

SPACE = {"x": {"_type": "uniform", "_value": [-5, 5]}}
PROGRAM = """
import os, sys, threading
from pathlib import Path
from typing import Any
from nnilite import Search

folder, told, total, hang = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def objective(parameters, report):
    report(parameters["x"])
    if len(told.read_text().splitlines()) == hang:
        Path(f"{told}.hangs").touch()
        threading.Event().wait()
    return parameters["x"] ** 2

def keep(search, trial):
    with told.open("a") as file:
        file.write(f"{trial.id} {trial.value!r}\\n")

told.touch()
search = Search({"x": {"_type": "uniform", "_value": [-5, 5]}}, tuner="Random", optimize="minimize", storage=folder)
search.run(objective, total=total, callbacks=[keep])
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "it's a\nfolder" / "bowl"


def bowl(parameters: dict, report=lambda value: None) -> float:
    report(parameters["x"])
    return parameters["x"] ** 2


def search_in(folder: Path, tuner: str = "Random", **given) -> Search:
    return Search(SPACE, tuner, optimize="minimize", storage=folder, **given)


def start(folder: Path, told: Path, total: int, hang: int = -1) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(told), str(total), str(hang)])


def check_sound(folder: Path) -> None:
    with IntegrityCheck(folder / FILE_NAME) as check:
        assert list(check.findings(folder.name)) == []


def test_a_search_goes_on_where_an_earlier_one_ended_as_if_it_were_one(folder: Path) -> None:
    whole = Search(SPACE, "TPE", optimize="minimize", seed=3).run(bowl, trials=12)
    search_in(folder, "TPE", seed=3).run(bowl, trials=7)
    result = search_in(folder, "TPE", seed=3).run(bowl, total=12)
    assert [one.parameters for one in result.trials] == [one.parameters for one in whole.trials]
    assert result.best is not None
    assert result.best.value == whole.best.value
    assert result.intermediate["2"] == (result.trials[2].parameters["x"],)
    check_sound(folder)


@pytest.mark.process
def test_a_search_killed_in_the_middle_is_gone_on_with_and_nothing_is_lost_or_doubled(
    folder: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    process = start(folder, told, 10, hang=4)
    eventually(Path(f"{told}.hangs").exists, limit_s=60)
    assert registry.find("bowl").state == "RUNNING"
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert registry.find("bowl").state == "STOPPED"
    before = [line.split(" ") for line in told.read_text().splitlines()]
    result = search_in(folder).run(bowl, total=8)
    assert [one.sequence for one in result.trials] == list(range(8))
    assert [[one.id, repr(one.value)] for one in result.trials[:4]] == before
    assert [one.attempt for one in result.trials] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert {one.state for one in result.trials} == {TrialState.SUCCEEDED}
    assert registry.find("bowl").state == "DONE"
    check_sound(folder)


@pytest.mark.process
def test_a_trial_that_ends_its_process_each_time_fails_in_the_end(folder: Path, tmp_path: Path) -> None:
    for number in range(2):
        told = tmp_path / f"told {number}"
        process = start(folder, told, 10, hang=0)
        eventually(Path(f"{told}.hangs").exists, limit_s=60)
        process.kill()
        process.wait(60)
    trials = search_in(folder).run(bowl, total=2).trials
    assert (trials[0].state, trials[0].attempt) == (TrialState.FAILED, 1)
    assert "gone before it ended" in trials[0].reason
    check_sound(folder)


@pytest.mark.process
def test_several_processes_share_one_search(folder: Path, tmp_path: Path) -> None:
    processes = [start(folder, tmp_path / f"told {number}", 16) for number in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    lines = [line for number in range(2) for line in (tmp_path / f"told {number}").read_text().splitlines()]
    trials = search_in(folder).result().trials
    assert sorted(lines) == sorted(f"{one.id} {one.value!r}" for one in trials)
    assert len({one.parameters["x"] for one in trials}) == len(trials) == 16
    assert registry.find("bowl").state == "DONE"
    check_sound(folder)


def test_a_run_knows_what_others_wrote_since_its_search_was_made(folder: Path) -> None:
    late, early = search_in(folder, "Evolution"), search_in(folder, "Evolution")
    early.run(bowl, trials=5)
    assert len(late.run(bowl, total=5).trials) == 5
    search_in(folder, "Evolution").run(bowl, trials=2)
    assert len(late.run(bowl, total=6).trials) == 7
    assert len(late._tuner.points) == 7


def test_where_no_tuner_is_named_the_stored_one_goes_on(folder: Path) -> None:
    """As in searches that an earlier version has begun, whose default was another one."""
    Search(SPACE, "TPE", optimize="minimize", storage=folder, seed=3).run(bowl, trials=2)
    again = Search(SPACE, optimize="minimize", storage=folder)
    assert repr(again).startswith("<Search by TPETuner")
    whole = Search(SPACE, "TPE", optimize="minimize", seed=3).run(bowl, trials=14).trials
    assert [one.parameters for one in again.run(bowl, total=14).trials] == [one.parameters for one in whole]
    with pytest.raises(Conflict, match="another tuner"):
        Search(SPACE, "Random", optimize="minimize", storage=folder)


def test_two_searches_on_one_folder_learn_from_each_other(folder: Path) -> None:
    one, other = search_in(folder, "Evolution"), search_in(folder, "Evolution")
    asked = [one.ask(), other.ask(), one.ask()]
    assert [trial.id for trial in asked] == ["0", "1", "2"]
    one.report(asked[0], 1)
    other.tell("0", 0.5)
    with pytest.raises(Conflict, match="has ended already"):
        one.tell(asked[0], 0.6)
    assert one.result().trials[0].value == 0.5
    assert [len(search._tuner.points) for search in (one, other)] == [3, 3]


def test_an_assessor_stops_what_others_trials_make_look_poor(folder: Path) -> None:
    def slow(parameters: dict, report) -> float:
        for step in range(5):
            report(float(step))
        return 4.0

    search_in(folder, assessor="Medianstop").run(slow, trials=3)
    poor = search_in(folder, assessor="Medianstop")
    result = poor.run(lambda parameters, report: [report(99.0) for _ in range(5)], trials=1)
    assert result.trials[-1].state is TrialState.EARLY_STOPPED
    check_sound(folder)


def test_a_search_is_shown_like_an_experiment(folder: Path, capsys: pytest.CaptureFixture) -> None:
    Search(SPACE, optimize={"a": "maximize", "b": "minimize"}, tuner="NSGA2", storage=folder).run(
        lambda parameters: {"a": parameters["x"], "b": parameters["x"] ** 2}, trials=6
    )
    assert nnictl(["experiment", "list", "--all", "--json"]) == 0
    assert [(one["id"], one["state"]) for one in json.loads(capsys.readouterr().out)] == [("bowl", "DONE")]
    assert nnictl(["experiment", "export", "bowl"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 6
    with offline.opened(registry.find("bowl")) as client:
        profile = client.profile()
        assert (profile["state"], profile["objectives"]) == ("DONE", {"a": "maximize", "b": "minimize"})
        assert len(list(client.trials())) == 6


def test_a_view_follows_a_search_that_goes_on(folder: Path) -> None:
    search = search_in(folder)
    search.run(bowl, trials=2)
    with offline.opened(registry.find("bowl")) as client:
        search.tell(search.ask(), 0.25)
        assert client.profile()["counts"]["SUCCEEDED"] == 3
        trial = search.ask()
        assert client.profile()["state"] == "RUNNING"
        search.tell(trial, 1.0)
        with pytest.raises(Conflict, match="for viewing only"):
            client.update(maxTrialNumber=3)


def test_no_manager_goes_on_with_a_search_and_none_deletes_a_running_one(folder: Path) -> None:
    search = search_in(folder)
    search.run(bowl, trials=1)
    with pytest.raises(Conflict, match="only that program can continue it"):
        launch.resume(registry.find("bowl"))
    trial = search.ask()
    assert nnictl(["experiment", "delete", "bowl", "--yes"]) != 0
    search.tell(trial, 1)
    assert nnictl(["experiment", "delete", "bowl", "--yes"]) == 0
    with pytest.raises(StoreError, match="is gone"):
        search.ask()


def test_a_seed_is_no_obstacle_for_a_tuner_that_has_no_use_for_it(folder: Path) -> None:
    space = {"x": {"_type": "choice", "_value": [1, 2, 3]}}
    for seed in (1, 1, None, 2):
        search = Search(space, "GridSearch", optimize="minimize", storage=folder, seed=seed)
        search.run(bowl, trials=1)
    assert len(search.result()) == 3


@pytest.mark.parametrize(
    ("given", "word"),
    [({"tuner": "Anneal"}, "tuner"), ({"assessor": "Medianstop"}, "assessor"), ({"seed": 1}, "seed")],
)
def test_a_folder_with_another_search_is_refused(folder: Path, given: dict, word: str) -> None:
    search_in(folder)
    with pytest.raises(Conflict, match=f"has a search with another .*{word}"):
        search_in(folder, **given)
    with pytest.raises(Conflict, match="another search space"):
        Search({"y": SPACE["x"]}, "Random", optimize="minimize", storage=folder)


def test_two_storages_of_one_name_have_ids_of_their_own(tmp_path: Path, folder: Path) -> None:
    places = [tmp_path / "a" / "first", tmp_path / "b" / "first", tmp_path / "it's $HOME; a name" / "with blanks"]
    for count, place in enumerate(places, 1):
        search_in(place).run(bowl, trials=count)
    ids = {one.id: one for one in registry.entries()}
    assert [one.name for one in ids.values()].count("first") == 2
    assert len(ids) == len(places)
    for count, place in enumerate(places, 1):
        assert len(search_in(place).run(bowl, trials=1)) == count + 1, "it goes on with its own"
    assert {one.id for one in registry.entries()} == set(ids)


def test_a_storage_of_a_taken_name_with_other_files_is_refused(tmp_path: Path, folder: Path) -> None:
    search_in(tmp_path / "a" / "first")
    (tmp_path / "b" / "first").mkdir(parents=True)
    (tmp_path / "b" / "first" / "notes.txt").touch()
    with pytest.raises(Conflict, match="has other files"):
        search_in(tmp_path / "b" / "first")


def test_folders_that_cannot_have_a_search_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NniliteError, match="cannot keep a search"):
        search_in(tmp_path / "file")
    with pytest.raises(Conflict, match="has other files"):
        search_in(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.json").write_text("{}")
    with pytest.raises(Conflict, match="an experiment that has a manager"):
        search_in(tmp_path / "one")


def test_a_search_whose_disk_does_not_answer_is_not_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_in(folder, "TPE").run(bowl, trials=1)
    kept = (folder / "config.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing_at(folder / "config.json"))
        with pytest.raises(NniliteError, match="Input/output error"):
            search_in(folder, "Random")
    assert (folder / "config.json").read_bytes() == kept


@pytest.mark.parametrize("ask", [search_folder.is_search, search_folder.is_running])
def test_where_the_disk_does_not_answer_a_search_is_neither_an_experiment_nor_at_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Path], bool]
) -> None:
    search_in(folder).run(bowl, trials=1)
    place = folder / search_folder.PROCESSES
    with monkeypatch.context() as patch:
        for call in ("stat", "listdir", "scandir"):
            patch.setattr(os, call, failing_at(place, getattr(os, call)))
        with pytest.raises(UnreadableFile, match="Input/output error"):
            ask(folder)
        assert registry.find(folder.name, damaged=True).state == registry.UNREADABLE
    assert (search_folder.is_search(folder), search_folder.is_running(folder)) == (True, False)


DAMAGES = {
    "UPDATE trials SET state = 'BLUE'": "cannot be 'BLUE'",
    "UPDATE trials SET parameters = '{'": "parameters of trial 0 cannot be read",
    "UPDATE attempts SET handle = 'x'": "handle cannot be",
    "DROP TABLE calls": "is not as nnilite makes it|no such table",
    "CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM trials; END": "which nnilite did not create",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_refused_with_a_sentence(folder: Path, damage: str) -> None:
    search_in(folder).run(bowl, trials=2)
    db = sqlite3.connect(folder / FILE_NAME)
    db.execute(damage)
    db.commit()
    db.close()
    with pytest.raises(StoreError, match=DAMAGES[damage]):
        search_in(folder)


def test_a_damaged_state_makes_only_this_search_damaged(folder: Path) -> None:
    search_in(folder).run(bowl, trials=1)
    (folder / "search.json").write_text('{"state": "BLUE"}')
    assert registry.find("bowl").state == "DAMAGED"
    (folder / "config.json").write_text("{")
    with pytest.raises(DamagedFile, match=r"config\.json"):
        search_in(folder)


def test_a_pickled_search_goes_on_in_the_same_folder(folder: Path) -> None:
    search = search_in(folder)
    search.run(bowl, trials=3)
    copied = pickle.loads(pickle.dumps(search))
    assert [one.id for one in (copied.ask(), search.ask())] == ["3", "4"]
    assert pickle.loads(pickle.dumps(search.result())) == search.result()


@pytest.mark.parametrize("tuner", ["TPE", "GridSearch", "Evolution"])
def test_a_pickled_search_knows_what_it_knew(tuner: str) -> None:
    space = {"x": {"_type": "quniform", "_value": [0, 9, 1]}}
    search = Search(space, tuner, assessor="Medianstop", **({} if tuner == "GridSearch" else {"seed": 1}))
    search.run(bowl, trials=4)
    copied = pickle.loads(pickle.dumps(search))
    assert copied.ask().parameters == search.ask().parameters
    assert copied.result().best == search.result().best


@pytest.mark.process
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="forks of programs with threads are warned of")
# A stand-in of another test in this process may have loaded eventlet, which warns of each fork.
@pytest.mark.filterwarnings("ignore:Using fork")
def test_a_forked_process_has_turns_of_its_own(folder: Path) -> None:
    search = search_in(folder)
    mine = search.ask()
    if (child := os.fork()) == 0:
        search.run(bowl, trials=2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(search.result().trials) == 3
    assert search.tell(mine, 1.0).attempt == 0


def test_a_search_that_is_not_used_any_more_closes_its_database(folder: Path) -> None:
    search = search_in(folder)
    database = search._journal._use().file.db
    del search
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_a_url_is_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"sqlite:///x\.db is a URL; give the path of a folder"):
        Search(SPACE, "Random", storage="sqlite:///x.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("named", ["", "  "])
def test_an_empty_text_is_no_folder(named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="storage: an empty text names no folder"):
        Search(SPACE, storage=named)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_searches_is_none_of_them(tmp_path: Path) -> None:
    Search(SPACE, tuner="Random", storage=tmp_path / "searches/first").run(lambda parameters: 1.0, trials=1)
    with pytest.raises(Conflict, match=r"searches has other files \(first\) and no search"):
        Search(SPACE, tuner="Random", storage=tmp_path / "searches")


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    Search(SPACE, tuner="Random", storage="~/searches/first").run(lambda parameters: 1.0, trials=1)
    assert registry.find("first", read_only=True).directory == tmp_path / "me/searches/first"
    assert not (tmp_path / "~").exists()


@pytest.mark.process
def test_waiting_for_a_stopped_process_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Search(SPACE, tuner="Random", storage=folder)
    hold = "import fcntl, os, signal, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); "
    hold += "print(flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    words = [sys.executable, "-c", hold, str(folder / "search.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        try:
            os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
            monkeypatch.setattr("nnilite._search.journal._TELL_S", 0.05)
            monkeypatch.setattr("nnilite._search.journal.TURN_TIMEOUT_S", 0.2)
            named = rf"process {other.pid} \(stopped; `kill -CONT {other.pid}` lets it continue\)"
            with pytest.raises(StoreError, match=named):
                Search(SPACE, tuner="Random", storage=folder)
            assert f"waiting for process {other.pid}" in caplog.text
        finally:
            other.kill()


@pytest.mark.parametrize("wrong", [{"seed": "x"}, {"no_such_argument": 1}, {"assessor": "Nobody"}])
def test_a_search_that_cannot_begin_leaves_its_folder_to_one_that_can(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(NniliteError):
        Search(SPACE, tuner="TPE", storage=folder, **wrong)
    assert Search(SPACE, tuner="TPE", storage=folder).run(lambda p: p["x"], trials=1).best.value is not None


def test_a_space_that_the_tuner_refuses_leaves_the_folder_free(folder: Path) -> None:
    with pytest.raises(NniliteError):
        Search(SPACE, tuner="BatchTuner", storage=folder)
    Search(SPACE, tuner="Random", storage=folder)


def test_a_link_in_the_place_of_the_lock_makes_no_file_elsewhere(folder: Path, tmp_path: Path) -> None:
    Search(SPACE, tuner="Random", storage=folder)
    (folder / "search.lock").unlink()
    (folder / "search.lock").symlink_to(tmp_path / "nologin")
    with pytest.raises(NniliteError, match="cannot keep a search"):
        Search(SPACE, tuner="Random", storage=folder)
    assert not (tmp_path / "nologin").exists()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_handler_that_reports_waits_for_no_lock_of_its_own_thread(folder: Path) -> None:
    search = search_in(folder)
    trial = search.ask()
    refusals: list[str] = []
    for line in itertools.count(1, step=23):
        try:
            if not is_interrupted_at(line, lambda: search.report(trial, 1.0), lambda: search.report(trial, 0.0)):
                break
        except Conflict as error:
            refusals.append(str(error))
    assert len(refusals) > 3
    assert all("a signal handler that interrupts it cannot ask, report or tell" in refusal for refusal in refusals)
    search.tell(trial, 5.0)
    (known,) = search_in(folder).result().trials
    assert (known.state, known.value) == (TrialState.SUCCEEDED, 5.0)
    check_sound(folder)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_time_limit_that_ends_a_report_at_any_line_does_not_end_the_search(folder: Path) -> None:
    class TooLate(Exception):
        pass

    def ring() -> None:
        raise TooLate

    search = search_in(folder)
    trial = search.ask()
    for line in itertools.count(1, step=2):
        with contextlib.suppress(TooLate):
            if not is_interrupted_at(line, ring, lambda: search.report(trial, 0.0)):
                break
        search.report(trial, float(line))
    assert line > 200
    search.tell(trial, 5.0)
    reported = search.result().intermediate[trial.id]
    assert [value for value in reported if value] == [float(number) for number in range(1, line, 2)]
    assert search_in(folder).result().intermediate[trial.id] == reported
    check_sound(folder)


def steps_of_a_check(folder: Path, trials: int) -> int:
    """How many steps SQLite takes to check a search of so many trials, in hundreds."""
    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, tuner="Random", storage=folder)
    for _ in range(trials):
        search.tell(search.ask(), 0.5)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with IntegrityCheck(folder / FILE_NAME) as check:
        assert check._db is not None
        check._db.set_progress_handler(count, 100)
        assert list(check.findings(folder.name)) == []
    return steps


def test_a_check_of_twice_as_many_trials_takes_twice_as_long(tmp_path: Path) -> None:
    few, many = steps_of_a_check(tmp_path / "few", 100), steps_of_a_check(tmp_path / "many", 200)
    assert many < 2.6 * few


def test_a_search_that_was_saved_and_loaded_elsewhere_is_continued_there(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search_in(home / "bowl").run(bowl, total=3)
    assert nnictl(["experiment", "save", "bowl", "-p", str(tmp_path)]) == 0
    assert "left out" not in capsys.readouterr().err
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "elsewhere"))
    assert nnictl(["experiment", "load", "-p", str(tmp_path / "nni_experiment_bowl.zip")]) == 0
    again = search_in(tmp_path / "elsewhere" / "bowl")
    again.run(bowl, total=5)
    assert len(again.result().trials) == 5
