"""`nnictl experiment`, `config`, `update`, `webui` and `top`: what they ask, what they print, and their exit codes."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from nnilite._cli import config_source, create
from nnilite._cli.nnictl import run
from nnilite._cli.tensorboard import has_event_files
from nnilite._experiments import registry
from nnilite._experiments.manager_state import find_manager_state
from stand_in_manager import PROFILE, TRIAL, Make, StandIn


def test_experiments_are_listed_the_running_ones_by_default(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    make("gone", running=False, state="DONE")
    run(["experiment", "list"])
    assert "gone" not in capsys.readouterr().out
    run(["experiment", "list", "--all", "--json"])
    listed = {one["id"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert listed == {"abcd": "RUNNING", "gone": "DONE"}


def test_an_experiment_whose_manager_died_is_unknown_and_its_trials_may_run(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd", running=False, state="RUNNING")
    assert run(["experiment", "list"]) == 0
    shown = capsys.readouterr()
    assert "UNKNOWN" in shown.out
    assert "Experiment abcd: its manager has died, and trials may still run; `nnictl resume abcd`" in shown.err
    assert run(["stop", "abcd"]) == 0
    assert "trials may still run; `nnictl resume abcd` continues it, and a stop then ends" in capsys.readouterr().out


def test_a_resume_mentions_the_port_only_if_it_is_not_the_former_one(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd", running=False, state="STOPPED")
    (entry,) = registry.entries()
    monkeypatch.setattr("nnilite._running.launch.resume", lambda *_, **__: entry)
    former = find_manager_state(entry.directory).port
    entry = dataclasses.replace(entry, port=former)
    assert run(["resume", "abcd"]) == 0
    assert "this one is at port" not in capsys.readouterr().out
    entry = dataclasses.replace(entry, port=8080)
    assert run(["resume", "abcd"]) == 0
    assert f"Port {former} was not free; this one is at port 8080." in capsys.readouterr().out


def test_the_files_of_a_configuration_are_found_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    file = tmp_path / "exp.yaml"
    file.write_text(
        "searchSpaceFile: space.json\ntrialCommand: 'true'\ntrialConcurrency: 1\ntrainingService: {platform: local}\n"
    )
    assert create.read_config(file, [])[1] == [file, tmp_path / "space.json"]


def test_a_resume_warns_of_a_configuration_that_has_changed_since(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make("abcd", running=False, state="STOPPED")
    (entry,) = registry.entries()
    monkeypatch.setattr("nnilite._running.launch.resume", lambda *_, **__: entry)
    files = [tmp_path / name for name in ("exp.yaml", "space.json")]
    for file in files:
        file.write_text("of the start")
    config_source.write_source(directory, files)
    assert run(["resume", "abcd"]) == 0
    assert "has changed" not in capsys.readouterr().err
    files[0].write_text("changed")
    files[1].unlink()
    os.mkfifo(files[1])  # opening it would wait
    assert run(["resume", "abcd"]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "has changed" in line]
    assert f"{files[0]} has changed since the experiment was created, and a resume does not read it" in warning
    (directory / config_source.FILE_NAME).write_text('{"files": {"x": []}}')
    assert run(["resume", "abcd"]) == 0
    named = {str(files[0]): "other", **{f"/{number}": "" for number in range(2)}}  # by a stranger
    (directory / config_source.FILE_NAME).write_text(json.dumps({"files": named}))
    assert config_source.list_changed(directory) == []


def test_the_status_tells_why_trials_wait(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "status"]) == 0
    out = capsys.readouterr().out
    assert out == "RUNNING; trials: 5 of 30: 4 SUCCEEDED, 1 WAITING\n1 trial waits: no GPU is free\n"


def test_the_status_and_top_name_a_service_that_fails(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    service = {"name": "slurm", "platform": "slurm", "state": "aside", "reason": "no answer from login1"}
    manager.says("GET /experiment", {**PROFILE, "services": [service]})
    said = "the training service slurm fails: no answer from login1\n"
    assert run(["experiment", "status"]) == 0
    assert capsys.readouterr().out.endswith(said)
    assert run(["top"]) == 0
    assert capsys.readouterr().out.endswith(f"abcd: {said}")
    waiting = [{"reason": "slurm cannot be opened: no answer from login1", "count": 1}]
    manager.says("GET /experiment", {**PROFILE, "services": [service], "waiting": waiting})
    assert run(["experiment", "status"]) == 0
    assert said not in capsys.readouterr().out  # the trials that wait say the same


def test_the_status_for_scripts_has_nnis_fields(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    run(["experiment", "status", "--json"])
    status = json.loads(capsys.readouterr().out)
    assert (status["status"], status["errors"], status["services"]) == ("RUNNING", [], [])


def test_show_tells_the_best_parameters(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "show"]) == 0
    out = capsys.readouterr().out
    assert "Best metric: default=0.25, loss=nan (trial trial1, no. 0)" in out
    assert "  x: 0.5\n" in out


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


def test_a_limit_below_the_trials_that_exist_is_a_warning(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    manager.says("PATCH /experiment", {**PROFILE, "nextSequence": 120})
    assert run(["update", "trialnum", "-v", "10"]) == 0
    assert "has 120 trials already" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["verify"], ["experiment", "delete"]])
@pytest.mark.parametrize(
    ("state", "words"),
    [("DONE", "has a manager that still runs"), ("VIEWED", "is open for viewing"), ("RUNNING", "is running")],
)
def test_what_a_process_does_that_is_in_the_way_is_named(
    make: Make, capsys: pytest.CaptureFixture[str], command: list[str], state: str, words: str
) -> None:
    make("abcd", state=state)
    assert run([*command, "abcd"]) == 4
    assert f"Experiment abcd {words}; stop it before it is " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "listed"), [("DONE", "DONE"), ("ERROR", "ERROR"), ("RUNNING", "UNKNOWN"), (None, "STOPPED")]
)
def test_an_experiment_whose_viewer_was_killed_is_listed_as_before(
    make: Make, capsys: pytest.CaptureFixture[str], before: str | None, listed: str
) -> None:
    folder = make("abcd", running=False, state="VIEWED")
    path = folder / "manager.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "viewed": before}))
    assert run(["experiment", "list", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == listed


def test_all_are_deleted_of_which_none_is_stopped(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd", state="VIEWED")
    assert run(["experiment", "delete", "--all"]) == 0
    assert capsys.readouterr().out == "There is no stopped experiment.\n"


def test_a_folder_that_goes_while_event_files_are_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, look = tmp_path / "trial", os.scandir
    gone.mkdir()

    def removing(folder: str | Path) -> Any:
        if Path(folder) == gone:
            gone.rmdir()
        return look(folder)

    monkeypatch.setattr(os, "scandir", removing)
    assert not has_event_files(tmp_path)
    assert not gone.exists()


@pytest.mark.parametrize(("word", "cure"), [("start", "`nnictl tensorboard ID` opens it"), ("stop", "Ctrl-C ends it")])
def test_nnis_commands_of_tensorboard_are_answered(word: str, cure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tensorboard", word]) == 3
    assert cure in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "export", "-f", "/proc/results.csv"]) == 1
    assert "--filename /proc/results.csv: cannot be written" in capsys.readouterr().err


def test_an_export_to_a_full_disk_names_the_file_and_the_cure(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    make("abcd")
    monkeypatch.setattr("nnilite._cli.result_export._write_json", fail)
    assert run(["experiment", "export", "-f", str(tmp_path / "out.json")]) == 1
    said = capsys.readouterr().err
    assert f"--filename {tmp_path / 'out.json'}: cannot be written: No space left" in said
    assert "free some disk space" in said


def test_a_wrong_duration_is_told(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["update", "duration", "-v", "soon"]) == 1
    assert "--value soon" in capsys.readouterr().err


def test_a_broken_search_space_file_is_told_with_its_line(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    path = tmp_path / "space.json"
    path.write_text('{"x":\n oops]}')
    assert run(["update", "searchspace", "-f", str(path)]) == 1
    assert f"{path}:2: is not JSON" in capsys.readouterr().err


def test_a_missing_file_is_told_with_its_name(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "import", "-f", "/no/such.json"]) == 1
    assert capsys.readouterr().err == "ERROR: /no/such.json: cannot be read: No such file or directory\n"


def test_many_results_are_read_without_their_lines(
    make: Make, manager: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find those takes half a minute in a hundred thousand results."""
    make("abcd")
    manager.says("POST /import", {"imported": 50_000, "known": 0, "warning": ""})
    path = tmp_path / "r.json"
    path.write_text(json.dumps([{"parameter": {"x": k, "y": "a"}, "value": k} for k in range(50_000)]))
    monkeypatch.setattr("nnilite.config.text.parse_yaml", lambda *_, **__: pytest.fail("read as YAML"))
    assert run(["experiment", "import", "-f", str(path)]) == 0
    assert len(json.loads(manager.asked[-1].body)) == 50_000


def test_results_that_were_imported_before_are_told(
    make: Make, manager: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    manager.says("POST /import", {"imported": 1, "known": 1, "warning": "2 of 3 are taken"})
    (tmp_path / "r.json").write_text(json.dumps([{"parameter": {"x": k}, "value": k} for k in range(3)]))
    assert run(["experiment", "import", "-f", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr()
    assert said.out == "1 of 3 results is imported; 1 was known already.\n"
    assert "2 of 3 are taken" in said.err


def test_trials_without_a_number_are_told_from_none_at_all(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    manager.says("GET /experiment", {**PROFILE, "best": None})
    run(["experiment", "show"])
    assert "Best: none; no trial has a number as its final result. `nnictl trial ls abcd`" in capsys.readouterr().out


def test_an_export_can_be_imported_again(make: Make, manager: StandIn, tmp_path: Path) -> None:
    make("abcd")
    manager.says("POST /import", {"imported": 1, "known": 0, "warning": ""})
    path = tmp_path / "out.json"
    assert run(["experiment", "export", "-f", str(path)]) == 0
    assert run(["experiment", "import", "-f", str(path)]) == 0
    sent = json.loads(manager.asked[-1].body)
    assert sent[0]["parameter"] == TRIAL["parameters"]
    assert sent[0]["value"] == {"default": 0.25, "loss": "NaN"}


def test_an_export_asks_for_the_intermediate_results_of_all_trials_at_once(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    attempt = TRIAL["attempt"]
    reported = [(TRIAL["id"], attempt, 1), ("other", 0, 5), (TRIAL["id"], attempt, 2), (TRIAL["id"], attempt + 1, 7)]
    metrics = [{"trial": trial, "attempt": number, "value": value} for trial, number, value in reported]
    manager.says("GET /metrics", {"metrics": metrics, "next": 4})
    assert run(["experiment", "export", "-i"]) == 0
    assert [row["intermediate"] for row in json.loads(capsys.readouterr().out)] == [[1, 2]]
    assert [one.path for one in manager.asked if one.path.partition("?")[0].endswith("/metrics")] == [
        "/api/v1/metrics?kind=PERIODICAL&after=0&limit=1000"
    ]


def test_nnis_exports_with_metrics_as_text_are_imported_as_numbers(
    make: Make, manager: StandIn, tmp_path: Path
) -> None:
    make("abcd")
    manager.says("POST /import", {"imported": 2, "known": 0, "warning": ""})
    path = tmp_path / "nni.json"
    path.write_text(json.dumps([{"parameter": {}, "value": "0.5"}, {"parameter": {}, "value": '{"default": 1}'}]))
    assert run(["experiment", "import", "-f", str(path)]) == 0
    assert [one["value"] for one in json.loads(manager.asked[-1].body)] == [0.5, {"default": 1}]


def test_csv_goes_to_standard_output_by_default(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "export", "-t", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "x,act,trialJobId,reward,loss"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_results_control_no_terminal_that_they_are_exported_to(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    make("abcd")
    odd = "\x9b2J\u202e"
    found = {
        "trials": [{**TRIAL, "parameters": {odd: odd}, "value": {"default": 1, odd: odd}}],
        "total": 1,
        "revision": 1,
    }
    manager.says("GET /trials", found)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["experiment", "export", "-t", form]) == 0
    assert not {*odd[::3]} & {*capsys.readouterr().out}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert run(["experiment", "export", "-t", form]) == 0
    assert {*odd[::3]} <= {*capsys.readouterr().out}


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
    manager.says("POST /sign-in-links", {"path": "/#key=once"}, 201)
    assert run(["webui", "url"]) == 0
    assert capsys.readouterr().out == f"{manager.url}/#key=once\n"


def test_top_shows_one_look_when_piped(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["top"]) == 0
    assert "4/30" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["ABCD", "DIGITS", "PORT", "http://127.0.0.1:PORT/"])
def test_an_experiment_that_is_named_in_another_way_is_answered_with_its_id(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    make("abcd")
    assert run(["experiment", "show", given.replace("PORT", manager.url.rpartition(":")[2])]) == 3
    assert "; did you mean abcd?" in capsys.readouterr().err


def test_an_export_into_a_file_of_another_kind_or_with_a_long_name_names_the_file_that_was_given(
    make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make("abcd")
    assert run(["experiment", "export", "-f", str(tmp_path / "results.xlsx")]) == 1
    assert "results.xlsx: only CSV and JSON can be written, no .xlsx" in capsys.readouterr().err
    assert run(["experiment", "export", "-f", str(tmp_path / ("x" * 300))]) == 1
    assert f"--filename {tmp_path / ('x' * 300)}: cannot be written: File name too long" in capsys.readouterr().err
    assert list(tmp_path.glob("*.xlsx")) == []


def test_a_file_that_is_no_search_space_is_named(
    make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make("abcd")
    (tmp_path / "program.yaml").write_text("just words\n")
    assert run(["update", "searchspace", "-f", str(tmp_path / "program.yaml")]) == 1
    assert "program.yaml: is not a search space: write an object of parameters" in capsys.readouterr().err


def test_the_search_space_of_a_whole_configuration_is_taken(make: Make, manager: StandIn, tmp_path: Path) -> None:
    make("abcd")
    (tmp_path / "config.yaml").write_text("trialCommand: x\nsearchSpace:\n  y: {_type: choice, _value: [1]}\n")
    manager.says("PATCH /experiment", PROFILE)
    assert run(["update", "searchspace", "-f", str(tmp_path / "config.yaml")]) == 0
    assert json.loads(manager.asked[-1].body) == {"searchSpace": {"y": {"_type": "choice", "_value": [1]}}}


def test_an_empty_id_names_no_experiment(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd", running=False)
    assert run(["experiment", "delete", "", "-y"]) == 3
    assert "There is no experiment ''" in capsys.readouterr().err
    assert [entry.id for entry in registry.entries()] == ["abcd"]


def test_an_export_into_the_present_folder_is_refused(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    assert run(["experiment", "export", "-f", "."]) == 1
    assert "--filename .: is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["5", "{}", "null"])
def test_what_is_no_list_of_results_is_not_imported(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    make("abcd")
    (tmp_path / "results.json").write_text(text)
    assert run(["experiment", "import", "-f", str(tmp_path / "results.json")]) == 1
    assert "results.json: is not a list of" in capsys.readouterr().err


def test_a_misspelt_tuner_is_answered_with_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["algo", "show", "TPEE"]) == 3
    assert "There is no tuner or assessor 'TPEE'; did you mean TPE?" in capsys.readouterr().err
