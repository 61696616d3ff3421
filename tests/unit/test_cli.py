"""nnictl against a stand-in for the manager: what it asks, what it prints, and its exit codes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite import _registry
from nnilite._cli.program import COMMANDS, run
from stand_in_manager import StandIn, stand_in_manager

TRIAL = {
    "id": "trial1",
    "sequence": 0,
    "state": "SUCCEEDED",
    "reason": "",
    "parameters": {"x": 0.5, "act": "re\nlu"},
    "parameterId": 0,
    "source": "algorithm",
    "attempt": 0,
    "created": 1.0,
    "started": 1.0,
    "ended": 3.5,
    "value": {"default": 0.25, "loss": "NaN"},
    "latest": None,
}
PROFILE = {
    "id": "abcd",
    "name": "digits",
    "state": "RUNNING",
    "reason": "",
    "config": {"trialCommand": "python3 trial.py"},
    "searchSpace": {},
    "platforms": ["local"],
    "directory": "/somewhere/abcd",
    "created": 1.0,
    "started": 1.0,
    "ended": None,
    "duration": 12.0,
    "limits": {"trialConcurrency": 2, "maxTrialNumber": 30, "maxExperimentDuration": None, "maxTrialDuration": None},
    "counts": {"SUCCEEDED": 4, "WAITING": 1},
    "best": TRIAL,
    "optimize": "minimize",
    "hosts": [],
    "waiting": [{"reason": "no GPU is free", "count": 1}],
    "nextSequence": 5,
    "revision": 9,
}

Make = Callable[..., Path]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home of 'experiments' $HOME\n"
    monkeypatch.setenv("NNILITE_HOME", str(folder))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return folder


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with stand_in_manager() as found:
        found.says("GET /experiment", PROFILE)
        found.says("GET /trials", {"trials": [TRIAL], "total": 1})
        yield found


@pytest.fixture
def make(home: Path, manager: StandIn) -> Iterator[Make]:
    """Makes an experiment known; a running one has the stand-in as its manager."""
    with contextlib.ExitStack() as locks:

        def one(experiment: str, *, running: bool = True, state: str = "RUNNING") -> Path:
            folder = home / experiment
            (folder / "log").mkdir(parents=True)
            _registry.add(experiment, "digits", folder, "local", time.time())
            port = int(manager.url.rpartition(":")[2])
            _registry.write_json(folder / "manager.json", {"state": state, "url": manager.url, "port": port, "pid": 1})
            if running:
                locks.enter_context(_registry.lock(folder))
            return folder

        yield one


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            run([name, "--help"])
        assert ended.value.code == 0
        assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["creat"], "did you mean 'create'?"),
        (["create"], "the following arguments are required: -c/--config"),
        (["stop", "--port", "65536"], "65536 is not a port"),
        (["create", "-c", "x", "--por", "1"], "unrecognized arguments: --por 1"),
        (["trial", "ls", "--head", "0"], "0 is not a number of at least 1"),
        (["experiment"], "required: WHAT"),
    ],
)
def test_a_wrong_command_line_is_told_and_exits_with_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from nnilite._cli.program import run\ntry: run(['create', '--help'])\nexcept SystemExit: pass\n"
    code += "print('\\nLOADED', {'rich', 'yaml', 'tornado', 'schema', 'optuna', 'sqlite3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.endswith("LOADED set()\n")


def test_no_experiment_is_not_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", "status"]) == 3
    assert capsys.readouterr().err.startswith("ERROR: There is no experiment running")
    assert run(["trial", "ls", "nosuch"]) == 3


def test_several_running_experiments_need_an_id(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    make("abxy")
    assert run(["experiment", "status"]) == 4
    assert "abcd" in capsys.readouterr().err
    assert run(["experiment", "status", "abc"]) == 0


def test_a_running_command_on_a_stopped_experiment_says_how_to_resume_it(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd", running=False)
    assert run(["update", "concurrency", "abcd", "-v", "3"]) == 4
    assert "nnictl resume abcd" in capsys.readouterr().err


def test_a_manager_that_does_not_answer_is_unreachable(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("abcd")
    _registry.write_json(folder / "manager.json", {"url": "http://127.0.0.1:1", "port": 1, "state": "RUNNING"})
    assert run(["experiment", "status"]) == 5
    assert "does not answer" in capsys.readouterr().err


def test_experiments_are_listed_the_running_ones_by_default(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    make("gone", running=False, state="DONE")
    run(["experiment", "list"])
    assert "gone" not in capsys.readouterr().out
    run(["experiment", "list", "--all", "--json"])
    listed = {one["id"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert listed == {"abcd": "RUNNING", "gone": "DONE"}


def test_the_status_tells_why_trials_wait(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "status"]) == 0
    out = capsys.readouterr().out
    assert out == "RUNNING; trials: 5 of 30: 4 SUCCEEDED, 1 WAITING\n1 trial waits: no GPU is free\n"


def test_the_status_for_scripts_has_nnis_fields(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    run(["experiment", "status", "--json"])
    status = json.loads(capsys.readouterr().out)
    assert (status["status"], status["errors"]) == ("RUNNING", [])


def test_show_tells_the_best_parameters(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "show"]) == 0
    out = capsys.readouterr().out
    assert "Best metric: default=0.25, loss=nan (trial trial1, no. 0)" in out
    assert "  x: 0.5\n" in out


def test_trials_are_a_plain_table_when_piped(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["trial", "ls"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NO", "ID", "STATE", "METRIC", "TIME", "PARAMETERS", "REASON"]
    assert row.split() == ["0", "trial1", "SUCCEEDED", "default=0.25,", "loss=nan", "2.5s", "x=0.5", r"act=re\nlu"]


def test_the_best_are_the_smallest_where_the_metric_is_minimized(make: Make, manager: StandIn) -> None:
    make("abcd")
    run(["trial", "ls", "--head", "2"])
    run(["trial", "ls", "--tail", "3"])
    asked = [one.path.partition("?")[2] for one in manager.asked if "/trials?" in one.path]
    assert asked == ["sort=value&descending=false&offset=0&limit=2", "sort=value&descending=true&offset=0&limit=3"]


def test_the_front_of_several_objectives_is_listed(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    assert run(["trial", "ls", "--front"]) == 1
    assert "no `objectives`" in capsys.readouterr().err
    tuner = {"name": "NSGA2", "classArgs": {"objectives": {"acc": "maximize", "ms": "minimize"}}}
    manager.says("GET /experiment", {**PROFILE, "config": {"tuner": tuner}})
    results = [{"acc": 0.5, "ms": 10}, {"acc": 0.9, "ms": 30}, {"acc": 0.4, "ms": 20}, {"acc": 0.95}]
    trials = [{**TRIAL, "id": f"t{k}", "value": value} for k, value in enumerate(results)]
    manager.says("GET /trials", {"trials": trials, "total": 4})
    assert run(["trial", "ls", "--front", "--json"]) == 0
    assert [trial["id"] for trial in json.loads(capsys.readouterr().out)] == ["t1", "t0"]


def test_trials_are_killed_by_id(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("DELETE /trials/trial1", TRIAL)
    assert run(["trial", "kill", "-T", "trial1"]) == 0
    assert run(["trial", "kill", "-T", "other"]) == 3
    assert "trial1" in capsys.readouterr().out


def test_a_trial_without_files_here_is_shown(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("GET /trials/trial1", {**TRIAL, "attempts": []})
    manager.says("GET /trials/trial1/metrics", {"metrics": [], "next": 0})
    assert run(["trial", "show", "-T", "trial1"]) == 0
    assert capsys.readouterr().out.endswith("Files\nNone yet.\n")


def test_one_file_of_a_trial_is_printed(make: Make, manager: StandIn, capsysbinary: Any) -> None:
    make("abcd")
    manager.says("GET /trials/trial1/files/0/roles/worker-1.log", b"a worker\n")
    assert run(["log", "trial", "-T", "trial1", "--file", "0/roles/worker-1.log"]) == 0
    assert capsysbinary.readouterr().out == b"a worker\n"
    assert run(["log", "trial", "-T", "trial1", "--file", "0/none.log"]) == 3
    assert run(["log", "trial", "--file", "0/roles/worker-1.log"]) == 1


def test_a_trial_is_scaled(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("PUT /trials/trial1/workers", TRIAL)
    assert run(["trial", "scale", "trial1", "4", "--experiment", "abcd"]) == 0
    assert json.loads(manager.asked[-1].body) == {"workers": 4}
    assert capsys.readouterr().out == "Trial trial1 is to have 4 workers.\n"
    with pytest.raises(SystemExit):
        run(["trial", "scale", "trial1", "0"])


def test_failed_trials_are_run_again_by_state(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("POST /trials/rerun", {"trials": [TRIAL, TRIAL]})
    assert run(["trial", "rerun", "--status", "FAILED"]) == 0
    assert json.loads(manager.asked[-1].body) == {"state": "FAILED"}
    assert capsys.readouterr().out.startswith("2 trials run again")


def test_own_parameters_are_added(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("POST /trials", {**TRIAL, "warning": "x is odd"}, 201)
    assert run(["trial", "add", "-p", '{"x": 1}']) == 0
    assert capsys.readouterr().err == "WARNING: x is odd\n"
    assert json.loads(manager.asked[-1].body) == {"parameters": {"x": 1}}
    assert run(["trial", "add", "-p", "{x: 1"]) == 1
    assert "this is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "value", "sent"),
    [
        ("concurrency", "3", {"trialConcurrency": 3}),
        ("trialnum", "100", {"maxTrialNumber": 100}),
        ("duration", "2h", {"maxExperimentDuration": 7200}),
        ("duration", "90", {"maxExperimentDuration": 90}),
        ("trialduration", "1.5M", {"maxTrialDuration": 90}),
    ],
)
def test_limits_are_changed_in_nnis_spellings(
    make: Make, manager: StandIn, what: str, value: str, sent: dict[str, int]
) -> None:
    make("abcd")
    manager.says("PATCH /experiment", PROFILE)
    assert run(["update", what, "-v", value]) == 0
    assert json.loads(manager.asked[-1].body) == sent


def test_a_wrong_duration_is_told(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["update", "duration", "-v", "soon"]) == 1
    assert "--value soon" in capsys.readouterr().err


def test_a_broken_search_space_file_is_told_with_its_line(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    path = tmp_path / "space.json"
    path.write_text('{"x":\n oops}')
    assert run(["update", "searchspace", "-f", str(path)]) == 1
    assert f"{path}:2: This is not JSON" in capsys.readouterr().err


def test_a_missing_file_is_told_with_its_name(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "import", "-f", "/no/such.json"]) == 1
    assert capsys.readouterr().err == "ERROR: /no/such.json: No such file or directory.\n"


def test_debug_shows_the_traceback(make: Make) -> None:
    make("abcd")
    with pytest.raises(FileNotFoundError):
        run(["--debug", "experiment", "import", "-f", "/no/such.json"])


def test_an_export_can_be_imported_again(make: Make, manager: StandIn, tmp_path: Path) -> None:
    make("abcd")
    manager.says("POST /import", {"imported": 1})
    path = tmp_path / "out.json"
    assert run(["experiment", "export", "-f", str(path)]) == 0
    assert run(["experiment", "import", "-f", str(path)]) == 0
    sent = json.loads(manager.asked[-1].body)
    assert sent[0]["parameter"] == TRIAL["parameters"]
    assert sent[0]["value"] == {"default": 0.25, "loss": "NaN"}


def test_nnis_exports_with_metrics_as_text_are_imported_as_numbers(
    make: Make, manager: StandIn, tmp_path: Path
) -> None:
    make("abcd")
    manager.says("POST /import", {"imported": 2})
    path = tmp_path / "nni.json"
    path.write_text(json.dumps([{"parameter": {}, "value": "0.5"}, {"parameter": {}, "value": '{"default": 1}'}]))
    assert run(["experiment", "import", "-f", str(path)]) == 0
    assert [one["value"] for one in json.loads(manager.asked[-1].body)] == [0.5, {"default": 1}]


def test_csv_goes_to_standard_output_by_default(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "export", "-t", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "x,act,trialJobId,reward,loss"


def test_an_export_that_fails_leaves_no_half_file(make: Make, manager: StandIn, tmp_path: Path) -> None:
    make("abcd")
    manager.says("GET /trials", {"error": "The disk is gone."}, 503)
    assert run(["experiment", "export", "-f", str(tmp_path / "out.csv")]) == 5
    assert list(tmp_path.glob("*out.csv*")) == []


def test_the_configuration_is_json(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["config", "show"]) == 0
    assert json.loads(capsys.readouterr().out) == PROFILE["config"]


def test_the_address_of_the_web_page_signs_in(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("POST /sign-in-links", {"path": "/?token=once"}, 201)
    assert run(["webui", "url"]) == 0
    assert capsys.readouterr().out == f"{manager.url}/?token=once\n"


@pytest.mark.parametrize(
    ("option", "wanted"), [(["-T", "1"], "three\n"), (["-H", "2"], "one\ntwo\n"), ([], "one\ntwo\nthree\n")]
)
def test_logs_are_read_from_either_end(
    make: Make, option: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("abcd", running=False)
    (folder / "log" / "manager.log").write_text("one\ntwo\nthree\n")
    assert run(["log", "manager", "abcd", *option]) == 0
    assert capsys.readouterr().out == wanted


def test_a_log_that_is_not_there_yet_is_not_found(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["log", "tuner"]) == 3
    assert "no log of the tuner yet" in capsys.readouterr().err


def test_a_trials_output_goes_to_the_streams_it_came_from(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    for stream in ("stdout", "stderr"):
        text = f"on {stream}\n".encode()
        manager.says(f"GET /trials/trial1/output/{stream}", b"", headers={"X-Next-Offset": "10"})
        manager.says(f"GET /trials/trial1/output/{stream}?offset=0&limit=1048576", text)
    assert run(["log", "trial", "-T", "trial1"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("on stdout\n", "on stderr\n")


def test_downloaded_files_stay_in_their_folder(
    make: Make, manager: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    manager.says("GET /trials/trial1/files", {"files": [{"path": "a/b c.txt", "size": 2, "mtime": 1.0}]})
    manager.says("GET /trials/trial1/files/a/b%20c.txt", b"hi")
    assert run(["trial", "download", "-T", "trial1", "-o", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here" / "a" / "b c.txt").read_bytes() == b"hi"
    manager.says("GET /trials/trial1/files", {"files": [{"path": "../out", "size": 2, "mtime": 1.0}]})
    assert run(["trial", "download", "-T", "trial1", "-o", str(tmp_path / "there")]) == 1
    assert not (tmp_path / "out").exists()


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
    assert _registry.entries() == []


def test_what_a_stop_has_left_behind_is_said_again_before_that_is_forgotten(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("abcd", running=False)
    _registry.write_json(folder / "manager.json", {"state": "STOPPED", "left": "box was away: `ssh box rm -r x`"})
    run(["experiment", "delete", "abcd", "-y"])
    assert "WARNING: box was away: `ssh box rm -r x`." in capsys.readouterr().err


def test_a_folder_that_is_no_experiments_is_never_deleted(home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    _registry.add("abcd", "", precious, "local", 1.0)
    assert run(["experiment", "delete", "abcd", "-y"]) == 1
    assert precious.exists()


def test_a_saved_experiment_comes_back_elsewhere(make: Make, tmp_path: Path) -> None:
    folder = make("abcd", running=False, state="DONE")
    code = tmp_path / "my code"
    code.mkdir()
    (code / "trial.py").write_text("print(1)")
    _registry.write_json(
        folder / "config.json", {"trialCodeDirectory": str(code), "trainingService": {"platform": "x"}}
    )
    (folder / "log" / "manager.log").write_text("hello")
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip"), "-s"]) == 0
    run(["experiment", "delete", "abcd", "-y"])
    assert run(["experiment", "load", "-p", str(tmp_path / "a.zip"), "-l", str(tmp_path / "new")]) == 0
    entry = _registry.find("abcd")
    assert (entry.directory / "log" / "manager.log").read_text() == "hello"
    config = json.loads((entry.directory / "config.json").read_text())
    assert (Path(config["trialCodeDirectory"]) / "trial.py").read_text() == "print(1)"


def test_what_belongs_to_one_manager_is_not_saved(make: Make, tmp_path: Path) -> None:
    folder = make("abcd", running=False)
    (folder / "token").write_text("secret")
    (folder / "log" / "link").symlink_to("/etc/passwd")
    run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")])
    assert (tmp_path / "a.zip").stat().st_mode & 0o777 == 0o600
    assert set(zipfile.ZipFile(tmp_path / "a.zip").namelist()) == {"nnilite.json"}


@pytest.mark.parametrize("name", ["experiment/../../out", "/etc/out", "elsewhere/out", "experiment"])
def test_a_zip_file_cannot_write_outside_its_folders(
    home: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("nnilite.json", json.dumps({"format": 1, "id": "abcd"}))
        archive.writestr(name, "evil")
    assert run(["experiment", "load", "-p", str(tmp_path / "bad.zip")]) == 1
    assert "no experiment has" in capsys.readouterr().err
    assert not (home / "abcd").exists()


@pytest.mark.parametrize(
    "about", [None, {}, {"format": 1, "id": "../x"}, {"format": 2, "id": "abcd"}, {"format": 1, "id": 3}]
)
def test_foreign_zip_files_are_refused(
    home: Path, tmp_path: Path, about: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        if about is not None:
            archive.writestr("nnilite.json", json.dumps(about))
    assert run(["experiment", "load", "-p", str(tmp_path / "bad.zip")]) == 1
    assert "was not written by" in capsys.readouterr().err


def test_stop_asks_every_manager_and_waits_for_its_end(
    make: Make, manager: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("abxy")
    manager.says("POST /experiment/stop", {"stopping": True}, 202)
    waited: list[str] = []
    monkeypatch.setattr("nnilite._managers.wait_until_ended", lambda entry: waited.append(entry.id))
    assert run(["stop", "--all"]) == 0
    assert sorted(waited) == ["abcd", "abxy"]
    assert [one.path for one in manager.asked] == ["/api/v1/experiment/stop"] * 2


def test_stop_takes_a_pattern_a_start_or_a_port(make: Make, monkeypatch: pytest.MonkeyPatch, manager: StandIn) -> None:
    make("abcd")
    make("abxy")
    stopped: list[str] = []
    monkeypatch.setattr("nnilite._managers.ask_to_stop", lambda entry: stopped.append(entry.id))
    monkeypatch.setattr("nnilite._managers.wait_until_ended", lambda entry: None)
    assert run(["stop", "abx"]) == 0
    assert run(["stop", "ab*"]) == 0
    assert run(["stop", "abc", "--port", manager.url.rpartition(":")[2]]) == 0
    assert (stopped[0], sorted(stopped[1:3]), stopped[3]) == ("abxy", ["abcd", "abxy"], "abcd")


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--all"], 0), ([], 3), (["zz*"], 3), (["--port", "1"], 3), (["nosuch"], 3)]
)
def test_stop_with_nothing_to_stop(home: Path, arguments: list[str], code: int) -> None:
    assert run(["stop", *arguments]) == code


def test_one_that_cannot_be_stopped_does_not_save_the_others(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nnilite.errors import NniliteError

    make("abcd")
    make("abxy")

    def stubborn(entry: _registry.Entry) -> None:
        if entry.id == "abcd":
            raise NniliteError("It will not.")

    monkeypatch.setattr("nnilite._managers.ask_to_stop", lambda entry: None)
    monkeypatch.setattr("nnilite._managers.wait_until_ended", stubborn)
    assert run(["stop", "--all"]) == 1
    captured = capsys.readouterr()
    assert "abxy is stopped" in captured.out
    assert "ERROR: Experiment abcd: It will not." in captured.err


def test_top_shows_one_look_when_piped(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["top"]) == 0
    assert "4/30" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_is_no_error(make: Make) -> None:
    make("abcd")
    command = f"{sys.executable} -m nnilite._cli algo list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistake_of_ours_is_one_sentence_too(tmp_path: Path) -> None:
    code = "from nnilite._cli import program; program._carry_out = lambda o: 1 / 0; program.run(['experiment', 'list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("ERROR: This is a mistake in nnilite itself: ZeroDivisionError")
    assert "Traceback" not in done.stderr
