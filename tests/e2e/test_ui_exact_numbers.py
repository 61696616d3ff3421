"""Whole numbers that no double holds, such as seeds of 64 bits: what the page shows, copies, saves and sends back."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.running import ended_experiment
from nnilite._running.manager_client import Client
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

SEEDS = [2**53 + 1, 2**53 + 3, -(2**62) - 7]
TRIAL = """
import nnilite
p = nnilite.get_next_parameter()
nnilite.set_attribute("rows", p["seed"] - 2)
nnilite.report_final_result({"default": p["seed"] + 2, "next": p["seed"] + 4, "all": [p["seed"]]})
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """The address of an experiment of three trials that is done, and a client of it."""
    folder = tmp_path_factory.mktemp("exact")
    (folder / "trial.py").write_text(TRIAL)
    space = {
        "seed": {"_type": "choice", "_value": SEEDS},
        "net": {"_type": "choice", "_value": [{"_name": "mlp", "key": {"_type": "choice", "_value": SEEDS[:1]}}]},
    }
    with ended_experiment(folder, space, 3) as (entry, client):
        yield entry.url or "", client


def with_seed(client: Client, seed: int) -> dict[str, Any]:
    return next(trial for trial in client.trials() if trial["parameters"]["seed"] == seed)


def clipboard(page: Any) -> Any:
    return json.loads(page.evaluate("navigator.clipboard.readText()"))


def test_the_table_and_its_file_have_all_digits(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/trials?cols=p.seed,metric,m.next,a.rows,p.net.key&sort=-p.seed")
    page.locator(".grid-row").nth(2).wait_for()
    titles = [row.locator("[title]").all() for row in page.locator(".grid [role=row]").all()[1:]]
    full = [[cell.get_attribute("title") for cell in row if cell.get_attribute("title")] for row in titles]
    ordered = sorted(SEEDS, reverse=True)
    assert full == [[str(seed), str(seed + 2), str(seed + 4), str(seed - 2), str(SEEDS[0])] for seed in ordered]
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.reader(Path(download.value.path()).read_text().splitlines()))[1:]
    assert [int(row[0]) for row in rows] == ordered
    assert [json.loads(row[1])["all"] for row in rows] == [[seed] for seed in ordered]
    assert [int(row[2]) for row in rows] == [seed + 4 for seed in ordered]
    assert faults(page) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_page_of_a_trial_shows_and_copies_all_digits(look: Any, experiment: Any, seed: int) -> None:
    url, client = experiment
    trial = with_seed(client, seed)
    page = look(f"{url}/#/trials/{trial['id']}")
    page.get_by_role("region", name="Parameters").get_by_text(str(seed), exact=True).first.wait_for()
    page.get_by_role("region", name="Attributes").get_by_text(str(seed - 2), exact=True).wait_for()
    page.get_by_title(str(seed + 2), exact=True).wait_for()
    page.get_by_role("button", name="JSON").click()
    page.get_by_text("Trial as JSON copied.").wait_for()
    copied = clipboard(page)
    assert (copied["parameters"], copied["value"]) == (trial["parameters"], trial["value"])
    look(f"{url}/#/charts/compare?ids={','.join(one['id'] for one in client.trials())}")
    page.get_by_role("cell", name=str(seed), exact=True).first.wait_for()
    assert faults(page) == []


def test_the_space_and_a_new_trial_go_back_as_they_came(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/experiment/space")
    page.get_by_role("region", name="Search space").get_by_text(", ".join(map(str, SEEDS))).wait_for()
    before = with_seed(client, SEEDS[1])
    look(f"{url}/#/trials/{before['id']}")
    page.get_by_role("button", name="Customise").click()
    page.route("**/api/v1/trials", lambda route: route.fulfill(status=201, json={**before, "warning": ""}))
    with page.expect_request("**/api/v1/trials") as request:
        page.get_by_role("button", name="Run it").click()
    assert json.loads(request.value.post_data)["parameters"] == before["parameters"]
    page.get_by_text("has been added to the queue").wait_for()
    page.unroute("**/api/v1/trials")
    assert faults(page) == []


FIELDS = """async ({ values, name, typed }) => {
  const { readJson, writeJson } = await import(new URL("lib/exact_json.js", document.baseURI));
  const { changed } = await import(new URL("parts/new_trial.js", document.baseURI));
  return writeJson(changed(readJson(values), name, Number(typed), typed));
}"""


@pytest.mark.parametrize("typed", [str(2**53 + 1), " 7", "0.5", "1e300"])
def test_a_number_that_is_typed_is_sent_as_it_is(look: Any, experiment: Any, typed: str) -> None:
    page = look(f"{experiment[0]}/#/trials")
    values = {"a": 2**53 + 1, "b": 2**60 + 1, "c": "9007199254740993"}
    sent = page.evaluate(FIELDS, {"values": json.dumps(values), "name": "a", "typed": typed})
    assert json.loads(sent) == {**values, "a": json.loads(typed)}
