"""Every example runs as its comments say, with the program that users have, and finds what it should."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT_S = 100
NICE_ONES = (
    "not Contract and not TestNice or runs_once or exit_code or canceled_job or restarted_manager or unknown_job"
)
"""The tests of what the example does by itself, and of the contract one for each of its methods."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a Python program or module where experiments are kept in a folder of the test; its standard output."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))

    def one(*arguments: object, cwd: Path = EXAMPLES, limit_s: float = LIMIT_S, **env: str) -> str:
        command = [sys.executable, *map(str, arguments)]
        ran = subprocess.run(
            command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=limit_s
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return one


@pytest.fixture
def search(run: Any) -> Any:
    """Runs an example's config.yaml to its end; the experiment's last profile."""

    def one(name: str, **env: str) -> dict[str, Any]:
        config = EXAMPLES / name / "config.yaml"
        out = run("-m", "nnilite._cli", "create", "-c", config, "-p", "0", "--foreground", "--json", **env)
        profile: dict[str, Any] = json.loads(out)
        assert profile["state"] == "DONE"
        return profile

    return one


def succeeded(profile: dict[str, Any]) -> int:
    assert {state for state, count in profile["counts"].items() if count} == {"SUCCEEDED"}
    return int(profile["counts"]["SUCCEEDED"])


def test_code_that_imports_nni_runs_unchanged(search: Any) -> None:
    profile = search("quickstart_function")
    assert succeeded(profile) == 20
    assert profile["best"]["value"]["default"] < 0.1
    assert 2 < profile["best"]["value"]["slope"] < 3


def test_a_tuner_of_ones_own_finds_the_top_and_ends_the_experiment(search: Any) -> None:
    profile = search("custom_tuner")
    assert succeeded(profile) < 100
    assert profile["best"]["value"] > 0.98


def test_trials_in_shell_report_as_others_do(search: Any) -> None:
    profile = search("any_language")
    assert succeeded(profile) == 12
    assert profile["best"]["value"]["root"] == pytest.approx(3, abs=0.1)


def test_preempted_trials_go_on_from_their_checkpoints(search: Any, run: Any) -> None:
    profile = search("checkpoints")
    assert succeeded(profile) == 4
    assert profile["best"]["value"]["begun_at"] == 4
    shown = json.loads(run("-m", "nnilite._cli", "trial", "show", profile["id"], "-T", profile["best"]["id"], "--json"))
    assert [attempt["exitCode"] for attempt in shown["attempts"]] == [75, 0]


@pytest.mark.long  # on SSH hosts every day: the launcher is the same, and each process imports torch
@pytest.mark.timeout(300)
def test_a_ddp_training_by_four_processes_has_the_losses_of_one(start: Any, ddp: Any) -> None:
    ddp.check(start(**ddp.config()))


def test_the_digits_config_is_sound(run: Any) -> None:
    config = EXAMPLES / "sklearn_digits" / "config.yaml"
    planned = json.loads(run("-m", "nnilite._cli", "create", "-c", config, "--dry-run", "--json"))
    assert set(planned["parameters"]) == {"C", "gamma", "kernel", "degree", "components"}


def test_an_experiment_is_launched_from_python(run: Any) -> None:
    out = run("python_api/experiment.py")
    assert "done [{'trialJobStatus': 'SUCCEEDED', 'trialJobNumber': 12}]" in out
    assert "now [{'trialJobStatus': 'SUCCEEDED', 'trialJobNumber': 16}]" in out


def test_a_search_runs_inside_a_program(run: Any) -> None:
    first, second, third = run("python_api/search.py").splitlines()
    assert float(first.split()[1]) < 1
    assert "EARLY_STOPPED" in second
    assert third.startswith("by hand")


def test_a_search_runs_its_objective_in_processes(run: Any) -> None:
    states, best = run("python_api/search_in_processes.py").splitlines()
    assert "EARLY_STOPPED" in states
    assert float(best.split()[1]) < 2


def installed(name: str, folder: Path) -> Path:
    """A plugin as pip would install it into `folder`: its module, and its entry points from its pyproject.toml."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text("utf-8"))["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = configparser.ConfigParser()
    points.read_dict(project["entry-points"])
    with (about / "entry_points.txt").open("w") as file:
        points.write(file)
    for module in (EXAMPLES / name).glob("nnilite_*.py"):
        shutil.copy(module, folder)
    return folder


def test_a_training_service_from_elsewhere_is_found_and_used(search: Any, run: Any, tmp_path: Path) -> None:
    path = str(installed("plugin_training_service", tmp_path / "site"))
    assert "nice" in run("-m", "nnilite._cli", "platform", "list", PYTHONPATH=path)
    profile = search("plugin_training_service", PYTHONPATH=path)
    assert succeeded(profile) == 6
    assert profile["best"]["value"]["niceness"] == os.nice(0) + 7


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("example", "cases"),
    [
        ("plugin_training_service", NICE_ONES),
        ("plugin_batch_platform", "Trouble or test_a_wrong or by_the_log"),
        pytest.param("plugin_training_service", "", marks=pytest.mark.long),
        pytest.param("plugin_batch_platform", "", marks=pytest.mark.long),
    ],
    ids=["kind of job", "platform", "all of kind of job", "all of platform"],
)
def test_the_example_of_a_training_service_passes_the_contract(run: Any, example: str, cases: str) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", cases, "."]
    out = run(*words, cwd=EXAMPLES / example, limit_s=280, PYTHONPATH=".")
    assert " passed" in out
    assert "failed" not in out


@pytest.fixture
def jobyard(tmp_path: Path) -> Iterator[str]:
    """The platform of the example plugin_batch_platform in a process of its own; its address."""
    program = [sys.executable, str(EXAMPLES / "plugin_batch_platform" / "jobyard.py"), str(tmp_path / "yard"), "0"]
    environment = {**os.environ, "JOBYARD_TOKEN": "secret"}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as yard:
        try:
            assert yard.stdout is not None
            yield yard.stdout.readline().strip()
        finally:
            yard.terminate()


def test_a_batch_platform_from_elsewhere_is_used(run: Any, tmp_path: Path, jobyard: str) -> None:
    path = str(installed("plugin_batch_platform", tmp_path / "site"))
    folder = tmp_path / "copy"
    shutil.copytree(EXAMPLES / "plugin_batch_platform", folder)
    config = folder / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("http://127.0.0.1:8765", jobyard))
    words = ["create", "-c", config, "-p", "0", "--foreground", "--json"]
    profile = json.loads(run("-m", "nnilite._cli", *words, PYTHONPATH=path, JOBYARD_TOKEN="secret"))
    assert succeeded(profile) == 4
