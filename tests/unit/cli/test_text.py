"""How the command line words things: pure text, without a manager."""

from __future__ import annotations

import json
import math

import pytest

from nnilite._cli import progress_text, result_export, screen, summary
from nnilite._cli.log import _counted, _first, _lines
from nnilite._cli.nnictl import print_error, run, warn


def _profile(**changes: object) -> dict[str, object]:
    limits = {"maxTrialNumber": 30, "maxExperimentDuration": None, "maxTrialDuration": None, "trialConcurrency": 2}
    profile = {"state": "RUNNING", "reason": "", "counts": {}, "limits": limits, "best": None, "duration": 0.0}
    return {**profile, "waiting": [], "hosts": [], **changes}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"lr": 0.123456789, "act": "relu"}, "lr=0.123457 act=relu"),
        ({"layer": {"_name": "conv", "size": 3}}, "layer={_name=conv size=3}"),
        ({"sizes": [1, 2], "on": True, "none": None}, "sizes=[1, 2] on=true none="),
        (3, "3"),
    ],
)
def test_parameters_fit_on_one_line(value: object, text: str) -> None:
    assert screen.parameters(value) == text


@pytest.mark.parametrize(("error", "last"), [("Odd: no, ", "Odd: no, "), ("Odd: no", "package.Odd: no")])
def test_an_error_with_its_traceback_is_said_once(error: str, last: str) -> None:
    assert screen.brief(f"the tuner failed: {error}\nTraceback ...\n{last}\n") == f"the tuner failed: {error.strip()}"


def test_control_characters_of_others_never_reach_the_terminal() -> None:
    assert screen.clean("a\033[2Jb\nc\r") == r"a\x1b[2Jb\nc\r"
    assert screen.parameters({"k\n": "v\033"}) == r"k\n=v\x1b"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (None, ""),
        ({"default": 1 / 3, "acc": 2}, "default=0.333333, acc=2"),
        (math.nan, "nan"),
        ("x", "x"),
        ({"default": 1, "log": "x" * 10**6}, f"default=1, log={'x' * 85}..."),
        ({"default": 1, "\033": 2}, r"default=1, \x1b=2"),
    ],
)
def test_metrics_of_every_kind_can_be_shown(value: object, text: str) -> None:
    assert screen.metric(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (59.96, "1m 00s"), (61, "1m 01s"), (3599.7, "1h 00m"), (90061, "1d 1h"), (-1, "0.0s")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert screen.span(seconds) == text


def test_a_piped_table_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_table(("ID", "STATE"), [("abcdef", "RUNNING"), ("b", None)], "Nothing.")
    assert capsys.readouterr().out == "ID      STATE\nabcdef  RUNNING\nb\n"


def test_an_empty_table_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_table(("ID",), [], "There is nothing.")
    assert capsys.readouterr().out == "There is nothing.\n"


def test_json_output_is_strict_even_for_nan(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_json({"value": math.nan, "other": [-math.inf]})
    assert '"NaN"' in (out := capsys.readouterr().out)
    assert '"-Infinity"' in out


def test_notices_stand_before_the_best_trial(capsys: pytest.CaptureFixture[str]) -> None:
    summary.show_notices(_profile(notices=["5 of 8 trials\033 have no number"]))
    assert capsys.readouterr().out == "Note: 5 of 8 trials\\x1b have no number.\n"


def test_nobody_there_to_ask_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert screen.confirm("Delete it?") is False


def test_an_error_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("It cannot be.")
    assert capsys.readouterr().err == "ERROR: It cannot be.\n"


@pytest.mark.parametrize("say", [print_error, warn])
def test_no_error_makes_a_terminal_do_anything(say, capsys: pytest.CaptureFixture[str]) -> None:
    say("x.yaml:1: \x1b]0;title\x07\x9b6n\u202e: there is no such field\nand more")
    told = capsys.readouterr().err
    assert told.endswith(r": x.yaml:1: \x1b]0;title\x07\x9b6n\u202e: there is no such field" + "\nand more\n")


def test_no_mistake_in_a_command_makes_a_terminal_do_anything(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["no\x1b]0;title\x07such"])
    assert r"no\x1b]0;title\x07such" in capsys.readouterr().err


def test_the_rate_is_that_of_the_last_two_minutes() -> None:
    course = progress_text.ProgressHistory()
    for second in range(0, 600, 10):
        course._note_ended(float(second), second // 10 if second < 300 else 30 + (second - 300))
    assert course.per_s == pytest.approx(1.0, rel=0.1)


def test_the_rate_is_unknown_until_a_trial_has_ended() -> None:
    course = progress_text.ProgressHistory()
    course._note_ended(0.0, 0)
    course._note_ended(9.0, 0)
    assert course.per_s is None
    course._note_ended(10.0, 1)
    assert course.per_s == pytest.approx(0.1)


def test_a_trial_that_takes_long_lowers_the_rate_while_it_runs() -> None:
    course = progress_text.ProgressHistory()
    for now, ended in ((0.0, 0), (1.0, 10), (2.0, 10), (100.0, 10)):
        course._note_ended(now, ended)
    assert course.per_s == pytest.approx(0.1)


@pytest.mark.parametrize(("per_s", "text"), [(2.0, "2 trials/s"), (0.5, "30 trials/min"), (0.001, "3.6 trials/h")])
def test_the_rate_has_the_unit_that_reads_best(per_s: float, text: str) -> None:
    course = progress_text.ProgressHistory()
    course._note_ended(0.0, 0)
    course._note_ended(1000.0 / per_s, 1000)
    course._note_ended(1000.0 / per_s, 1000)
    long = progress_text.ProgressHistory()
    long._seen.extend(((0.0, 0), (1 / per_s, 1)))
    assert progress_text.rate(long) == text


def test_the_time_left_is_that_of_the_nearest_limit() -> None:
    course = progress_text.ProgressHistory()
    course._note_ended(0.0, 0)
    course._note_ended(10.0, 10)
    limits = {"maxTrialNumber": 30, "maxExperimentDuration": 100}
    profile = _profile(counts={"SUCCEEDED": 10, "RUNNING": 2}, limits=limits, duration=95.0)
    assert progress_text.left_s(profile, course) == pytest.approx(5.0)
    assert progress_text.left_s(_profile(counts={"FAILED": 10}), course) == pytest.approx(20.0)
    assert progress_text.left_s({**profile, "state": "DONE"}, course) is None


def test_the_progress_line_has_what_a_person_wants_to_know() -> None:
    best = {"id": "abc", "value": {"default": 0.9}, "parameters": {}, "sequence": 1}
    counts = {"SUCCEEDED": 10, "FAILED": 2, "RUNNING": 1, "WAITING": 1}
    waiting = [{"reason": "no GPU is free", "count": 1}]
    profile = _profile(counts=counts, best=best, waiting=waiting)
    course = progress_text.ProgressHistory()
    course.record(0.0, {**profile, "counts": {}})
    course.record(6.0, profile)
    line = progress_text.line(profile, course)
    assert line == (
        "12/30 trials done, 2 failed, 1 running, best default=0.9 (trial abc), 2 trials/s, 9.0s left, "
        "1 trial waits: no GPU is free"
    )


def test_a_trial_that_is_only_being_started_is_not_said_to_wait() -> None:
    course = progress_text.ProgressHistory()
    for now in (0.0, 1.0, 2.0):
        profile = _profile(waiting=[{"reason": f"reason {now}", "count": 1}, {"reason": "no GPU is free", "count": 2}])
        course.record(now * 2, profile)
    assert course.lasting(profile) == ["2 trials wait: no GPU is free"]


def test_a_service_that_fails_for_long_is_on_the_progress_line() -> None:
    course = progress_text.ProgressHistory()
    profile = _profile(services=[{"name": "slurm", "reason": "no answer from login1"}], waiting=[])
    course.record(0.0, profile)
    assert course.lasting(profile) == []
    course.record(progress_text.PATIENCE_S, profile)
    assert course.lasting(profile) == ["the training service slurm fails: no answer from login1"]


def test_what_pauses_an_experiment_is_on_its_progress_line() -> None:
    course = progress_text.ProgressHistory()
    course.record(0.0, _profile())
    assert progress_text.line(_profile(reason="paused: the disk is full"), course).endswith(
        ", paused: the disk is full"
    )
    assert "reached" not in progress_text.line(_profile(state="DONE", reason="maxTrialNumber (2) is reached"), course)


def test_one_of_a_kind_is_not_several() -> None:
    assert [screen.amount(count, "trials") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]


def test_trials_that_run_after_the_time_is_over_are_on_its_progress_line() -> None:
    limits = {"maxTrialNumber": None, "maxExperimentDuration": 60}
    over = {"state": "NO_MORE_TRIAL", "reason": "maxExperimentDuration (60 s) is over", "duration": 99.0}
    profile = _profile(**over, limits=limits, counts={"SUCCEEDED": 3, "RUNNING": 4})
    assert progress_text.line(profile, progress_text.ProgressHistory()) == (
        "3 trials done, 4 running, "
        "maxExperimentDuration (60 s) is over, and 4 trials have not ended yet; `nnictl stop` ends them now"
    )


def test_the_last_trials_of_an_ordinary_experiment_need_no_reason() -> None:
    profile = _profile(state="NO_MORE_TRIAL", reason="maxTrialNumber (30) is reached", counts={"RUNNING": 1})
    assert progress_text.line(profile, progress_text.ProgressHistory()) == "0/30 trials done, 1 running"


def test_best_parameters_are_shown_with_all_their_digits() -> None:
    assert summary.list_parameters({"lr": 0.12345678901234567, "act": "relu", "on": True}) == [
        "lr: 0.12345678901234566",
        "act: relu",
        "on: true",
    ]


def test_the_errors_of_a_failed_experiment_are_in_its_status() -> None:
    status = summary.status(_profile(state="ERROR", reason="The tuner raised."))
    assert (status["status"], status["errors"]) == ("ERROR", ["The tuner raised."])


def test_csv_columns_are_parameters_then_the_trial_then_its_metrics() -> None:
    first = {
        "parameter": {"b": 1, "net": {"_name": "conv", "k": 3}},
        "value": {"default": 1, "loss": 2},
        "trialJobId": "t",
    }
    second = {"parameter": {"a": 1}, "value": 0.5, "trialJobId": "u"}
    assert result_export.columns_of([first, second]) == ["b", "net._name", "net.k", "a", "trialJobId", "reward", "loss"]


def test_no_text_of_a_trial_is_a_formula_in_a_spreadsheet() -> None:
    row = {
        "parameter": {"x": -1},
        "value": {"default": 2, "note": "=HYPERLINK(1)"},
        "trialJobId": "t",
        "note": "@SUM(1)",
    }
    found = result_export.cells(row, ["note"])
    assert (found["x"], found["metric.note"], found["note"]) == (-1, "'=HYPERLINK(1)", "'@SUM(1)")


def test_a_parameter_and_a_metric_of_one_name_do_not_overwrite_each_other() -> None:
    row = {"parameter": {"size": 1, "reward": 7}, "value": {"default": 2, "size": 3}, "trialJobId": "t"}
    columns = result_export.columns_of([row])
    assert columns == ["size", "parameter.reward", "trialJobId", "reward", "metric.size"]
    assert [result_export.cells(row)[column] for column in columns] == [1, 7, "t", 2, 3]


def test_lines_are_cut_right_wherever_the_pieces_end() -> None:
    text = b"one\ntwo\n\nfour"
    lines = list(_lines(lambda offset: text[offset : offset + 3]))
    assert lines == [b"one\n", b"two\n", b"\n", b"four"]
    assert list(_first(iter(lines), 2)) == lines[:2]
    assert [offset for offset, _ in _counted(iter(lines))] == [4, 8, 9, 13]


def test_hosts_of_a_pool_say_how_busy_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"name": "box", "state": "up", "running": 1, "reason": "", "details": {}}
    pooled = {**plain, "name": "worker", "details": {"busy": 2, "processors": 4, "queue": 7}}
    summary.show_hosts({"hosts": [plain, pooled]})
    assert "worker  up     1       2 of 4 processors busy, 7 in the queue" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "lines"), [(2, 8), (screen.LONG_LIST + 1, screen.LONG_LIST + 3)])
def test_a_long_list_has_an_item_on_each_line_of_its_json(
    capsys: pytest.CaptureFixture[str], count: int, lines: int
) -> None:
    screen.show_json([{"value": math.nan}] * count)
    text = capsys.readouterr().out
    assert json.loads(text) == [{"value": "NaN"}] * count
    assert len(text.splitlines()) == lines
