"""What the page remembers for its user, and what it tells of what ran, in a real browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.running import ended_experiment
from nnilite._experiments import page_preferences
from nnilite._experiments.provenance_reading import FILE_NAME
from nnilite._running.manager_client import Client
from nnilite.testing import eventually
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client, Path]]:
    """The address of an experiment of four trials whose code is in a git repository, a client, and its folder."""
    folder = tmp_path_factory.mktemp("it's $HOME")
    (folder / "trial.py").write_text("import nnilite\np = nnilite.get_next_parameter()\n")
    settings = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *settings, *words], cwd=folder, check=True)
    (folder / "trial.py").write_text("import nnilite\nnnilite.report_final_result(nnilite.get_next_parameter()['x'])\n")
    with ended_experiment(folder, {"x": {"_type": "choice", "_value": [1, 2, 3, 4]}}, 4) as (entry, client):
        eventually((entry.directory / FILE_NAME).exists, 60)
        yield entry.url or "", client, entry.directory


def heads(page: Any) -> list[str]:
    found: list[str] = page.locator(".grid-head [role=columnheader] button").all_inner_texts()
    return found


def test_chosen_columns_are_there_in_another_browser_and_go_with_a_link(open_page: Any, experiment: Any) -> None:
    url = experiment[0]
    page = open_page(f"{url}/#/trials?cols=sequence,metric,p.x")
    eventually(lambda: heads(page) == ["#", "Metric", "x"])
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="Duration").click()
    eventually(lambda: "seconds" in str(page_preferences.read().columns))
    other = open_page(f"{url}/#/trials")
    eventually(lambda: heads(other) == ["#", "Metric", "x", "Duration"])
    assert "cols=sequence" in other.url, "the address shows others the same"
    page.get_by_role("button", name="Restore the default columns").click()
    eventually(lambda: page_preferences.read().columns == {})


def test_views_are_saved_under_a_name_for_table_and_charts(open_page: Any, experiment: Any) -> None:
    url = experiment[0]
    page = open_page(f"{url}/#/trials?sort=-metric&p.x=2..3", viewport={"width": 400, "height": 850})
    page.get_by_text("2 of 4 trials").wait_for()
    page.get_by_role("button", name="Views").click()
    assert page.locator(".pop-panel").bounding_box()["x"] >= 0, "the panel is in sight on a phone"
    page.get_by_label("Name of this view").fill("the <b>middle</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="the <b>middle</b>").wait_for()
    assert faults(page) == []
    page.get_by_role("button", name="Copy a link to this view").click()
    page.get_by_text("Link copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{url}/#/trials?sort=-metric&p.x=2..3"
    page.goto(f"{url}/#/charts/slices")
    page.get_by_role("button", name="Views").click()
    page.get_by_role("link", name="the <b>middle</b>").click()
    page.get_by_text("2 of 4 trials").wait_for()
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name="Remove the view the <b>middle</b>").click()
    eventually(lambda: page_preferences.read().views == {})


def test_the_page_tells_what_ran(open_page: Any, experiment: Any) -> None:
    url, _, directory = experiment
    [start] = json.loads((directory / FILE_NAME).read_text())["starts"]
    page = open_page(f"{url}/#/experiment/ran")
    ran = page.get_by_role("region", name="What ran", exact=True)
    for text in (start["code"]["hash"], start["git"]["commit"], "trunk", start["python"]["version"]):
        ran.get_by_text(text).first.wait_for()
    shown = page.get_by_role("region", name="Difference", exact=True)
    assert shown.inner_text().strip() == start["git"]["diff"].strip()
    assert shown.locator(".added").count() == 1
    page.get_by_label("Find in Packages").fill("playwright")
    rows = page.get_by_role("group", name="Packages").locator("tbody tr")
    assert "playwright\t" + start["python"]["packages"]["playwright"] in rows.all_inner_texts()
    [place] = page.get_by_role("group", name="Where trials ran").locator("tbody tr").all_inner_texts()
    assert start["python"]["executable"] in place
    page.get_by_label("Of the Python of").select_option(label=f"trials on {place.partition(chr(9))[0]}")
    assert len(rows.all_inner_texts()) == 1
    assert faults(page) == []


def test_trials_of_two_starts_are_compared_by_code(open_page: Any, experiment: Any) -> None:
    url, client, directory = experiment
    trials = list(client.trials())
    ids = f"{trials[0]['id']},{trials[-1]['id']}"
    page = open_page(f"{url}/#/charts/compare?ids={ids}")
    page.get_by_text("They ran after the same start of the manager").wait_for()
    path = directory / FILE_NAME
    [start] = json.loads(path.read_text())["starts"]
    code = {**start["code"], "files": {"trial.py": "f" * 64}}
    later = {**start, "time": trials[-1]["started"] - 0.001, "code": code, "git": {**start["git"], "diff": ""}}
    try:
        path.write_text(json.dumps({"starts": [start, later]}))
        page.reload()
        table = page.get_by_role("group", name="Code, packages and machine").get_by_role("table")
        table.wait_for()
        lines = {text.split("\t")[0]: text.split("\t")[1:] for text in table.locator("tbody tr").all_inner_texts()}
    finally:
        path.write_text(json.dumps({"starts": [start]}))
    assert lines["code.files.trial.py"] == [start["code"]["files"]["trial.py"][:16], "f" * 16]
    assert lines["git.changes.trial.py"][0].startswith("+1 -1 lines")
    assert lines["git.changes.trial.py"][1] == "not set"
    assert faults(page) == []
