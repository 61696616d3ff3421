"""What NNI's integration runner does with configs of version 2: its commands, its addresses, its checks.

It is not in NNI's package. It launches by `nnictl create --debug`, asks the manager on its port as any program does,
without a token, and reads metrics that are JSON within JSON.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.running import wait_for
from nnilite._experiments import registry
from nnilite._running import managers
from nnilite.testing.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
NNICTL = str(Path(sys.executable).with_name("nnictl"))
FLOATS = """
import nni
nni.get_next_parameter()
for value in (0.1, 0.2, 0.3):
    nni.report_intermediate_result(value)
nni.report_final_result(1.0)
"""
DICTS = """
import nni
nni.get_next_parameter()
for value in (0.1, 0.2):
    nni.report_intermediate_result({"default": value, "other": 1})
nni.report_final_result({"default": 1.0, "other": 2})
"""
FAILS = "raise SystemExit(2)"
NAIVE = """
from nni.tuner import Tuner
class Naive(Tuner):
    def __init__(self, optimize_mode): self.count = 0
    def update_search_space(self, search_space): pass
    def generate_parameters(self, parameter_id, **kwargs):
        self.count += 1
        return {"x": self.count}
    def receive_trial_result(self, parameter_id, parameters, value, **kwargs): pass
"""
SPACE = {"x": {"_type": "uniform", "_value": [0.1, 1.0]}}


class Case:
    """One case of the runner: a folder with config and trial, and the manager on its port."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    def write(self, code: str, **more: Any) -> Path:
        (self.folder / "trial.py").write_text(code)
        config: dict[str, Any] = {
            "experimentName": "default_test",
            "searchSpace": SPACE,
            "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
            "trialConcurrency": 2,
            "maxTrialNumber": 2,
            "maxExperimentDuration": "5m",
            "tuner": {"name": "Random"},
            "assessor": {"name": "Medianstop", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "local", "useActiveGpu": False},
        }
        path = self.folder / "config.yml.tmp"
        path.write_text(yaml.dump({**config, **more}, default_flow_style=False))
        return path

    def nnictl(self, *words: str) -> str:
        command = [NNICTL, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def launch(self, config: Path) -> str:
        """Return the id of the experiment, as the manager tells it."""
        self.nnictl("create", "--config", str(config), "--debug", "--port", str(self.port))
        return str(self.get("experiment")["id"])

    def get(self, path: str) -> Any:
        address = f"http://localhost:{self.port}/api/v1/nni/{path}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)

    def wait(self) -> list[str]:
        """Wait as the runner does, for DONE, ERROR or a failed trial, and return the states of the trials."""

        def over() -> bool:
            failed = [one for one in self.get("trial-jobs") if one["status"] == "FAILED"]
            return self.get("check-status")["status"] in ("DONE", "ERROR") or bool(failed)

        wait_for(over, 120.0)
        return [one["status"] for one in self.get("trial-jobs")]

    def metrics(self) -> dict[str, dict[str, list[Any]]]:
        """Return the values by trial and type."""
        found: dict[str, dict[str, list[Any]]] = {}
        for one in self.get("metric-data"):
            value = json.loads(json.loads(one["data"]))
            found.setdefault(one["trialJobId"], {}).setdefault(one["type"], []).append(value)
        return found


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    yield Case(tmp_path, free_port())
    for entry in registry.entries():
        if entry.alive:
            managers.stop(entry)


@pytest.mark.parametrize(
    ("code", "between", "final"),
    [
        (FLOATS, [0.1, 0.2, 0.3], 1.0),
        (DICTS, [{"default": 0.1, "other": 1}, {"default": 0.2, "other": 1}], {"default": 1.0, "other": 2}),
    ],
    ids=["floats", "dicts"],
)
def test_metrics_and_exports(case: Case, code: str, between: list[Any], final: Any) -> None:
    experiment = case.launch(case.write(code))
    assert case.wait() == ["SUCCEEDED"] * 2
    assert list(case.metrics().values()) == [{"PERIODICAL": between, "FINAL": [final]}] * 2
    for kind in ("csv", "json"):
        case.nnictl("experiment", "export", experiment, "-t", kind, "-f", f"report.{kind}")
    assert len((case.folder / "report.csv").read_text().splitlines()) == 3
    assert len(json.loads((case.folder / "report.json").read_text())) == 2


def test_imported_results_are_told_as_they_were_in_the_file(case: Case) -> None:
    experiment = case.launch(case.write(FLOATS))
    data = [{"parameter": {"x": 0.5}, "value": 0.25}, {"parameter": {"x": 0.75}, "value": 0.5}]
    (case.folder / "data.json").write_text(json.dumps(data, indent=4))
    case.nnictl("experiment", "import", experiment, "-f", "data.json")
    assert json.dumps(data).replace(" ", "") in case.get("experiment/imported-data")


def test_a_failed_trial_ends_the_wait(case: Case) -> None:
    case.launch(case.write(FAILS, trialConcurrency=1, maxTrialRetries=0))
    assert "FAILED" in case.wait()


def test_an_own_tuner_and_the_assessors(case: Case) -> None:
    (case.folder / "naive.py").write_text(NAIVE)
    tuner = {"className": "naive.Naive", "codeDirectory": ".", "classArgs": {"optimize_mode": "maximize"}}
    curves = {"name": "Curvefitting", "classArgs": {"epoch_num": 3, "start_step": 2, "gap": 1}}
    case.launch(case.write(FLOATS, tuner=tuner, assessor=curves))
    assert set(case.wait()) <= {"SUCCEEDED", "EARLY_STOPPED"}
    assert case.get("check-status")["status"] == "DONE"


def test_resume_and_view_by_the_id(case: Case) -> None:
    experiment = case.launch(case.write(FLOATS))
    case.wait()
    case.nnictl("stop")
    case.nnictl("resume", experiment, "--port", str(case.port))
    assert (case.get("experiment")["id"], case.wait()) == (experiment, ["SUCCEEDED"] * 2)
    case.nnictl("stop")
    case.nnictl("view", experiment, "--port", str(case.port))
    assert len(case.get("trial-jobs")) == 2
    case.nnictl("stop")


def test_the_foreground_ends_by_an_interrupt(case: Case) -> None:
    slow = FLOATS + "import time\ntime.sleep(600)\n"
    config = case.write(slow)
    command = [NNICTL, "create", "--config", str(config), "--foreground", "--port", str(case.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=case.folder) as program:
        wait_for(lambda: [one for one in registry.entries() if one.alive and one.port == case.port], 60.0)
        wait_for(lambda: [one for one in case.get("trial-jobs") if one["status"] == "RUNNING"], 60.0)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=120)
    assert [one.state for one in registry.entries()] == ["STOPPED"]
