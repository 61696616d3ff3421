"""`nnictl drill`: which trials it interrupts when, what it reports, and what it refuses."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
from typing import Any

import pytest

from nnilite._cli import drill
from nnilite._cli.drill_report import study, study_changes, summed
from nnilite._cli.drill_starts import list_changes
from nnilite._cli.nnictl import run
from nnilite.errors import Conflict
from nnilite.records import DRILLED
from stand_in_manager import PROFILE, TRIAL, Make, StandIn


@pytest.mark.parametrize(
    ("text", "per_second"), [("0.2/min", 0.2 / 60), (" 3 / H", 3 / 3600), ("1/s", 1.0), (".5/d", 0.5 / 86400)]
)
def test_a_rate_is_a_number_and_a_time(text: str, per_second: float) -> None:
    assert drill.per_second(text) == pytest.approx(per_second)


@pytest.mark.parametrize("text", ["", "0.2", "0/min", "-1/min", "1/year", "nan/s", "1e400/s", "11/s", "1/min/min"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="rate"):
        drill.per_second(text)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["interrupt"], "--rate"),
        (["interrupt", "--rate", "often"], "'often' is not a rate; write a number and a time, such as 0.2/min or 3/h"),
        (["interrupt", "--rate", "1/min", "--for", "soon"], "such as"),
        ([], "needs one of interrupt, report"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["drill", *words])
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err


class Running:
    """A manager with trials that run, in a time that passes only by waiting."""

    def __init__(self, count: int = 3) -> None:
        self.now = 0.0
        self.known = [{"id": f"t{k}", "attempt": 0, "state": "RUNNING"} for k in range(count)]
        self.state = "RUNNING"
        self.config: dict[str, Any] = {}
        self.refused: set[str] = set()

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def profile(self) -> dict[str, Any]:
        return {"state": self.state, "config": self.config}

    def trials(self, states: list[str]) -> list[dict[str, Any]]:
        assert states == ["RUNNING"]
        return [dict(trial) for trial in self.known]

    def interrupt(self, trial: str) -> None:
        if trial in self.refused:
            raise Conflict("it has ended")
        next(one for one in self.known if one["id"] == trial)["attempt"] += 1

    def drill(self, rate: float, seed: int = 16) -> drill.Drill:
        manager: Any = self
        return drill.Drill(manager, rate, random.Random(seed), lambda: self.now, self.wait)


def test_as_many_are_interrupted_as_the_rate_says() -> None:
    manager = Running()
    struck = list(manager.drill(0.05).run(20_000.0))
    assert 850 < len(struck) < 1150
    assert {trial["id"] for trial in struck} == {"t0", "t1", "t2"}
    assert manager.now == pytest.approx(20_000.0)


def test_the_same_seed_draws_the_same() -> None:
    drawn = [[(one["id"], one["attempt"]) for one in Running().drill(0.1, seed=7).run(500.0)] for _ in range(2)]
    assert drawn[0]
    assert drawn[0] == drawn[1]


def test_a_drill_ends_with_its_experiment_and_leaves_alone_what_does_not_run() -> None:
    manager = Running(count=0)
    assert list(manager.drill(1.0).run(60.0)) == []
    manager = Running()
    manager.refused = {"t0", "t1", "t2"}
    assert list(manager.drill(1.0).run(60.0)) == []
    manager.state = "DONE"
    assert list(manager.drill(1.0).run(None)) == []


def test_a_drill_that_interrupts_nothing_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = Running(count=1)
    manager.refused = {"t0"}
    monkeypatch.setattr("nnilite._cli.drill.access.find", lambda options: argparse.Namespace(id="e"))
    monkeypatch.setattr("nnilite._cli.drill.access.running", lambda options: contextlib.nullcontext(manager))
    monkeypatch.setattr("nnilite._cli.drill._print_report", lambda options, struck: 0)
    options = argparse.Namespace(rate=1e6, seed=1, for_s=0.01, json=False)
    assert drill.interrupt_trials(options) == 0
    assert capsys.readouterr().err == "WARNING: Nothing was interrupted: it has ended\n"


def test_an_elastic_trial_loses_nodes_again_and_again_in_one_attempt() -> None:
    manager = Running(count=1)
    manager.config = {"distributed": {"nodes": {"min": 1, "max": 3}}}
    manager.interrupt = lambda trial: None  # type: ignore[method-assign]
    struck = [(one["id"], one["attempt"]) for one in manager.drill(0.1).run(100.0)]
    assert len(struck) > 3
    assert set(struck) == {("t0", 0)}


def rank(start: int, rank: int, began: float, ended: float | None, state: str = "CANCELED") -> dict[str, Any]:
    at = {"role": "rank", "rank": rank, "node": rank, "host": f"h{rank}"}
    return {**at, "start": start, "started": began, "ended": ended, "state": state}


def test_a_change_of_nodes_costs_the_work_since_the_last_result_and_the_time_until_the_next_start() -> None:
    attempt = {"number": 0, "started": 0.0, "ended": 100.0, "cost": 50.0, "service": "remote", "host": "h0"}
    known = {"id": "t", "state": "SUCCEEDED", "attempt": 0, "ended": 100.0, "attempts": [attempt]}
    roles = [rank(0, 0, 5.0, 30.0), rank(0, 1, 5.0, 29.0, "LOST"), rank(1, 0, 34.0, 60.0)]
    roles += [rank(2, 0, 61.0, None, "RUNNING"), rank(2, 1, 61.0, None, "RUNNING"), {"role": "rank", "start": "x"}]
    reports = [
        {"attempt": 0, "kind": "PERIODICAL", "time": float(time), "value": {"step": step}, "sequence": step}
        for step, time in enumerate((10, 20, 40, 58, 70))
    ]
    found = summed([study_changes(known, list_changes(known, roles, reports), reports)])
    shown = [(one["host"], one["nodes"], one["lostSeconds"], one["waitedSeconds"]) for one in found["interruptions"]]
    assert shown == [("h1", [2, 1], 10.0, 4.0), ("", [1, 2], 2.0, 1.0)]
    assert (found["lostCost"], found["waitedSeconds"]) == (6.0, 5.0)
    assert found["curves"][0]["outcome"] == "whole"


@pytest.mark.parametrize(
    "roles",
    [
        [{}],
        [rank(1, 0, 1.0, 2.0)],
        [rank(0, 1, 1.0, 2.0), rank(1, 1, math.inf, None)],
        [rank(0, 0, 10**400, 2.0), rank(1, 0, 1.0, 2.0)],
        [rank(0, 0, 1.0, -(10**400)), rank(1, 0, 10**400, 2.0)],
    ],
)
def test_records_of_ranks_that_say_nothing_of_use_cost_nothing(roles: list[dict[str, Any]]) -> None:
    attempt = {"number": 0, "started": 0.0, "ended": None, "service": "remote", "host": "h0"}
    changes = list_changes({"id": "t", "attempt": 0, "attempts": [attempt]}, roles, [])
    assert [one["lostSeconds"] for one in changes] in ([], [None])


def trial(*ends: float, cost: float = 100.0, state: str = "SUCCEEDED") -> dict[str, Any]:
    """A trial whose attempts end then, and begin 10 s after the one before."""
    begins = [0.0, *(end + 10.0 for end in ends[:-1])]
    attempts = [
        {"number": k, "started": begin, "ended": end, "cost": cost, "service": "remote", "host": "box"}
        for k, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
    return {"id": "t", "state": state, "ended": ends[-1], "attempt": len(ends) - 1, "attempts": attempts}


def reports(*steps: tuple[int, int, float], key: str = "step") -> list[dict[str, Any]]:
    """Results: the attempt, the step and the time of each. Before them each attempt has set an attribute."""
    count: dict[int, int] = {}
    found = []
    for attempt, step, moment in steps:
        number = count[attempt] = count.get(attempt, -1) + 1
        numbers = {"index": number + 1, "sequence": number}
        found.append({"attempt": attempt, **numbers, "kind": "PERIODICAL", "value": {key: step}, "time": moment})
    return found


def test_work_since_the_last_result_that_is_not_repeated_is_lost() -> None:
    found = study(trial(100.0, 200.0), [0], reports((0, 0, 30), (0, 1, 60), (0, 2, 90), (1, 2, 130), (1, 3, 160)))
    [lost] = found.interruptions
    assert (lost["lostSeconds"], lost["lostCost"], lost["waitedSeconds"], lost["atLeast"]) == (40.0, 40.0, 10.0, False)
    assert (found.curve["outcome"], found.curve["detail"]) == ("doubled", "more than once: steps 2")


def test_a_curve_that_goes_on_where_it_was_is_whole() -> None:
    found = study(trial(100.0, 200.0), [0], reports((0, 0, 30), (0, 1, 90), (1, 2, 130)))
    assert (found.curve["outcome"], found.interruptions[0]["lostSeconds"]) == ("whole", 10.0)


def test_a_gap_is_found_between_steps_and_in_what_was_delivered() -> None:
    found = study(trial(100.0, 200.0), [0], reports((0, 0, 30), (0, 5, 60), (1, 15, 130), (1, 20, 160)))
    assert (found.curve["outcome"], found.curve["missing"]) == ("gap", [10])
    hole = reports((0, 0, 30), (0, 1, 60), (1, 2, 130))
    hole[1]["sequence"] = 2
    found = study(trial(100.0, 200.0), [0], hole)
    assert (found.curve["outcome"], found.curve["detail"]) == ("gap", "reported and not delivered: 1")


@pytest.mark.parametrize(
    ("usual", "outcome", "lost"),
    [(4, "whole", 10.0), (3, "doubled", 40.0), (2, "doubled", 100.0), (5, "gap", 10.0), (None, "unknown", 10.0)],
)
def test_without_steps_the_count_of_other_trials_tells(usual: int | None, outcome: str, lost: float) -> None:
    told = reports((0, 0, 60), (0, 1, 90), (1, 2, 130), (1, 3, 160), key="default")
    found = study(trial(100.0, 200.0), [0], told, usual=usual)
    assert (found.curve["outcome"], found.interruptions[0]["lostSeconds"]) == (outcome, lost)
    assert found.interruptions[0]["atLeast"] is (usual is None)


def test_a_trial_that_goes_on_has_no_gap_yet_and_costs_at_least_so_much() -> None:
    running = {**trial(100.0, 200.0, state="RUNNING"), "ended": None}
    running["attempts"][1] |= {"started": None, "ended": None, "cost": None}
    found = study(running, [0], reports((0, 0, 30), (0, 1, 60)))
    [lost] = found.interruptions
    assert (lost["lostSeconds"], lost["waitedSeconds"], lost["atLeast"]) == (40.0, None, True)
    assert found.curve["outcome"] == "goes on"
    assert summed([found])["lostCost"] == 40.0


def test_a_drill_is_told_with_a_report(make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    manager.says("GET /experiment", {**PROFILE, "state": "DONE"})
    drilled = trial(100.0, 200.0)
    drilled["attempts"][0] |= {"message": DRILLED, "state": "LOST"}
    drilled["attempts"][1] |= {"message": "", "state": "SUCCEEDED"}
    manager.says("GET /trials", {"trials": [{**TRIAL, "id": "t", "attempt": 1}], "total": 1})
    manager.says("GET /trials/t", {**TRIAL, **drilled})
    told = reports((0, 0, 30), (0, 1, 60), (1, 1, 130))
    manager.says("GET /trials/t/metrics", {"metrics": told, "next": 3})
    assert run(["drill", "interrupt", "--rate", "1/s", "--json"]) == 0, "it has interrupted nothing"
    assert json.loads(capsys.readouterr().out)["interruptions"] == []
    assert run(["drill", "report", "--json"]) == 1, "a value came twice"
    found = json.loads(capsys.readouterr().out)
    assert (found["lostSeconds"], found["curves"][0]["outcome"]) == (70.0, "doubled")
    assert run(["drill", "report"]) == 1
    out = capsys.readouterr().out
    assert "1 interruption: 1m 10s of work was lost, which cost 70.00; trials waited 10.0s to continue." in out
