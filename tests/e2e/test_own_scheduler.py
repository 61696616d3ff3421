"""A scheduler of one's own behind `platform: batch`: the doctor finds no fault, and a drill reports what was lost.

The scheduler is this machine's shell: a job is a session of its own, whose number is the job's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nnilite._cli.nnictl import run

_STATES = "if ps -o stat= -p {} | grep -q '^[^Z]'; then echo {} RUN; else echo {} DONE; fi".replace("{}", "$id")
COMMANDS = {
    "submit": "setsid bash script >/dev/null 2>&1 & echo job $!",
    "status": f"for id in {{ids}}; do {_STATES}; done",
    "cancel": "kill {id}",
}
PATTERNS = {"jobId": r"^job (\d+)", "job": r"^(?P<id>\d+) (?P<state>\S+)$", "missing": "No such process"}
STEADY = """
import os, signal, sys, time
import nnilite
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
saved = nnilite.checkpoint_dir() / "step"
for step in range(int(saved.read_text()) if saved.exists() else 0, 30):
    nnilite.report_intermediate_result({"default": step, "step": step})
    with nnilite.checkpoint("step") as path:
        path.write_text(str(step + 1))
    while not ending and step == 9 and os.environ["NNILITE_ATTEMPT"] == "0":
        time.sleep(0.01)  # the first attempt does not end before the drill has found it
    if ending:
        sys.exit(143)
    time.sleep(0.1)
nnilite.report_final_result(30)
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> dict[str, Any]:
    """The section of a config."""
    states = {"running": "RUN", "ended": "DONE"}
    place = {"directory": str(tmp_path / "shared 'folder'"), "nniManagerIp": "127.0.0.1"}
    return {"platform": "batch", "commands": COMMANDS, "patterns": PATTERNS, "states": states, **place}


def test_the_doctor_runs_a_trial_there(
    scheduler: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{sys.executable} trial.py",
        "trialConcurrency": 1,
        "tuner": {"name": "Random"},
        "trainingService": scheduler,
    }
    (tmp_path / "trial.py").write_text("print(1)")
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    run(["doctor", str(path), "--json", "-p", "0"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    asked, tried = [one for one in findings if one["check"] == "platform batch"]
    assert asked["what"].startswith("its own check found nothing wrong"), asked
    assert tried["what"].startswith("a trial ran there and reported its result"), tried


def test_a_drill_there_loses_no_metric(
    scheduler: dict[str, Any], start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start(STEADY, trainingService=scheduler, trialConcurrency=1, maxTrialNumber=1, maxTrialRetries=0)
    running.wait_for(lambda: [trial["state"] for trial in running.trials()] == ["RUNNING"])
    assert run(["drill", "interrupt", running.entry.id, "--rate", "1/s", "--for", "8s", "--seed", "16", "--json"]) == 0
    struck = json.loads(capsys.readouterr().out)["interruptions"]
    running.wait("DONE")
    [trial] = running.trials()
    assert (trial["state"], trial["value"]) == ("SUCCEEDED", 30)
    assert 0 < len(struck) == trial["attempt"]
    found = running.client.metrics(trial["id"], kind="PERIODICAL")
    assert [one["value"]["step"] for one in found] == list(range(30))
