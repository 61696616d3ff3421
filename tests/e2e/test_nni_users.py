"""What users of Microsoft NNI bring along: experiments that it has left, and programs that were written for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Start, wait_for
from nni_experiment import NniFolder, NniTrial, fingerprint, make
from nnilite import Experiment, _registry
from nnilite._cli.program import run
from nnilite._running import managers

LISTENER = """
import json
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
    for entry in _registry.everything():
        if entry.alive and entry.origin is not None:
            managers.stop(entry)


def test_a_view_of_nnis_experiment_is_a_manager_that_only_reads(old: Path) -> None:
    before = fingerprint(old)
    viewed = Experiment.view("oldone12", port=0, non_blocking=True)
    assert viewed.get_status() == "VIEWED"
    assert {trial.trialJobId: trial.status for trial in viewed.list_trial_jobs()} == dict.fromkeys(
        ("AAAAA", "BBBBB"), "SUCCEEDED"
    )
    assert [(one.parameter, one.value) for one in viewed.export_data()] == [({"x": 0.5}, 0.25), ({"x": 0.75}, 0.5)]
    assert run(["stop", "oldone12"]) == 0
    assert _registry.find("oldone12", read_only=True).state == "DONE"
    assert fingerprint(old) == before


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
    wait_for(lambda: _registry.find(done.entry.id).state == "STOPPED", 60.0)


def test_a_new_experiment_learns_from_nnis_results_before_its_first_trial(old: Path, start: Start) -> None:
    (old.parent / "listener.py").write_text(LISTENER)
    tuner = {"className": "listener.Listener", "codeDirectory": str(old.parent)}
    code = "import nni\np = nni.get_next_parameter()\nnni.report_final_result(p['x'])\n"
    learner = start(code, tuner=tuner, maxTrialNumber=1, trialConcurrency=1, searchFrom=["oldone12", str(old)])
    assert learner.wait("DONE")["best"]["value"] == 1 / 5
    results = [{"parameter": {"x": 0.5}, "value": 0.25}, {"parameter": {"x": 0.75}, "value": 0.5}]
    assert learner.trials()[0]["parameters"]["heard"] == results * 2


def test_a_source_that_is_gone_is_told_at_the_start_and_nothing_is_left(start: Start) -> None:
    with pytest.raises(Exception, match=r"searchFrom\[0\]: There is no experiment 'nobody'"):
        start(searchFrom=["nobody"])
    assert _registry.entries() == []
