"""The Python API with real managers and real trials on this machine."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nnilite._experiments import registry
from nnilite._running import launch, managers
from nnilite.errors import NniliteError
from nnilite.experiment import Experiment, NotRunning, RunMode
from nnilite.testing import eventually

TRIAL = """
import nnilite
x = nnilite.get_next_parameter()["x"]
nnilite.report_final_result({"default": x, "twice": 2 * x})
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Experiment]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept"))
    (tmp_path / "trial.py").write_text(TRIAL)
    experiment = Experiment("local")
    experiment.config.trial_command = f"{sys.executable} trial.py"
    experiment.config.trial_code_directory = tmp_path
    experiment.config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    experiment.config.tuner.name = "Random"
    experiment.config.trial_concurrency = 2
    experiment.config.max_trial_number = 3
    yield experiment
    experiment.stop()
    for entry in registry.entries():
        if entry.alive:
            managers.stop(entry)


def test_a_search_runs_and_its_results_are_there_when_run_returns(experiment: Experiment) -> None:
    assert experiment.run(port=0) is True
    results = experiment.export_data()
    assert len(results) == 3
    assert all(
        result.value == {"default": result.parameter["x"], "twice": 2 * result.parameter["x"]} for result in results
    )
    assert {job.status for job in experiment.list_trial_jobs()} == {"SUCCEEDED"}
    assert experiment.get_job_statistics() == [{"trialJobStatus": "SUCCEEDED", "trialJobNumber": 3}]


def test_raising_the_number_of_trials_goes_on(experiment: Experiment) -> None:
    experiment.run(port=0)
    experiment.update_max_trial_number(5)
    eventually(lambda: len(experiment.export_data()) == 5)
    assert experiment.get_experiment_profile()["params"]["trialConcurrency"] == 2


def test_a_stopped_experiment_is_resumed_by_its_id(experiment: Experiment) -> None:
    experiment.run(port=0)
    experiment.stop()
    assert experiment.id is not None
    again = Experiment.resume(experiment.id, 0, False)  # type: ignore[arg-type]
    try:
        again.update_max_trial_number(4)
        assert again._wait() is True
        assert sorted(job.sequenceId for job in again.list_trial_jobs()) == [0, 1, 2, 3]
    finally:
        again.stop()


def test_it_tells_where_it_is_and_its_results_stay_readable(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.run(port=0)
    assert f"Experiment {experiment.id} is at {experiment.url}" in capsys.readouterr().err
    running = experiment._repr_html_()
    assert f'href="{experiment.url}"' in running
    experiment.stop()
    assert (experiment.url, experiment.get_status(), len(experiment.export_data())) == (None, "STOPPED", 3)
    assert [job.trialJobId in experiment._repr_html_() for job in experiment.list_trial_jobs()] == [True] * 3
    with pytest.raises(NotRunning):
        experiment.update_max_trial_number(9)


def test_a_stopped_experiment_can_be_looked_at(experiment: Experiment) -> None:
    experiment.run(port=0)
    experiment.stop()
    viewed = Experiment.view(experiment.id, 0, True)  # type: ignore[arg-type]
    try:
        assert len(viewed.export_data()) == 3
        with pytest.raises(NniliteError):
            viewed.update_trial_concurrency(1)
    finally:
        viewed.stop()


def test_a_view_that_waits_says_how_it_ends_and_ends_when_it_is_stopped(
    experiment: Experiment, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment.run(port=0)
    experiment.stop()
    with ThreadPoolExecutor(1) as apart:
        seen = apart.submit(Experiment.view, experiment.id, 0)  # type: ignore[arg-type]
        eventually(lambda: registry.find(experiment.id or "").alive and "non_blocking=True" in capfd.readouterr().err)
        managers.stop(registry.find(experiment.id or ""))
        assert seen.result(30).id == experiment.id


def test_a_detached_experiment_is_found_again_by_its_port(experiment: Experiment) -> None:
    experiment.start(0, run_mode=RunMode.Detach)
    assert experiment.port is not None
    found = Experiment.connect(experiment.port)
    assert found.id == experiment.id
    assert found.get_experiment_metadata()["pid"] == registry.find(experiment.id).pid
    found.stop()
    assert not registry.find(experiment.id).alive


def test_a_port_in_use_is_an_error_that_names_it(experiment: Experiment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NniliteError, match=str(port)):
            experiment.start(port)
    assert registry.entries() == []


def test_a_checkpoint_gives_the_config_back(experiment: Experiment) -> None:
    experiment.run(port=0)
    experiment.stop()
    again = Experiment(id=experiment.id)
    assert again.has_checkpoint()
    again.load_checkpoint()
    assert again.config.max_trial_number == 3


def test_a_program_that_waits_for_a_killed_manager_is_told_so(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "trial.py").write_text("import time; time.sleep(100)")

    def kill() -> None:
        eventually(lambda: experiment.port)  # it waits now; before, its start would fail
        [entry] = registry.entries()
        assert entry.pid is not None
        os.kill(entry.pid, signal.SIGKILL)

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill)
        with pytest.raises(NniliteError, match="its manager has died, and trials may still run; `nnictl resume"):
            experiment.run(port=0)
        killing.result()
    (entry,) = registry.entries()
    managers.stop(launch.resume(entry))  # and with it the trials
