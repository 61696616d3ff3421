"""`nnictl trial` and `log`: what they ask, what they print, and their exit codes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nnilite._cli.nnictl import run
from nnilite._cli.screen import clean
from stand_in_manager import PROFILE, TRIAL, Make, StandIn


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
    manager.says("GET /experiment", {**PROFILE, "objectives": {"acc": "maximize", "ms": "minimize"}})
    results = [{"acc": 0.5, "ms": 10}, {"acc": 0.9, "ms": 30}, {"acc": 0.4, "ms": 20}, {"acc": 0.95}]
    trials = [{**TRIAL, "id": f"t{k}", "value": value} for k, value in enumerate(results)]
    manager.says("GET /trials", {"trials": trials, "total": 4})
    assert run(["trial", "ls", "--front", "--json"]) == 0
    assert [trial["id"] for trial in json.loads(capsys.readouterr().out)] == ["t1", "t0"]


def test_trials_are_killed_by_id(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("DELETE /trials/trial1", {**TRIAL, "ended": None})
    manager.says("DELETE /trials/trial2", TRIAL)
    assert run(["trial", "kill", "-T", "trial1", "trial2"]) == 0
    assert run(["trial", "kill", "-T", "other"]) == 3
    assert capsys.readouterr().out == "Trial trial1 is being stopped.\nTrial trial2 has ended: SUCCEEDED.\n"


def test_a_trial_without_files_here_is_shown(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("GET /trials/trial1", {**TRIAL, "attempts": []})
    manager.says("GET /trials/trial1/metrics", {"metrics": [], "next": 0})
    assert run(["trial", "show", "-T", "trial1"]) == 0
    assert capsys.readouterr().out.endswith("Files\nNone yet.\n")


def test_the_checkpoints_of_a_trial_are_named_where_they_are_on_this_machine(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make("abcd") / "checkpoints" / "trial1"
    place.mkdir(parents=True)
    manager.says("GET /trials/trial1", {**TRIAL, "attempts": []})
    manager.says("GET /trials/trial1/metrics", {"metrics": [], "next": 0})
    run(["trial", "show", "-T", "trial1"])
    assert "checkpoints" not in capsys.readouterr().out
    (place / "model.pt").touch()
    run(["trial", "show", "-T", "trial1"])
    assert capsys.readouterr().out.endswith(f"\nIts checkpoints are in {clean(str(place))}.\n")


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
    assert capsys.readouterr().out == "Trial trial1 was asked to have 4 workers.\n"
    with pytest.raises(SystemExit):
        run(["trial", "scale", "trial1", "0"])


def test_failed_trials_are_run_again_by_state(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("POST /trials/rerun", {"trials": [TRIAL, TRIAL]})
    assert run(["trial", "rerun", "--status", "FAILED"]) == 0
    assert json.loads(manager.asked[-1].body) == {"state": "FAILED"}
    assert capsys.readouterr().out.startswith("2 trials run again")


def test_trials_that_have_not_ended_cannot_be_asked_to_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["trial", "rerun", "--status", "WAITING"])
    assert "is not one of SUCCEEDED, FAILED, USER_CANCELED" in capsys.readouterr().err


def test_the_parameters_of_a_trial_run_again_and_both_results_are_shown(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    again = {**TRIAL, "id": "trial2", "sequence": 1, "state": "EARLY_STOPPED", "value": None, "ended": 2.0}
    manager.says("GET /experiment", {"state": "RUNNING"})
    for trial, values in (("trial1", []), ("trial2", [(0, 0.1), (0, 0.25), (1, 0.9)])):
        metrics = [{"attempt": attempt, "value": value} for attempt, value in values]
        manager.says(f"GET /trials/{trial}/metrics", {"metrics": metrics, "next": 0})
    manager.says("GET /trials/trial1", TRIAL)
    manager.says("POST /trials", again, 201)
    manager.says("GET /trials/trial2", again)
    assert run(["trial", "again", "abcd", "trial1"]) == 0
    shown = capsys.readouterr().out
    assert "Trial trial2 (no. 1) has the parameters of trial1." in shown
    assert "0.25 (latest)" in shown


def test_own_parameters_are_added(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("POST /trials", {**TRIAL, "warning": "x is odd"}, 201)
    assert run(["trial", "add", "-p", '{"x": 1}']) == 0
    assert capsys.readouterr().err == "WARNING: x is odd\n"
    assert json.loads(manager.asked[-1].body) == {"parameters": {"x": 1}}
    assert run(["trial", "add", "-p", "{x: 1"]) == 1
    assert "this is not JSON" in capsys.readouterr().err


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
    listing = {"others": [{"path": "best", "kind": "link", "target": "a/b c.txt"}], "note": "Two are missing."}
    manager.says("POST /trials/trial1/files", {"files": [{"path": "a/b c.txt", "size": 2}], **listing})
    manager.says("GET /trials/trial1/files/a/b%20c.txt", b"hi")
    assert run(["trial", "download", "-T", "trial1", "-o", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here" / "a" / "b c.txt").read_bytes() == b"hi"
    told = capsys.readouterr().out
    assert "Left out, because they are links or special files: best -> a/b c.txt" in told
    assert "Two are missing." in told
    manager.says("POST /trials/trial1/files", {"files": [{"path": "../out", "size": 2}], **listing})
    assert run(["trial", "download", "-T", "trial1", "-o", str(tmp_path / "there")]) == 1
    assert not (tmp_path / "out").exists()


def test_a_download_into_a_folder_that_takes_no_files_names_it_and_the_option(
    make: Make, manager: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    manager.says("POST /trials/trial1/files", {"files": [{"path": "a", "size": 2}], "others": [], "note": ""})
    (tmp_path / "file").touch()
    assert run(["trial", "download", "-T", "trial1", "-o", str(tmp_path / "file" / "x")]) == 1
    assert f"--output {tmp_path / 'file' / 'x'}: cannot be written: Not a directory" in capsys.readouterr().err


def test_a_download_does_not_follow_a_link_with_the_trials_name(
    make: Make,
    manager: StandIn,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make("abcd")
    manager.says("POST /trials/trial1/files", {"files": [{"path": "a", "size": 2}], "others": [], "note": ""})
    manager.says("GET /trials/trial1/files/a", b"hi")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "trial1").symlink_to("elsewhere")
    monkeypatch.chdir(tmp_path)
    assert run(["trial", "download", "-T", "trial1"]) == 1
    assert "trial1 is a link here; name the folder with --output" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_files_whose_names_are_no_text_are_left_out_and_named(
    make: Make, manager: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    files = [{"path": "\udcff\udcfe", "size": 1}, {"path": "a.txt", "size": 2}]
    manager.says("POST /trials/trial1/files", {"files": files, "others": [], "note": ""})
    manager.says("GET /trials/trial1/files/a.txt", b"hi")
    assert run(["trial", "download", "-T", "trial1", "-o", str(tmp_path / "here")]) == 0
    assert r"Left out, because their names are not UTF-8: \udcff\udcfe" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("words", [["1"], ["#1"], ["-T", "1"], ["trial1"], ["abcd", "-T", "#1"]])
def test_a_trial_is_shown_by_its_number(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    make("abcd")
    manager.says("GET /trials", {"trials": [{**TRIAL, "sequence": 1}], "total": 2})
    manager.says("GET /trials/trial1", {**TRIAL, "attempts": []})
    manager.says("GET /trials/trial1/metrics", {"metrics": [], "next": 0})
    assert run(["trial", "show", *words]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[1] == "trial1"


def test_a_number_that_no_trial_has_is_named(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("GET /trials", {"trials": [TRIAL], "total": 1})
    assert run(["trial", "kill", "-T", "trial1", "7"]) == 3
    assert "There is no trial with the number 7." in capsys.readouterr().err
    assert not [one for one in manager.asked if one.method == "DELETE"]
    assert run(["trial", "show"]) == 1
    assert "say which trial, by its number or id" in capsys.readouterr().err


def test_commas_separate_tags_as_on_the_page(make: Make, manager: StandIn) -> None:
    make("abcd")
    remarks = {"trial": "trial1", "tags": ["old"], "note": "", "revision": 3}
    manager.says("GET /trials/trial1/remarks", remarks)
    manager.says("PUT /trials/trial1/remarks", remarks)
    assert run(["trial", "remark", "-T", "trial1", "--tag", "a, b", "--untag", "old,"]) == 0
    assert json.loads(manager.asked[-1].body)["tags"] == ["a", "b"]


def show_with_roles(make: Make, manager: StandIn, roles: object, state: str = "FAILED") -> int:
    make("abcd")
    attempt = {"number": 0, "state": state, "service": "local", "host": "h", "exitCode": 1, "message": ""}
    more = {"started": 1.0, "ended": 9.0, "image": "some@sha256:0123"}
    manager.says("GET /trials/trial1", {**TRIAL, "attempts": [{**attempt, **more}]})
    manager.says("GET /trials/trial1/metrics", {"metrics": [], "next": 0})
    files = [{"path": "0/roles.json", "size": 9, "modified": 1.0, "here": True}]
    manager.says("GET /trials/trial1/files", {"files": files, "others": [], "note": ""})
    manager.says("GET /trials/trial1/files/0/roles.json", json.dumps(roles).encode())
    return run(["trial", "show", "-T", "trial1"])


def test_the_image_that_an_attempt_ran_is_shown(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_with_roles(make, manager, []) == 0
    assert "some@sha256:0123" in capsys.readouterr().out


def test_the_ranks_of_a_distributed_trial_are_a_table(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {"role": "rank", "rank": 0, "host": "h1", "state": "CANCELED", "exitCode": -15, "started": 1, "ended": 6.5}
    failed = {**ended, "rank": 1, "host": "h2\x1b[31m", "state": "FAILED", "exitCode": 9, "reason": "exit code 9"}
    unknown = {"role": "rank", "rank": 2, "state": "RUNNING", "started": 1, "ended": None}
    assert show_with_roles(make, manager, [ended, failed, unknown, "x"]) == 0
    table = capsys.readouterr().out.partition("\nRanks\n")[2].partition("\nMetrics\n")[0].split("\n")
    assert [line.split() for line in table[1:4]] == [
        ["rank", "0", "h1", "CANCELED", "-15", "5.5s"],
        ["rank", "1", "h2\\x1b[31m", "FAILED", "9", "5.5s", "exit", "code", "9"],
        ["rank", "2", "LOST"],
    ]


def test_the_starts_of_an_elastic_trial_are_counted_in_the_table_of_its_ranks(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [{"role": "rank", "rank": 0, "host": "h1", "state": "CANCELED", "start": start} for start in (0, 1, "x")]
    assert show_with_roles(make, manager, ranks) == 0
    table = capsys.readouterr().out.partition("\nRanks\n")[2].partition("\nMetrics\n")[0].split("\n")
    assert table[0].split()[:3] == ["START", "ROLE", "RANK"]
    assert [line.split()[0] for line in table[1:4]] == ["1", "2", "rank"]


@pytest.mark.parametrize(
    "roles",
    [
        *({}, "x", None, [1], [[]]),
        [{"started": "x", "ended": 1, "rank": []}],
        [{"started": 1, "ended": math.inf}],
        [{"started": 1, "ended": 10**400, "start": 10**4299}, {"start": 10**4300 - 1}],
    ],
)
def test_records_of_roles_that_are_none_do_not_stop_a_trial_from_being_shown(
    make: Make, manager: StandIn, roles: object
) -> None:
    assert show_with_roles(make, manager, roles) == 0
