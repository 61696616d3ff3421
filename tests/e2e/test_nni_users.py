"""What users of Microsoft NNI bring along: experiments that it has left, and programs that were written for it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.running import Start, wait_for
from nni_experiment import NniFolder, NniTrial, fingerprint, make
from nnilite import Experiment
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._keeper import SHIM
from nnilite._manager.__main__ import main, parse
from nnilite._nni import nni_import
from nnilite._running import managers
from nnilite.config import ExperimentConfig

LISTENER = """
import json
import urllib.request
from nni.tuner import Tuner

class Listener(Tuner):
    heard = []
    def update_search_space(self, search_space): pass
    def import_data(self, data): self.heard += data
    def generate_parameters(self, parameter_id, **kwargs): return {"x": 1 / (1 + len(self.heard)), "heard": self.heard}
    def receive_trial_result(self, parameter_id, parameters, value, **kwargs): pass
"""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An experiment of NNI with two results; its view is closed at the end."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    trials = [NniTrial("AAAAA", {"x": 0.5}, 0, final=0.25), NniTrial("BBBBB", {"x": 0.75}, 1, final=0.5, number=1)]
    yield make(tmp_path / "home", NniFolder(trials=trials))
    for entry in registry.list_all():
        if entry.alive and entry.origin is not None:
            managers.stop(entry)


def test_a_view_of_nnis_experiment_is_a_manager_that_only_reads(old: Path) -> None:
    before = fingerprint(old)
    viewed = Experiment.view("oldone12", port=0, non_blocking=True)
    assert viewed.get_status() == "VIEWED"
    assert "made by Microsoft NNI" in viewed._manager.profile()["cannotResume"]
    assert {trial.trialJobId: trial.status for trial in viewed.list_trial_jobs()} == dict.fromkeys(
        ("AAAAA", "BBBBB"), "SUCCEEDED"
    )
    assert [(one.parameter, one.value) for one in viewed.export_data()] == [({"x": 0.5}, 0.25), ({"x": 0.75}, 0.5)]
    assert run(["stop", "oldone12"]) == 0
    assert registry.find("oldone12", read_only=True).state == "DONE"
    assert fingerprint(old) == before


def test_a_view_of_nnis_experiment_ends_by_itself(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExperimentConfig, "idle_timeout", 1)
    entry = registry.find("oldone12", read_only=True)
    assert entry.origin is not None
    nni_import.prepare(entry.origin, entry.directory)
    options = parse(["--directory", str(entry.directory), "--mode", "view", "--port", "0"])
    assert asyncio.run(asyncio.wait_for(main(options), 60)) == 0


def test_an_opened_view_is_viewed_wherever_its_state_is_asked(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    done = start(maxTrialNumber=1)
    done.wait("DONE")
    done.stop()
    viewed = Experiment.view(done.entry.id, port=0, non_blocking=True)
    try:
        run(["experiment", "status", done.entry.id, "--json"])
        assert json.loads(capsys.readouterr().out)["status"] == viewed.get_status() == "VIEWED"
        assert viewed._manager.profile()["reason"].startswith("it is open for reading, and was STOPPED")
    finally:
        run(["stop", done.entry.id])
    wait_for(lambda: registry.find(done.entry.id).state == "STOPPED", 60.0)


def test_a_new_experiment_learns_from_nnis_results_before_its_first_trial(old: Path, start: Start) -> None:
    (old.parent / "listener.py").write_text(LISTENER)
    tuner = {"className": "listener.Listener", "codeDirectory": str(old.parent)}
    code = "import nni\np = nni.get_next_parameter()\nnni.report_final_result(p['x'])\n"
    learner = start(code, tuner=tuner, maxTrialNumber=1, trialConcurrency=1, searchFrom=["oldone12", str(old)])
    assert learner.wait("DONE")["best"]["value"] == 1 / 5
    results = [{"parameter": {"x": 0.5}, "value": 0.25}, {"parameter": {"x": 0.75}, "value": 0.5}]
    assert learner.trials()[0]["parameters"]["heard"] == results * 2


NARROW = """
searchSpace: {x: {_type: uniform, _value: [8, 9]}}
searchFrom: [oldone12]
trialCommand: python3 trial.py
maxTrialNumber: 1
trialConcurrency: 1
tuner: {name: Random}
trainingService: {platform: local}
"""


def test_what_became_of_the_results_is_said_at_the_start_and_later(
    old: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 9]}, "y": {"_type": "uniform", "_value": [0, 1]}}
    learner = start(maxTrialNumber=1, searchSpace=space, searchFrom=["oldone12"])
    sentence = "searchFrom: of oldone12, 2 of 2 results are taken, 2 of them changed (random values for y,"
    assert learner.wait("DONE")["notices"][0].startswith(sentence)
    run(["experiment", "show", learner.entry.id])
    assert f"Note: {sentence}" in capsys.readouterr().out


def test_results_of_which_none_fits_are_a_warning_at_the_start(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yml"
    config.write_text(NARROW)
    (tmp_path / "trial.py").write_text("import nnilite; nnilite.report_final_result(1)")
    assert run(["create", "--config", str(config), "--foreground", "--port", "0"]) == 0
    said = capsys.readouterr()
    sentence = "searchFrom teaches the tuner nothing: of oldone12, none of 2 results is taken, 2 left out (2 since x:"
    assert f"WARNING: {sentence}" in said.err
    assert f"Note: {sentence}" in said.out


SCRIPT = """
import sys
from argparse import Namespace
from nni.tools.nnictl.config_utils import Experiments
from nni.tools.nnictl.nnictl_utils import get_experiment_port, stop_experiment, trial_ls
from nni.tools.nnictl.updater import update_searchspace, update_trialnum

this = Namespace(id=sys.argv[1], head=1, tail=None, filename=sys.argv[2], value=5, port=None, all=False)
known = Experiments().get_all_experiments()[this.id]
assert known["port"] == get_experiment_port(this)
assert trial_ls(this)[0]["trialJobId"] == sys.argv[3]
update_searchspace(this)
update_trialnum(this)
stop_experiment(this)
"""


def test_a_script_that_calls_the_functions_of_nnictl_works(tmp_path: Path, start: Start) -> None:
    running = start(maxTrialNumber=2)
    best = running.wait("DONE")["best"]["id"]
    space = tmp_path / "space.json"
    space.write_text('{"x": {"_type": "uniform", "_value": [0, 2]}}')
    words = [sys.executable, "-c", SCRIPT, running.entry.id, str(space), best]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(SHIM)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    wait_for(lambda: registry.find(running.entry.id).state == "STOPPED", 60.0)
    assert running.directory.joinpath("log").is_dir()


ADVISOR = """
import json
import urllib.request
from nni.runtime.msg_dispatcher_base import MsgDispatcherBase
from nni.runtime.tuner_command_channel import CommandType

class Halving(MsgDispatcherBase):
    def __init__(self, first=3):
        super().__init__()
        self.first, self.sent, self.results, self.curves = first, 0, {}, {}
    def handle_initialize(self, data):
        self.space = data
        self.send(CommandType.Initialized, "")
    def handle_request_trial_jobs(self, data):
        if self.sent < self.first:
            self.propose(self.sent / 10)
    def propose(self, x):
        record = {"parameter_id": f"0_{self.sent}", "parameter_source": "algorithm", "parameters": {"x": x}}
        self.sent += 1
        self.send(CommandType.NewTrialJob, json.dumps(record))
    def handle_report_metric_data(self, data):
        value = json.loads(data["value"])
        if data["type"] == "PERIODICAL":
            curve = self.curves.setdefault(data["parameter_id"], [])
            assert data["sequence"] == len(curve) and data["parameter_id"] not in self.results, data
            curve.append(value)
            return
        assert self.curves[data["parameter_id"]] == [value / 4, value / 2], self.curves
        self.results[data["parameter_id"]] = value
    def handle_trial_end(self, data):
        if len(self.results) == self.first and self.sent == self.first:
            self.propose(max(self.results.values()) * 4)
"""


def test_an_advisor_of_nni_runs_round_after_round(tmp_path: Path, start: Start) -> None:
    (tmp_path / "halving.py").write_text(ADVISOR)
    advisor = {"className": "halving.Halving", "codeDirectory": str(tmp_path), "classArgs": {"first": 3}}
    code = "import nni\nx = nni.get_next_parameter()['x']\n"
    code += "nni.report_intermediate_result(x / 4)\nnni.report_intermediate_result(x / 2)\nnni.report_final_result(x)\n"
    running = start(code, tuner=None, advisor=advisor, maxTrialNumber=None, trialConcurrency=2)
    assert running.wait("DONE", "ERROR")["state"] == "DONE"
    assert [trial["parameters"]["x"] for trial in running.trials()] == [0.0, 0.1, 0.2, 0.8]


def test_a_source_that_is_gone_is_told_at_the_start_and_nothing_is_left(start: Start) -> None:
    with pytest.raises(Exception, match=r"searchFrom\[0\]: There is no experiment 'nobody'"):
        start(searchFrom=["nobody"])
    assert registry.entries() == []


def test_scripts_find_nnis_logs_routes_and_words(start: Start) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    log = running.directory / "log" / "nnimanager.log"
    running.wait_for(lambda: "Experiment done" in log.read_text())
    base = f"{running.entry.url}/api/v1/nni"
    for pairs in ([{"parameter": {"x": 0.1}, "value": 1}, {"parameter": {"x": 0.2}, "value": 2}], []):
        assert running.client.import_data(pairs)[0] == len(pairs)
    kept = json.loads(urllib.request.urlopen(f"{base}/experiment/imported-data", timeout=60).read())
    assert kept == ['[{"parameter":{"x":0.1},"value":1},{"parameter":{"x":0.2},"value":2}]']
    assert urllib.request.urlopen(f"{base}/tensorboard-tasks", timeout=60).read() == b"[]"
    metadata = json.loads(urllib.request.urlopen(f"{base}/experiment-metadata", timeout=60).read())
    assert metadata["logDir"] == str(running.directory.parent)
    change = urllib.request.Request(f"{base}/experiment/cluster-metadata", b'{"a": "b"}', method="PUT")
    change.add_header("Content-Type", "application/json")
    assert urllib.request.urlopen(change, timeout=60).status == 200
