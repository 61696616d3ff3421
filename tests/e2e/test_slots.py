"""Experiments that share the slots of one machine, as a user sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.running import Start
from nnilite._cli.nnictl import run

WAITS = """
import pathlib, time, nnilite
p = nnilite.get_next_parameter()
nnilite.report_intermediate_result(0)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
nnilite.report_final_result(p["x"])
"""


def test_an_experiment_says_whom_it_waits_for_and_a_killed_manager_holds_nobody_up(
    start: Start, tmp_path: Path
) -> None:
    shared = {"platform": "local", "maxSlots": 1}
    low = start(WAITS, trainingService=shared, trialConcurrency=2, maxTrialNumber=2)
    low.wait_for(lambda: [trial["state"] for trial in low.trials()] == ["RUNNING", "WAITING"])
    high = start(WAITS, trainingService={**shared, "priority": 5}, trialConcurrency=1, maxTrialNumber=2)
    reason = f"waits for a slot of this machine: 1 of 1 (maxSlots) are taken, by {low.entry.id}"
    high.wait_for(lambda: [trial["reason"] for trial in high.trials()] == [reason])
    ahead = f"waits for experiment {high.entry.id}, whose priority 5 is higher"
    low.wait_for(lambda: low.trials()[1]["reason"] == ahead)
    assert {"reason": ahead, "count": 1} in low.client.profile()["waiting"]
    low.kill_manager()
    (tmp_path / "it's $HOME; a\nfolder" / "go").touch()
    assert high.wait("DONE")["counts"]["SUCCEEDED"] == 2
    low = low.resume()
    assert low.wait("DONE")["counts"]["SUCCEEDED"] == 2
    low.stop()


def test_an_experiment_whose_priority_is_raised_while_it_waits_comes_first_also_after_a_resume(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = {"platform": "local", "maxSlots": 1}
    first = start(WAITS, trainingService=shared, trialConcurrency=2, maxTrialNumber=2)
    first.wait_for(lambda: [trial["state"] for trial in first.trials()] == ["RUNNING", "WAITING"])
    second = start(WAITS, trainingService=shared, trialConcurrency=1, maxTrialNumber=1)
    behind = f"waits for experiment {first.entry.id}, which asked before"
    second.wait_for(lambda: [trial["reason"] for trial in second.trials()] == [behind])
    assert run(["update", "priority", second.entry.id, "-v", "5"]) == 0
    assert capsys.readouterr().out == "priority is now 5.\n"
    ahead = f"waits for experiment {second.entry.id}, whose priority 5 is higher"
    first.wait_for(lambda: first.trials()[1]["reason"] == ahead)
    second.kill_manager()
    second = second.resume()
    profile = second.client.profile()
    assert (profile["limits"]["priority"], profile["config"]["trainingService"]["priority"]) == (5, 5)
    second.wait_for(lambda: second.trials()[0]["reason"].startswith("waits for a slot of this machine: 1 of 1"))
    first.wait_for(lambda: first.trials()[1]["reason"].endswith("whose priority 5 is higher"))
    assert first.trials()[0]["state"] == "RUNNING"
    (tmp_path / "it's $HOME; a\nfolder" / "go").touch()
    for running, trials in ((second, 1), (first, 2)):
        assert running.wait("DONE")["counts"]["SUCCEEDED"] == trials
