"""The commands of pages that people follow step by step run, in their order, with the files that the pages show."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nnictl_runs import nnictl
from nnilite._experiments import registry
from nnilite._running import managers

DOCS = Path(__file__).resolve().parents[2] / "docs"
LIMIT_S = 100
CORRECTED = "import nnilite\nnnilite.report_final_result(nnilite.get_next_parameter()['x'])\n"
FAQ_CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": 'test -e fails.no || exit 3; sleep 1; echo final 0.5 >> "$NNILITE_METRICS"',
    "trialConcurrency": 1,
    "maxTrialNumber": 4,
    "stopOnSameError": 0,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}

IN_A_SHELL = re.compile(r"^(?!nnictl )|[$|;&<>]|--foreground")
"""What is no plain nnictl, or waits for the end of an experiment with handlers of signals."""

Run = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    yield tmp_path
    for entry in registry.entries():
        if entry.alive:
            managers.stop(entry)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a line of a page; what it prints.

    ID and OTHER are the latest experiment and the first one, TRIAL is a trial of the latest.
    """
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.chdir(folder)

    def one(line: str, status: int = 0) -> str:
        ids = [entry.id for entry in registry.entries()] or [""]
        real = re.sub(r"\bOTHER\b", ids[0], re.sub(r"\bID\b", ids[-1], line))
        if re.search(r"\bTRIAL\b", line):
            with managers.connect(registry.find(ids[-1])) as client:
                real = re.sub(r"\bTRIAL\b", next(client.trials())["id"], real)
        if IN_A_SHELL.search(real):
            ran = subprocess.run(["bash", "-c", real], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
        else:
            ran = nnictl(*shlex.split(real)[1:], limit_s=LIMIT_S)
        assert ran.returncode == status, f"{line}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    return one


def commands(page: str, folder: Path) -> list[str]:
    """Write the page's blocks that have a title to files of that name, and return the lines of its `sh` blocks."""
    lines = []
    for token in MarkdownIt("commonmark").parse((DOCS / page).read_text("utf-8")):
        if token.type == "fence":
            if title := re.search(r'title="([^"]+)"', token.info):
                (folder / title[1]).write_text(token.content)
            elif token.info == "sh":
                lines += token.content.splitlines()
    return lines


def test_the_page_about_several_objectives_ends_with_a_front(folder: Path, run: Run) -> None:
    create, front, view = commands("tutorial/several-objectives.md", folder)
    assert "60 SUCCEEDED" in run(create)
    trials = run(f"{front} --json")
    assert 1 < len(json.loads(trials)) < 60
    assert "http://" in run(view)


def test_the_page_about_a_failing_trial_leads_to_its_cause_and_beyond(folder: Path, run: Run) -> None:
    create, failed, log, show, resume, rerun = commands("tutorial/failing-trial.md", folder)
    assert "NameError" in run(create, 8)
    assert run(failed).count("FAILED") >= 3
    assert "trial.py" in run(log)
    assert "exit code 1" in run(show)
    (folder / "trial.py").write_text(CORRECTED)
    run(resume)
    run(rerun)
    registry_entry = next(iter(registry.entries()))
    with managers.connect(registry_entry) as client:
        assert {trial["state"] for trial in client.trials()} <= {"SUCCEEDED", "WAITING", "RUNNING"}


def test_the_trial_of_a_program_for_optuna_runs_as_an_experiment(folder: Path, run: Run) -> None:
    create, best = commands("how-to/from-optuna.md", folder)
    assert "30 SUCCEEDED" in run(create)
    assert len(run(best).splitlines()) == 4


def test_the_example_for_users_of_ray_tune_runs(folder: Path, run: Run) -> None:
    (create,) = commands("how-to/from-ray-tune.md", folder)
    assert "Trials: 20 of 20" in run(create)


def test_the_commands_of_frequent_questions_do_what_they_say(folder: Path, run: Run) -> None:
    (folder / "config.yaml").write_text(json.dumps(FAQ_CONFIG))
    run("nnictl create --config config.yaml --port 0 --foreground", 8)
    run("nnictl resume ID --port 0")
    run("nnictl update trialnum ID -v 100")
    (folder / "fails.no").touch()
    for line in commands("how-to/faq.md", folder):
        run(line)
    assert (folder / "results.csv").read_text().startswith("x,trialJobId,reward\n")
