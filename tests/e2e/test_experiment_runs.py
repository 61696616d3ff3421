"""The main job on this machine: what is asked for runs, what is recorded is what ran, and everything ends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from nnilite.errors import Conflict, NniliteError

NESTED = {
    "x": {"_type": "uniform", "_value": [0, 1]},
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "Empty"},
            {"_name": "Conv", "size": {"_type": "choice", "_value": [2, 3, 5]}},
            {
                "_name": "Deep",
                "inner": {
                    "_type": "choice",
                    "_value": [{"_name": "A", "q": {"_type": "quniform", "_value": [0, 9, 1]}}],
                },
            },
        ],
    },
}
ECHO_ALL = """
import nnilite
p = nnilite.get_next_parameter()
nnilite.report_final_result({"default": p["x"], "echo": p, "id": nnilite.get_trial_id()})
"""
SLOW = "import time, nnilite\nnnilite.report_intermediate_result(1.0)\ntime.sleep(60)\n"


def test_recorded_is_what_ran_for_100_trials_side_by_side(start: Any) -> None:
    running = start(ECHO_ALL, searchSpace=NESTED, trialConcurrency=8, maxTrialNumber=100, tuner={"name": "TPE"})
    running.wait("DONE", timeout_s=110)
    trials = running.trials()
    assert [t["sequence"] for t in trials] == list(range(100))
    assert [t for t in trials if t["value"]["echo"] != t["parameters"] or t["value"]["id"] != t["id"]] == []
    with urllib.request.urlopen(f"{running.entry.url}/api/v1/export", timeout=60) as answer:
        exported = json.load(answer)
    rows = exported["trials"] if isinstance(exported, dict) else exported
    assert len(rows) == 100
    assert [r for r in rows if r["value"]["echo"] != (r.get("parameters") or r.get("parameter"))] == []


def test_first_trials_run_first_and_all_constraints_hold_after_a_crash_too(start: Any) -> None:
    space = {name: {"_type": "uniform", "_value": [0, 1]} for name in ("x", "y")}
    first = [{"x": 0.1, "y": 0.9}, {"x": 0.2, "y": 0.4}, {"x": 0.3, "y": 0.6}]
    found = {"searchSpace": space, "firstTrials": first, "constraints": ["x < y"]}
    found["resultConstraints"] = ["default <= 0.25"]  # the objective itself, which is maximised
    running = start(ECHO_ALL, trialConcurrency=2, maxTrialNumber=12, tuner={"name": "Auto"}, **found)
    running.wait_for(lambda: len(running.trials()) >= 3)
    running.kill_manager()
    again = running.resume()
    profile = again.wait("DONE")
    assert profile["tunerChoice"].startswith("GP proposes parameters: a Gaussian process")
    trials = again.trials()
    broken = [t["id"] for t in trials if t["violates"].startswith("default <= 0.25 (default 0.")]
    assert broken == [t["id"] for t in trials if t["parameters"]["x"] > 0.25] != []
    assert profile["best"]["value"]["default"] == max(x for t in trials if (x := t["parameters"]["x"]) <= 0.25)
    again.stop()
    assert [t["parameters"] for t in trials[:3]] == first
    assert [t["source"] for t in trials] == ["customized"] * 3 + ["algorithm"] * 9
    assert [t["parameters"] for t in trials if t["parameters"]["x"] >= t["parameters"]["y"]] == []
    assert [t["value"]["echo"] for t in trials] == [t["parameters"] for t in trials]


def test_an_experiment_ends_with_the_best_trial(start: Any) -> None:
    running = start()
    profile = running.wait("DONE")
    values = {t["id"]: t["value"] for t in running.trials()}
    assert profile["counts"]["SUCCEEDED"] == 4
    assert profile["best"]["value"] == max(values.values())
    assert "maxTrialNumber (4)" in profile["reason"]


def test_raising_the_number_of_trials_after_the_end_goes_on(start: Any) -> None:
    running = start(maxTrialNumber=2)
    running.wait("DONE")
    running.client.add_trial({"x": 0.5})
    running.wait_for(lambda: running.client.profile()["counts"].get("SUCCEEDED") == 3)
    assert "maxTrialNumber (3) is reached" in running.wait("DONE")["reason"]
    running.client.update(maxTrialNumber=5)
    running.wait_for(lambda: running.client.profile()["counts"].get("SUCCEEDED") == 5)
    running.wait("DONE")
    assert [t["source"] for t in running.trials()] == [*["algorithm"] * 2, "customized", *["algorithm"] * 2]
    assert [t["sequence"] for t in running.trials()] == [0, 1, 2, 3, 4]


def test_an_exhausted_search_space_ends_the_experiment(start: Any) -> None:
    space = {"x": {"_type": "choice", "_value": [1, 2, 3]}}
    running = start(searchSpace=space, maxTrialNumber=None, tuner={"name": "GridSearch"})
    profile = running.wait("DONE")
    assert "no more parameters" in profile["reason"]
    assert sorted(t["parameters"]["x"] for t in running.trials()) == [1, 2, 3]


def test_a_tuner_that_raises_ends_the_experiment_with_its_traceback(start: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from nnilite import Tuner\nclass Mine(Tuner):\n"
        "    def update_search_space(self, space): pass\n"
        "    def generate_parameters(self, parameter_id, **kwargs):\n"
        "        if parameter_id > 1: raise ZeroDivisionError('the user wrote this')\n        return {'x': 0.5}\n"
        "    def receive_trial_result(self, *args, **kwargs): pass\n"
    )
    running = start(tuner={"className": "mine.Mine", "codeDirectory": str(tmp_path)})
    profile = running.wait("ERROR")
    assert "the user wrote this" in profile["reason"]
    assert "mine.py" in profile["reason"]
    assert all(t["state"] in ("SUCCEEDED", "SYS_CANCELED") for t in running.trials())


def test_a_trial_that_runs_too_long_is_cancelled_by_the_system(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1, maxTrialDuration=1)
    running.wait("DONE")
    (trial,) = running.trials()
    assert trial["state"] == "SYS_CANCELED"
    assert "maxTrialDuration" in trial["reason"]


def test_a_killed_trial_is_user_canceled_and_its_process_is_gone(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    running.wait_for(lambda: running.trials(states=["RUNNING"]))
    trial = running.trials()[0]["id"]
    running.client.cancel(trial)
    running.wait("DONE", timeout_s=60)
    assert running.client.trial(trial)["state"] == "USER_CANCELED"


def test_concurrency_can_be_raised_while_it_runs(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=5, trialConcurrency=1)
    running.wait_for(lambda: len(running.trials(states=["RUNNING"])) == 1)
    running.client.update(trialConcurrency=3)
    running.wait_for(lambda: len(running.trials(states=["RUNNING"])) == 3)


def test_an_experiment_over_its_duration_ends(start: Any) -> None:
    running = start(
        "import time; time.sleep(0.3)\n" + "import nnilite; nnilite.report_final_result(1)\n",
        maxTrialNumber=None,
        maxExperimentDuration=2,
    )
    profile = running.wait("DONE")
    assert "maxExperimentDuration" in profile["reason"]


def test_a_customised_trial_runs_with_its_parameters(start: Any) -> None:
    running = start(maxTrialNumber=6)
    added = running.client.add_trial({"x": 0.123})
    running.wait("DONE")
    trial = running.client.trial(added["id"])
    assert (trial["source"], trial["value"]) == ("customized", 0.123)


def test_poor_trials_are_stopped_early(start: Any) -> None:
    code = (
        "import nnilite, time\np = nnilite.get_next_parameter()\ngood = nnilite.get_sequence_id() < 3\n"
        "for i in range(40):\n    nnilite.report_intermediate_result(1.0 if good else 0.0)\n"
        "    if not good: time.sleep(0.2)\n"
        "nnilite.report_final_result(1.0 if good else 0.0)\n"
    )
    assessor = {"name": "Medianstop", "classArgs": {"optimize_mode": "maximize"}}
    running = start(code, assessor=assessor, trialConcurrency=1, maxTrialNumber=4)
    running.wait("DONE")
    assert [t["state"] for t in running.trials()] == ["SUCCEEDED"] * 3 + ["EARLY_STOPPED"]


def test_a_failing_trial_says_why_and_the_others_go_on(start: Any) -> None:
    code = "import nnilite\nif nnilite.get_sequence_id() == 1: raise ValueError('a bad batch')\n"
    code += "nnilite.report_final_result(1)\n"
    running = start(code)
    profile = running.wait("DONE")
    assert profile["counts"] == {**profile["counts"], "SUCCEEDED": 3, "FAILED": 1}
    assert "ValueError: a bad batch" in running.trials(states=["FAILED"])[0]["reason"]


def test_a_command_that_does_not_exist_stops_the_experiment_early_and_says_so(start: Any) -> None:
    running = start(trialCommand="no-such-program --train", maxTrialNumber=100)
    profile = running.wait("ERROR")
    assert "no-such-program" in profile["reason"]
    assert profile["counts"]["FAILED"] < 10


def test_a_trial_that_never_reports_is_shown_as_such(start: Any) -> None:
    running = start("pass\n", maxTrialNumber=1)
    running.wait("DONE")
    (trial,) = running.trials()
    assert trial["state"] == "SUCCEEDED"
    assert trial["value"] is None
    assert "reported no final result" in trial["reason"]


def test_a_trial_whose_reports_are_no_reports_says_so_next_to_its_missing_result(start: Any) -> None:
    running = start("import os; open(os.environ['NNILITE_METRICS'], 'w').write('accuracy=1\\n')\n", maxTrialNumber=1)
    running.wait("DONE")
    (trial,) = running.trials()
    assert "reported no final result" in trial["reason"]
    assert "the first is 'accuracy=1'" in trial["reason"]


def test_a_metric_that_is_no_number_is_kept_and_said(start: Any) -> None:
    running = start("import nnilite; nnilite.report_final_result('very good')\n", maxTrialNumber=1)
    running.wait("DONE")
    (trial,) = running.trials()
    assert trial["value"] == "very good"
    assert "is not a number" in trial["reason"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"tuner": {"name": "TPEE"}}, "did you mean 'TPE'"),
        ({"trialConcurency": 2}, "did you mean trialConcurrency"),
        ({"trialCodeDirectory": "/no/such/folder"}, "/no/such/folder"),
        ({"searchSpace": {"x": {"_type": "loguniform", "_value": [0, 1]}}}, "x"),
        ({"maxExperimentDuration": "10 parsecs"}, "maxExperimentDuration"),
        ({"tuner": {"name": "Batch"}}, "choice"),
        ({"tuner": {"name": "TPE", "classArgs": {"colour": 1}}}, "colour"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    start: Any, config: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(NniliteError, match=sentence):
        start(**config)
    assert not list((tmp_path / "home").glob("[a-z]*"))


def test_a_taken_port_is_said_with_the_way_out(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    with pytest.raises(NniliteError, match=f"port {running.entry.port} .*taken.*--port"):
        start(port=running.entry.port)


def test_a_second_manager_of_the_same_experiment_is_refused(start: Any) -> None:
    running = start(SLOW, maxTrialNumber=1)
    with pytest.raises((Conflict, NniliteError), match="has a manager already"):
        running.resume()


@pytest.mark.parametrize("what", ["keeper.pyz", "code/" + "0" * 64])
def test_a_trials_token_opens_its_downloads_and_nobody_elses(start: Any, what: str) -> None:
    running = start(SLOW, maxTrialNumber=1)
    running.wait_for(lambda: running.trials(states=["RUNNING"]))
    job = f"nni-{running.entry.id}-{running.trials()[0]['id']}-0"
    spec = json.loads(next(running.directory.glob("trials/*/0/spec.json")).read_text())
    for token, code in (("wrong", 401), (spec["token"], 200 if what == "keeper.pyz" else 404)):
        headers = {"Authorization": f"Bearer {token}", "X-Nnilite-Job": job}
        request = urllib.request.Request(f"{running.entry.url}/api/v1/{what}", headers=headers)
        assert _status(request) == code


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
