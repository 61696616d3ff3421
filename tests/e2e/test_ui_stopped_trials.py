"""Trials that were stopped early on the charts and in the export: with their latest results, and left out if asked."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._cli.nnictl import run
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

TRIALS = 12
TRIAL = """
import signal, nnilite
p = nnilite.get_next_parameter()
nnilite.report_intermediate_result(p["x"] / 2)
if p["x"] < 6:
    signal.pause()  # until it is stopped
nnilite.report_final_result(p["x"])
"""
ASSESSOR = """
from nnilite import AssessResult, Assessor

class Half(Assessor):
    def assess_trial(self, trial, history):
        return AssessResult.Good if history[-1] >= 3 else AssessResult.Bad
"""
RESULTS = {float(n): n / 2 if n < 6 else float(n) for n in range(TRIALS)}
"""By x: what each trial comes to. Those below 6 are stopped at half of their x."""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """The address of an experiment of which half the trials were stopped early, and a client of it."""
    folder = tmp_path_factory.mktemp("it's $HOME")
    (folder / "trial.py").write_text(TRIAL)
    (folder / "half.py").write_text(ASSESSOR)
    config = {
        "searchSpace": {
            "x": {"_type": "choice", "_value": list(range(TRIALS))},
            "y": {"_type": "choice", "_value": [1]},
        },
        "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
        "trialConcurrency": 4,
        "maxTrialNumber": TRIALS,
        "tuner": {"name": "GridSearch"},
        "assessor": {"className": "half.Half", "codeDirectory": str(folder)},
        "trainingService": {"platform": "local"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            eventually(lambda: client.profile()["state"] == "DONE", 90)
            yield entry.url or "", client
            client.stop()


def saved(page: Any) -> list[dict[str, str]]:
    """The rows that the first chart's button CSV saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").first.click()
    with Path(download.value.path()).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("view", "column"), [("overview", "metric"), ("charts/metric", "default"), ("charts/slices", "default")]
)
def test_stopped_trials_are_on_a_chart_until_they_are_left_out(
    look: Any, experiment: Any, view: str, column: str
) -> None:
    page = look(f"{experiment[0]}/#/{view}")
    page.locator(".chart[data-ready]").first.wait_for()
    assert sorted(float(row[column]) for row in saved(page)) == sorted(RESULTS.values())
    page.get_by_label("Stopped early", exact=True).uncheck()
    page.wait_for_url("**stopped=hide**")
    eventually(lambda: len(saved(page)) == TRIALS / 2, 30)
    assert sorted(float(row[column]) for row in saved(page)) == [x for x in RESULTS if x >= 6]


def test_the_best_so_far_is_never_that_of_a_stopped_trial(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/overview")
    page.locator(".chart[data-ready]").first.wait_for()
    best = [row["best"] for row in saved(page)]
    assert best[:6] == [""] * 6
    assert [float(one) for one in best[6:]] == [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]


def test_the_export_of_all_trials_has_the_latest_results_of_stopped_ones(
    experiment: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    identifier = experiment[1].profile()["id"]
    for more, states in (([], set()), (["--all"], {"SUCCEEDED", "EARLY_STOPPED"})):
        assert run(["experiment", "export", identifier, "-t", "csv", *more]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        wanted = RESULTS if more else {x: value for x, value in RESULTS.items() if x >= 6}
        assert {float(row["x"]): float(row["reward"]) for row in rows} == wanted
        assert {row["state"] for row in rows if more} == states
