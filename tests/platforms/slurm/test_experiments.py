"""Whole experiments on a real Slurm of one node, by nnictl."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import nnictl_runs
from function_programs import check_function_on

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "slurm" / "config.yaml"

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture
def nnictl(tmp_path, monkeypatch, slurm):
    """Runs `nnictl` with a home of its own; what it prints, and its complaint if it is to fail."""
    monkeypatch.setenv("HOME", str(tmp_path / "it's home"))
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "experiments"))
    (tmp_path / "it's home").mkdir()

    def run(*words: str, code: int = 0) -> str:
        ran = nnictl_runs.nnictl(*words, limit_s=150)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr if code else ran.stdout

    yield run
    run("stop", "--all")


def test_the_example_runs_as_it_is(nnictl, slurm, tmp_path):
    out = nnictl("create", "-c", str(EXAMPLE), "-p", "0", "--foreground", "--json")
    profile = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert (profile["state"], profile["counts"]["SUCCEEDED"]) == ("DONE", 6)
    assert profile["hosts"][0]["name"] == "Slurm here"
    listed = slurm.command("squeue", "-h", "--states=all", "--array", "-o", "%j %T")
    mine = [line.split() for line in listed.splitlines() if f"nni-{profile['id']}-" in line]
    assert [state for _, state in mine] == ["COMPLETED"] * 6
    assert len({name for name, _ in mine}) < 6
    left = [path for path in (tmp_path / "it's home" / "nnilite" / profile["id"]).rglob("*") if path.is_file()]
    assert sorted(path.name for path in left) == ["trial.stderr"] * 6 + ["trial.stdout"] * 6


def write(folder: Path, **section) -> str:
    config = yaml.safe_load(EXAMPLE.read_text())
    config["trainingService"] = {"platform": "slurm", **section}
    config["trialCodeDirectory"] = str(EXAMPLE.parent)
    place = folder / "config.yaml"
    place.write_text(yaml.safe_dump(config, sort_keys=False))
    return str(place)


def test_a_dry_run_prints_the_script_and_sends_nothing(nnictl, slurm, tmp_path):
    before = slurm.command("squeue", "-h", "--states=all")
    out = nnictl("create", "-c", write(tmp_path, partition="short", setUp=["export A=b"]), "--dry-run")
    assert "#SBATCH --partition=short" in out
    assert "export A=b" in out
    assert '"reports": "by files in the folder"' in out
    assert '"report": ' not in out
    assert slurm.command("squeue", "-h", "--states=all") == before


WRONG = [
    ({"partition": "no pe"}, r"trainingService.partition: 'no pe' is not valid; use one word"),
    ({"sbatchLines": ["--array=1-9"]}, r"trainingService.sbatchLines[0]: --array cannot be set here; set jobArraySize"),
    ({"sbatchLines": ["rm -rf"]}, r"trainingService.sbatchLines[0]: 'rm -rf' is not an option of sbatch"),
    ({"timeLimit": "30s"}, "trainingService.timeLimit: must be above 60 s"),
    ({"modules": ["a; b"]}, "trainingService.modules[0]: 'a; b' is not the name of a module"),
    ({"login": {"host": ""}}, "trainingService.login.host: '' cannot be used"),
]


@pytest.mark.parametrize(("section", "words"), WRONG, ids=lambda one: str(one)[:30])
def test_bad_input_is_told_in_a_sentence_with_its_place(nnictl, tmp_path, section, words):
    said = nnictl("create", "-c", write(tmp_path, **section), code=1)
    assert words in said
    assert "config.yaml" in said
    assert "Traceback" not in said


def test_what_slurm_refuses_is_told_before_anything_starts(nnictl, tmp_path):
    said = nnictl("create", "-c", write(tmp_path, partition="nope"), code=1)
    assert "partition: Slurm refuses the job; it says: invalid partition specified: nope" in said
    assert "Traceback" not in said


def test_a_list_with_this_machine_ends_each_trial_though_reports_come_by_logs(nnictl, slurm, tmp_path):
    place = tmp_path / "config.yaml"
    config = yaml.safe_load(EXAMPLE.read_text()) | {"callback": "log", "maxTrialNumber": 20, "trialConcurrency": 4}
    config["trialCodeDirectory"] = str(EXAMPLE.parent)
    config["trainingService"] = [{"platform": "local"}, {"platform": "slurm"}]
    place.write_text(yaml.safe_dump(config, sort_keys=False))
    out = nnictl("create", "-c", str(place), "-p", "0", "--foreground", "--json")
    profile = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert (profile["state"], profile["counts"]["SUCCEEDED"]) == ("DONE", 20)
    assert [one["name"] for one in profile["services"] if one["state"] == "up"] == ["local", "slurm"]


def test_a_function_runs_as_trials(nnictl, slurm, tmp_path):
    check_function_on(tmp_path / "it's code", {"platform": "slurm"}, callback="log")


def test_the_program_of_the_gallery_runs_and_goes_on(nnictl, slurm, tmp_path):
    page = (EXAMPLE.parents[2] / "docs" / "gallery" / "function-on-slurm.md").read_text("utf-8")
    for name, text in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    for _ in range(2):
        command = [sys.executable, "search.py"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
        assert ran.stdout.startswith("4 trials, best "), ran.stdout + ran.stderr
    listed = slurm.command("squeue", "-h", "--states=all", "--array", "-o", "%j")
    assert listed.count("nni-rates-") == 4
