"""What comes while the page waits for an answer, and what could not be read at first, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e.running import ended_experiment

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

TRIAL = """
import nnilite
nnilite.get_next_parameter()
for value in (1, 2, 3):
    nnilite.report_intermediate_result(value)
nnilite.log_artifact("words", "kept for people")
nnilite.report_final_result(4)
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The address of an experiment that is done, and its trials."""
    folder = tmp_path_factory.mktemp("late answers")
    (folder / "trial.py").write_text(TRIAL)
    with ended_experiment(folder, {"x": {"_type": "choice", "_value": [1, 2, 3]}}, 3) as (entry, client):
        yield entry.url or "", [trial["id"] for trial in client.trials()]


def test_a_metric_that_comes_before_the_curve_is_drawn_with_it(open_page: Any, experiment: Any) -> None:
    url, [trial, *_] = experiment
    page = open_page()
    held: list[Any] = []
    streams: list[Any] = []

    def pass_on(stream: Any) -> None:
        stream.connect_to_server()
        streams.append(stream)

    page.route(re.compile("/api/v1/curves"), lambda route: held.append(route))
    page.route_web_socket(re.compile("/stream$"), pass_on)
    page.goto(f"{url}/#/trials/{trial}")
    page.get_by_text("Live", exact=True).wait_for()
    metric = {"trial": trial, "attempt": 0, "index": 9, "kind": "PERIODICAL", "value": 9.5, "time": 0}
    changes = [{"type": "metric", "metric": {**metric, "sequence": sequence}} for sequence in (2, 3)]
    streams[-1].send(json.dumps({"changes": changes}))
    told = """async ([trial]) => {
      const live = await import(new URL("lib/live_data.js", document.baseURI));
      while (live.trialById(trial)?.latest !== 9.5) await new Promise((done) => setTimeout(done, 20));
    }"""
    page.evaluate(told, [trial])
    for route in held:
        route.continue_()
    page.locator(".chart[data-ready]").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = Path(download.value.path()).read_text().split()
    assert [row.rpartition(",")[2] for row in rows[1:]] == ["1", "2", "3", "9.5"]


@pytest.mark.long  # the page holds two million characters, which Chromium lays out again and again
def test_earlier_parts_of_a_log_follow_each_other_also_with_bytes_that_are_no_text(
    open_page: Any, experiment: Any
) -> None:
    """The page keeps 2 MB of a text that grows, and counts in bytes what it has let go."""
    lines = [f"line {number} ".encode() + b"\xff" * 5 + b"." * 45 + b"\n" for number in range(45_000)]
    text, here = b"".join(lines), [200_000]

    def answer(route: Any) -> None:
        query = {name: int(value) for name, [value] in parse_qs(urlsplit(route.request.url).query).items()}
        offset = query["offset"] if query["offset"] >= 0 else max(0, here[0] + query["offset"])
        data = text[: here[0]][offset : offset + query["limit"]]
        found = {"X-Offset": offset, "X-Next-Offset": offset + len(data), "X-Total-Size": here[0]}
        here[0] = len(text)
        route.fulfill(body=data, headers={name: str(value) for name, value in found.items()})

    url, [trial, *_] = experiment
    page = open_page()
    page.route(re.compile(f"/trials/{trial}/output/"), answer)
    page.goto(f"{url}/#/trials/{trial}")
    log = page.get_by_role("region", name="Output", exact=True)
    log.get_by_text("line", exact=False).wait_for()
    more = f"""() => {{
      document.dispatchEvent(new Event("visibilitychange"));
      return document.querySelector(".log").textContent.includes("line {len(lines) - 1} ");
    }}"""
    page.wait_for_function(more, polling=50)
    for _ in range(2):
        before = log.evaluate("(it) => it.textContent.length")
        page.get_by_role("button", name="Show earlier").click()
        page.wait_for_function("(before) => document.querySelector('.log').textContent.length > before", arg=before)
    numbers = [int(number) for number in re.findall(r"line (\d+) ", log.text_content())]
    assert numbers == list(range(numbers[0], len(lines)))


def test_a_line_without_an_end_does_not_hold_up_the_page_and_progress_bars_show_their_last_state(
    open_page: Any, experiment: Any
) -> None:
    text = b"0 %\r50 %\r100 %\r\nbegin\rwhole " + b"x" * 500_000 + b" end"

    def answer(route: Any) -> None:
        found = {"X-Offset": 0, "X-Next-Offset": len(text), "X-Total-Size": len(text)}
        route.fulfill(body=text, headers={name: str(value) for name, value in found.items()})

    url, [trial, *_] = experiment
    page = open_page()
    page.route(re.compile(f"/trials/{trial}/output/"), answer)
    page.goto(f"{url}/#/trials/{trial}")
    page.wait_for_function("() => document.querySelector('.log')?.textContent.endsWith(' end')", polling=100)
    shown = page.evaluate("() => document.querySelector('.log').textContent")
    assert shown == "100 %\nwhole " + "x" * 500_000 + " end"


def test_a_view_that_is_saved_while_the_page_reads_the_others_stays(open_page: Any, experiment: Any) -> None:
    page = open_page()
    held: list[Any] = []
    page.route(re.compile(r"/api/v1/page\?"), lambda route: held.append(route))
    page.goto(f"{experiment[0]}/#/trials")
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Name of this view").fill("mine")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="mine").wait_for()
    for route in held:
        with page.expect_response(route.request.url):
            route.fulfill(json={"views": [], "columns": []})
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    assert held
    assert page.get_by_role("link", name="mine").is_visible()


def test_artifacts_that_could_not_be_read_are_shown_once_they_can(open_page: Any, experiment: Any) -> None:
    url, [trial, *_] = experiment
    page = open_page()
    with _failing_at_first(page, f"/api/v1/trials/{trial}/files$"):
        page.goto(f"{url}/#/trials/{trial}?tab=artifacts")
    page.get_by_text("kept for people").wait_for()


def test_what_compared_trials_ran_with_is_shown_once_it_can_be_read(open_page: Any, experiment: Any) -> None:
    url, trials = experiment
    page = open_page()
    with _failing_at_first(page, "/api/v1/provenance"):
        page.goto(f"{url}/#/charts/compare?ids={','.join(trials)}")
    page.get_by_text("They ran after the same start of the manager").wait_for()


@contextmanager
def _failing_at_first(page: Any, pattern: str) -> Iterator[None]:
    """Refuse what fits the pattern until the page says so; then the connection is lost, and comes again."""
    address = re.compile(pattern)
    page.expected_errors.append("500")
    page.route(address, lambda route: route.fulfill(status=500, json={"error": "its disk hangs"}))
    yield
    page.get_by_text("its disk hangs").wait_for()
    page.unroute(address)
    page.evaluate("""async () => {
      const live = await import(new URL("lib/live_data.js", document.baseURI));
      live.connection.value = { ...live.connection.value, state: "lost" };
    }""")
