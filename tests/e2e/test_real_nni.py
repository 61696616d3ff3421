"""With the real NNI 3.0: what it leaves is read here, and its own client and commands speak to a manager of ours."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.running import Start, wait_for
from nni_experiment import fingerprint
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._manager import search_from
from nnilite.space import SearchSpace
from real_nni import need_python
from shim import nni_modules
from unit.test_space_properties import SPACES

pytestmark = [pytest.mark.long, pytest.mark.real]
TRIAL = """
import nni
x = nni.get_next_parameter()["x"]
nni.report_intermediate_result(x / 2)
nni.report_final_result(x)
"""
CLIENT = """
import json, sys
from nni.experiment import Experiment
experiment = Experiment.connect(int(sys.argv[1]))
print(json.dumps([experiment.get_status(), len(experiment.list_trial_jobs()), len(experiment.export_data())]))
"""

FORMATTED = """
import json, sys
from nni.common.hpo_utils import deformat_parameters, format_parameters, format_search_space
for line in sys.stdin:
    plain, search_space = json.loads(line)
    space = format_search_space(search_space)
    try:
        formatted = format_parameters(plain, space)
    except (KeyError, ValueError):  # a choice within an option that was not chosen, the logarithm of 0
        told = None
    else:
        told = [formatted, deformat_parameters(formatted, space)]
    specs = [[list(key), list(spec)] for key, spec in space.items()]
    print(json.dumps([specs, told and [list(map(list, told[0].items())), told[1]]]), flush=True)
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python with the real nni, whose experiments go to a folder of the test."""
    known = need_python()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NNILITE_HOME", raising=False)
    return known


def _nnictl(python: Path, *arguments: str) -> str:
    command = [str(python.with_name("nnictl")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def _created(python: Path, config: Path) -> str:
    """The id of a new experiment of NNI, which gives up on its own manager after three seconds: then try again."""
    command = [python.with_name("nnictl"), "create", "-c", config, "-p", "18933"]
    said: list[str] = []

    def runs() -> bool:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        said.append(done.stdout)
        return done.returncode == 0

    wait_for(runs, 200.0)
    return re.sub(r"\x1b\[\d+m", "", said[-1]).partition("Experiment ID: ")[2].split()[0]


def _wait_for_nni(python: Path, experiment: str) -> None:
    """Wait until NNI's experiment is done, and stop it. NNI gives up on its own tuner after ten seconds: then skip."""
    said = ""

    def over() -> bool:
        nonlocal said
        said = _nnictl(python, "experiment", "status", experiment)
        return '"DONE"' in said or '"ERROR"' in said

    try:
        wait_for(over, 200.0)
    finally:
        _nnictl(python, "stop", "--all")
    if "Tuner did not connect in 10 seconds" in said:
        pytest.skip("this machine is too busy for NNI, whose tuner has ten seconds to start")


@pytest.mark.timeout(600)
def test_what_nni_leaves_is_read_put_right_and_learned_from(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trial.py").write_text(TRIAL)
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{python} trial.py",
        "trialCodeDirectory": str(tmp_path),
        "trialConcurrency": 2,
        "maxTrialNumber": 4,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
    experiment = _created(python, tmp_path / "config.yml")
    _wait_for_nni(python, experiment)
    entry = registry.find(experiment, read_only=True)
    before = fingerprint(tmp_path / "nni-experiments" / entry.id)
    run(["experiment", "export", entry.id])
    exported = json.loads(capsys.readouterr().out)
    assert len(exported) == 4
    # Each trial reports its own parameter: so those that NNI mixed up are put right.
    assert all(one["parameter"]["x"] == one["value"] for one in exported)
    assert len(search_from.results(entry.id)) == 4
    assert fingerprint(tmp_path / "nni-experiments" / entry.id) == before


def test_nnis_own_client_and_commands_speak_to_ours(python: Path, start: Start, tmp_path: Path) -> None:
    running = start(maxTrialNumber=2)
    running.wait("DONE")
    entry = registry.find(running.entry.id)
    known = {"id": entry.id, "port": entry.port, "pid": entry.pid, "status": "RUNNING", "platform": "local"}
    known |= {"startTime": 1, "endTime": "N/A", "experimentName": None, "tag": [], "webuiUrl": [], "prefixUrl": None}
    (tmp_path / "nni-experiments").mkdir(exist_ok=True)
    listed = {entry.id: {**known, "logDir": str(entry.directory.parent)}}
    (tmp_path / "nni-experiments" / ".experiment").write_text(json.dumps(listed))
    client = subprocess.run(
        [python, "-c", CLIENT, str(entry.port)], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(client.stdout.splitlines()[-1]) == ["DONE", 2, 2]
    assert '"status":"DONE"' in _nnictl(python, "experiment", "status", entry.id)
    assert "Update trialnum success" in _nnictl(python, "update", "trialnum", entry.id, "-v", "3")
    assert _nnictl(python, "trial", "ls", entry.id).count("trialJobId") >= 2


def test_spaces_and_parameters_are_formatted_as_by_nni(python: Path) -> None:
    command = [python, "-c", FORMATTED]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program,
        nni_modules() as imported,
    ):
        ours = imported("nni.common.hpo_utils")

        @settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
        @given(SPACES, st.integers(0, 2**32))
        def compare(space: SearchSpace, seed: int) -> None:
            plain = space.sample(random.Random(seed))
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(json.dumps([plain, space.json]) + "\n")
            program.stdin.flush()
            specs, told = json.loads(program.stdout.readline())
            known = ours.format_search_space(space.json)
            assert _as_json([[key, spec] for key, spec in known.items()]) == specs
            formatted = ours.format_parameters(plain, known)
            back = ours.deformat_parameters(formatted, known)
            assert told is None or _as_json([list(formatted.items()), back]) == told
            assert SearchSpace.parse(space.json).contains(back) is None

        compare()
        assert program.stdin
        program.stdin.close()


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
