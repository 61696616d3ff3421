"""Whom the trials of this machine step back behind, and where a user learns that they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.running import SPACE, Running, Start
from nnictl_runs import nnictl
from nnilite._cli.nnictl import run
from nnilite._experiments.documents import read_document, write_json
from schedulers import AUTOGROUP, first_of_this_user

NOTE = "trials give way to other programs (niceness 3)"
BACK = {"platform": "local", "niceness": 3}
TELL = "nice >> told; cat /proc/self/autogroup >> told || true"


def test_by_default_a_trial_shares_equally_and_its_manager_answers_first(start: Start) -> None:
    running: Running = start(trialCommand=f"{TELL}; sleep 60", maxTrialNumber=1)
    told = Path(running.client.profile()["config"]["trialCodeDirectory"]) / "told"
    running.wait_for(lambda: told.exists() and len(told.read_text().splitlines()) == 1 + AUTOGROUP.exists())
    assert {line.split()[-1] for line in told.read_text().splitlines()[1:]} <= {"0"}
    if AUTOGROUP.exists():
        assert Path(f"/proc/{running.entry.pid}/autogroup").read_text().split()[-1] == first_of_this_user()


def test_it_is_said_wherever_the_state_is_shown_that_trials_step_back(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    running: Running = start(trialCommand="sleep 60", trainingService=BACK)
    for words in (["experiment", "status"], ["experiment", "show"], ["top"]):
        assert run(words) == 0
        assert NOTE in capsys.readouterr().out, words
    for words in (["experiment", "status", "--json"], ["top", "--json"]):
        assert run(words) == 0
        assert NOTE in json.dumps(json.loads(capsys.readouterr().out)), words
    assert NOTE in running.client.profile()["hosts"][0]["details"]["note"]


def test_a_dry_run_says_so_before_anything_starts(tmp_path: Path) -> None:
    config = {"searchSpace": SPACE, "trialCommand": "true", "trialConcurrency": 1, "maxTrialNumber": 1}
    path = tmp_path / "config.json"
    write_json(path, {**config, "tuner": {"name": "Random"}, "trainingService": BACK})
    done = nnictl("create", "--config", str(path), "--dry-run")
    assert (done.returncode, NOTE in done.stderr) == (0, True)


@pytest.mark.xdist_group("short tests of the page")
def test_the_page_says_so_too(start: Start, open_page: Any) -> None:
    running: Running = start(trialCommand="sleep 60", trainingService=BACK)
    page = open_page(f"{running.entry.url}/")
    page.get_by_role("region", name="Services and hosts").get_by_text(NOTE).wait_for()


@pytest.mark.parametrize(("stored", "later"), [("by a version that set it for all", 0), ("by the user", 10)])
def test_a_resumed_experiment_steps_back_only_if_its_user_wants_that(start: Start, stored: str, later: int) -> None:
    running: Running = start(trialCommand="true", trainingService={**BACK, "niceness": 10})
    running.wait("DONE")
    running.stop()
    path = running.directory / "config.json"
    fields = read_document(path, "").fields
    if later == 0:
        del fields["defaults"]
    write_json(path, fields)
    again = running.resume()
    assert again.client.profile()["config"]["trainingService"]["niceness"] == later
    again.stop()
