"""The table of a trial's ranks on the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.running import Start, starting

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TRIAL = """
import glob, os, sys, time
rank = os.environ["RANK"]
print("here is rank", rank, flush=True)
open(f"printed-{rank}", "w").close()
while rank != "3" or len(glob.glob("printed-*")) < 4:
    time.sleep(0.05)
sys.exit(7)
"""
ON_TWO = {"nodes": 2, "processesPerNode": 2}


def test_a_distributed_trial_has_a_table_of_its_ranks_with_their_outputs(start: Start, open_page: Any) -> None:
    running = start(TRIAL, maxTrialNumber=1, distributed=ON_TWO)
    running.wait("DONE")
    [trial] = running.trials()
    page = open_page(f"{running.entry.url}/#/trials/{trial['id']}")
    rows = page.get_by_role("region", name="Ranks").get_by_role("table").get_by_role("row")
    rows.nth(4).wait_for()
    assert [row.split("\t")[2].strip() for row in rows.all_inner_texts()[1:]] == ["Canceled"] * 3 + ["Failed"]
    assert "exit code 7" in rows.nth(4).inner_text()
    with page.expect_popup() as opened:
        rows.nth(4).get_by_role("link", name="rank-3.log").click()
    assert opened.value.locator("body").inner_text().strip() == "here is rank 3"
    rows.nth(1).get_by_role("link", name="Output of rank 0").click()
    page.get_by_text("here is rank 0").wait_for()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[Any]], str]]:
    """Writes the records of the ranks of a trial that has ended; the address of the trial's page."""
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch, starting(folder) as start:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        running = start("print(1)", maxTrialNumber=1, distributed={"nodes": 1, "processesPerNode": 2})
        running.wait("DONE")
        [trial] = running.trials()
        path = running.directory / "trials" / trial["id"] / str(trial["attempt"]) / "roles.json"

        def write(found: list[Any]) -> str:
            path.write_text(json.dumps(found))
            return f"{running.entry.url}/#/trials/{trial['id']}"

        yield write


def test_what_a_trial_writes_into_these_records_breaks_no_page(records: Any, look: Any) -> None:
    odd = [{"role": "rank", "rank": 0, "state": "constructor", "log": "\ud800", "reports": []}, 7, None, [[]]]
    page = look(records([*odd, *[{}] * 900_000]))
    page.get_by_text("The first 1,000 of 900,001.").wait_for()
    assert page.get_by_role("region", name="Roles").get_by_role("table").get_by_role("row").count() == 1001


def test_the_page_says_how_often_an_elastic_trial_was_started_and_what_that_took(records: Any, look: Any) -> None:
    rank = {"role": "rank", "rank": 0, "state": "CANCELED", "host": "h"}
    starts = [{**rank, "start": 0, "started": 10, "ended": 20}, {**rank, "start": 1, "started": 23, "ended": 30}]
    page = look(records([*starts, {**rank, "start": 2, "started": 32, "ended": 40}]))
    page.get_by_text("Started 3 times. Between two starts rank 0 did not run: 5.0 s in all.").wait_for()
    rows = page.get_by_role("region", name="Ranks").get_by_role("table").get_by_role("row").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in rows] == ["Start", "1", "2", "3"]


def test_a_trial_of_one_process_has_no_such_table(start: Start, open_page: Any) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    page = open_page(f"{running.entry.url}/#/trials/{running.trials()[0]['id']}")
    page.get_by_text("Final metric").wait_for()
    page.wait_for_load_state("networkidle")
    assert page.get_by_role("region", name="Ranks").count() == 0
