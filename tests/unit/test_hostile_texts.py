"""Texts of other people in configurations, and of schedulers, need time in proportion to their length."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite.codedir._git_pattern import NoPattern, read_name
from nnilite.config import from_dict, parse
from nnilite.config._program_hints import find_program_faults
from nnilite.errors import ConfigError
from nnilite.services.cluster.scheduler_api import version_in
from nnilite_batch._templates import find_programs, render
from nnilite_remote._tunnel_request import TunnelRefused, parse_head

pytestmark = pytest.mark.timeout(20)

_MANY = 100_000


@pytest.mark.parametrize("option", ["--" + "_" * 200, "--" + "a_" * 100, "--" + "a-" * 100], ids=["_", "a_", "a-"])
def test_an_option_of_a_trial_command(tmp_path: Path, option: str) -> None:
    (tmp_path / "trial.py").touch()
    assert list(find_program_faults(f"python3 trial.py {option} model.yaml", tmp_path)) == []
    [fault] = find_program_faults(f"python3 trial.py {option}config model.yaml", tmp_path)
    assert "there is no model.yaml" in fault


@pytest.mark.parametrize("text", ["0" * _MANY, "1" * _MANY + "e", "${env:" * (_MANY // 6)], ids=lambda text: text[:6])
def test_a_value_of_a_config(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        parse(f"trialConcurrency: '{text}'\nmaxTrialDuration: '{text}'\n", tmp_path).checked()


@pytest.mark.parametrize("text", ["${env:A" * (_MANY // 7), "${trialSpec." * (_MANY // 12)], ids=lambda text: text[:6])
def test_what_warnings_look_for(tmp_path: Path, text: str) -> None:
    fields = {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": text, "trialConcurrency": 1}
    config = from_dict({**fields, "trainingService": {"platform": "local"}}, tmp_path).checked()
    assert not any("is replaced in secrets" in warning for warning in config.warnings)


def test_a_pattern_of_files_that_are_not_sent() -> None:
    with pytest.raises(NoPattern):
        read_name("[" + "[:" * _MANY)


def test_a_request_of_a_stranger_at_the_end_of_a_tunnel() -> None:
    with pytest.raises(TunnelRefused):
        parse_head(b"GET /api/v1/keeper.pyz HTTP/1.1\r\nA:" + b" " * _MANY + b"\0")
    request = parse_head(b"GET /api/v1/keeper.pyz HTTP/1.1\r\nA:\r\nX-Nnilite-Job: \t a job \r")
    assert request.headers == {"X-Nnilite-Job": "a job"}


def test_a_template_of_a_command() -> None:
    assert render("[[" * _MANY, {}) == "[[" * _MANY
    assert find_programs(["\n" * _MANY + "qsub"]) == ["qsub"]
    assert render("qsub[[ -q {queue}]][[[ -l {gpus}]]]", {"queue": "a b", "gpus": None}) == "qsub -q 'a b'"


def test_the_version_of_a_scheduler() -> None:
    assert version_in("0" * _MANY) == ()
    assert version_in("1" * 10_000 + ".2") == ()
    assert version_in("slurm 23.11.4") == (23, 11, 4)
