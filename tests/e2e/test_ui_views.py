"""Every view of the web interface, in a real browser, on an experiment that has run."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import socket
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._experiments import page_preferences
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TRIAL = """
import os, sys, nnilite
p = nnilite.get_next_parameter()
print("trained with", p["x"], "<b>not bold</b>")
if p["kind"] == "bad":
    sys.exit("no such kind of model")
for step in range(6):
    nnilite.report_intermediate_result(p["x"] * (step + 1) / 6)
open(os.environ["NNI_OUTPUT_DIR"] + "/weights.txt", "w").write("1 2 3")
nnilite.report_final_result({"default": p["x"], "loss": 1 - p["x"] / 2, "size": p["n"]})
"""
SPACE = {
    "x": {"_type": "loguniform", "_value": [0.01, 1]},
    "n": {"_type": "randint", "_value": [1, 9]},
    "kind": {"_type": "choice", "_value": ["good", "better", "good'$(x)", "bad"]},
}
CHARTS = ("metric", "parallel", "slices", "contour", "curves", "duration", "timeline", "pareto")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """The address of an experiment of 16 trials that is done, and a client of it."""
    folder = tmp_path_factory.mktemp("it's $HOME")
    (folder / "trial.py").write_text(TRIAL)
    config = {
        "experimentName": "<i>views</i> & more",
        "searchSpace": SPACE,
        "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
        "trialCodeDirectory": str(folder),
        "trialConcurrency": 2,
        "maxTrialNumber": 16,
        "stopOnSameError": 0,
        "tuner": {"name": "Random", "classArgs": {"seed": 1, "optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            wait_until_done(client)
            yield entry.url or "", client
            client.stop()


def wait_until_done(client: Client) -> None:
    eventually(lambda: client.profile()["state"] == "DONE", 60)


def drawn(page: Any, number: int = 1) -> None:
    """Wait until so many charts are drawn."""
    page.locator(".chart[data-ready]").nth(number - 1).wait_for()


def test_the_overview_tells_state_best_trial_and_history(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/")
    page.get_by_text("16", exact=True).first.wait_for()
    page.get_by_role("region", name="Services and hosts").get_by_text(re.compile(r"memory [\d.]+ [MG]B of")).wait_for()
    best = client.profile()["best"]
    page.get_by_role("region", name=re.compile("Best trial")).get_by_role("link", name=best["id"]).wait_for()
    page.get_by_role("region", name="Failures and waiting").get_by_text("no such kind of model").wait_for()
    assert page.locator(".brand-name").inner_text() == "<i>views</i> & more"
    page.get_by_text("Live", exact=True).wait_for()
    drawn(page)


MISTAKEN = """
import os, sys, nnilite
p = nnilite.get_next_parameter()
if p["kind"] == "crash":
    raise ValueError("no <b>data</b>")
if p["kind"] == "odd" and os.environ["NNILITE_ATTEMPT"] == "0":
    print("no data yet", file=sys.stderr)
    sys.exit(7)
for _ in range(2 if p["kind"] == "twice" else 1):
    if p["kind"] != "no default":
        nnilite.report_final_result(0.5)
if p["kind"] == "no default":
    nnilite.report_final_result({"accuracy": 0.5, "log": "y" * 500_000})
"""


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an experiment with all kinds of trouble that is done."""
    folder = tmp_path_factory.mktemp("mistaken")
    (folder / "trial.py").write_text(MISTAKEN)
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        config = {
            "searchSpace": {"kind": {"_type": "choice", "_value": ["crash", "no default", "twice", "odd"]}},
            "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
            "trialConcurrency": 2,
            "retryOn": [7],
            "nniManagerIp": "127.0.0.1",
            "webhooks": [{"url": f"http://127.0.0.1:{silent.getsockname()[1]}/"}],
            "tuner": {"name": "GridSearch"},
            "trainingService": {"platform": "local"},
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NNILITE_HOME", str(folder / "home"))
            entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            wait_until_done(client)
            yield entry.url or ""
            client.stop()


def test_mistakes_of_trials_are_told_in_few_words_on_pages_of_usual_size(look: Any, mistaken: str) -> None:
    page = look(f"{mistaken}/")
    trouble = page.get_by_role("region", name="Failures and waiting")
    trouble.get_by_text("exit code 1: ValueError: no <b>data</b>", exact=True).wait_for()
    trouble.get_by_text("it reported more than one final result; the first one counts (").wait_for()
    trouble.get_by_text("its final result is not a number").click()
    page.locator(".grid-row").get_by_role("link").click()
    page.get_by_text("accuracy", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollHeight") < 3000
    look(f"{mistaken}/#/trials?state=FAILED")
    page.locator(".grid-row").get_by_text("exit code 1: ValueError: no <b>data</b>", exact=True).wait_for()
    page.locator(".grid-row").get_by_role("link").click()
    page.get_by_role("region", name="Errors", exact=True).get_by_text("Traceback").wait_for()


def test_attempts_that_were_tried_again_are_among_the_failures(look: Any, mistaken: str) -> None:
    page = look(f"{mistaken}/")
    trouble = page.get_by_role("region", name="Failures and waiting")
    trouble.get_by_text("tried again", exact=True).wait_for()
    assert re.search(r"^1\s+tried again\s+exit code 7", trouble.locator("tbody").inner_text(), re.MULTILINE)
    trouble.get_by_role("link", name=re.compile("exit code 7")).click()
    page.get_by_text("5 attempts on 1 host").wait_for()


def test_the_overview_tells_what_has_no_effect_and_what_is_not_sent_yet(look: Any, mistaken: str) -> None:
    page = look(f"{mistaken}/")
    notes = page.get_by_role("region", name="Notes")
    notes.get_by_text("nniManagerIp has no effect on local: trials run on the manager's machine").wait_for()
    notes.get_by_text(re.compile("^1 of 3 succeeded trials has no finite number")).wait_for()
    notes.get_by_text(re.compile(r"^webhook 1 waits for \d+ messages?$")).wait_for()


def test_the_table_sorts_filters_and_finds_and_the_address_keeps_it(look: Any, open_page: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/trials")
    page.get_by_role("button", name="Metric", exact=True).click()
    page.get_by_role("button", name="Metric", exact=True).click()
    best = client.profile()["best"]["id"]
    page.locator(".grid-row").first.get_by_role("link", name=best).wait_for()
    page.get_by_role("button", name=re.compile("^Failed")).click()
    failed = client.profile()["counts"]["FAILED"]
    page.get_by_text(f"{failed} of 16 trials").wait_for()
    again = open_page(page.url)
    again.get_by_text(f"{failed} of 16 trials").wait_for()
    again.get_by_role("button", name=re.compile("^Failed")).click()
    again.get_by_label("Find trials").fill("#3")
    again.get_by_text("1 of 16 trials").wait_for()


def test_the_table_filters_by_ranges_and_values(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/trials")
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("n from").press_sequentially("5")
    page.evaluate("location.hash += '?sort=p.x'")  # what is being typed stays while the page is drawn anew
    page.locator("[role=columnheader][aria-sort]").get_by_text("x", exact=True).wait_for()
    page.get_by_label("n from").press("Enter")
    fitting = [t for t in client.trials() if t["parameters"]["n"] >= 5]
    page.get_by_text(f"{len(fitting)} of 16 trials").wait_for()
    page.get_by_role("group", name="kind").get_by_label("good'$(x)").check()
    fitting = [t for t in fitting if t["parameters"]["kind"] == "good'$(x)"]
    page.get_by_text(f"{len(fitting)} of 16 trials").wait_for()
    page.get_by_role("button", name="Clear all").click()
    page.get_by_text("16 trials", exact=True).wait_for()


def test_columns_can_be_chosen_and_moved(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/trials")
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="Reason").uncheck()
    page.get_by_label("Move Trial to the left").click()
    heads = page.locator(".grid-head [role=columnheader]")
    heads.get_by_text("Reason").wait_for(state="detached")
    heads.nth(1).get_by_text("Trial").wait_for()
    assert "cols=" in page.url
    # The manager remembers them for all pages: those of other tests have not chosen any.
    page.get_by_role("button", name="Restore the default columns").click()
    heads.get_by_text("Reason").wait_for()
    eventually(lambda: page_preferences.read().columns == {})


def test_a_trials_page_shows_its_parts(look: Any, experiment: Any) -> None:
    url, client = experiment
    best = client.profile()["best"]
    page = look(f"{url}/#/trials/{best['id']}")
    page.get_by_role("region", name="Parameters").get_by_text(str(best["parameters"]["x"])).wait_for()
    page.get_by_text("<b>not bold</b>").wait_for()
    drawn(page)
    page.get_by_label("Search in Output").fill("TRAINED")
    page.get_by_text("1 of 1").wait_for()
    page.get_by_role("link", name="Files").click()
    with page.expect_popup() as popup:
        page.get_by_role("link", name="0/weights.txt").click()
    assert "1 2 3" in popup.value.inner_text("body")


def test_a_trial_is_tagged_and_noted_and_found_by_its_tag(look: Any, experiment: Any) -> None:
    url, client = experiment
    trial = next(client.trials())["id"]
    page = look(f"{url}/#/trials/{trial}")
    page.expected_errors.append("400")
    page.get_by_role("button", name="Edit tags and note").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tags").fill("x" * 41)
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_role("alert").get_by_text("40 characters").wait_for()
    dialog.get_by_label("Tags").fill("<b>to look at</b>, good, good")
    dialog.get_by_label("Note").fill("as in\nthe paper")
    dialog.get_by_role("button", name="Save").click()
    card = page.get_by_role("region", name="Tags and note")
    card.get_by_text("the paper").wait_for()
    kept = client.remarks(trial)
    assert (kept["tags"], kept["note"]) == (["<b>to look at</b>", "good"], "as in\nthe paper")
    card.get_by_role("link", name="<b>to look at</b>").click()
    page.get_by_text("1 of 16 trials").wait_for()
    page.locator(".grid-row").get_by_text("<b>to look at</b>, good").wait_for()
    # What somebody else changes is there by itself.
    client.remark(trial, tags=[], note="", revision=kept["revision"])
    page.get_by_text("No matching trials").wait_for()


def test_a_trial_is_copied_as_json_and_as_a_command(look: Any, experiment: Any) -> None:
    url, client = experiment
    best = client.profile()["best"]
    page = look(f"{url}/#/trials/{best['id']}")
    page.get_by_role("button", name="JSON").click()
    page.get_by_text("Trial as JSON copied.").wait_for()
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["parameters"] == best["parameters"]
    page.get_by_role("button", name="Command").click()
    page.get_by_text("Command copied.").wait_for()
    words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert words[:3] == ["nnictl", "trial", "add"]
    assert json.loads(words[-1]) == best["parameters"]


def saved(page: Any, kind: str) -> bytes:
    with page.expect_download() as download:
        page.get_by_role("button", name=kind).first.click()
    return Path(download.value.path()).read_bytes()


def test_every_chart_is_drawn_and_saved(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    for chart in CHARTS:
        # Another name than that of the page, so that it is loaded anew: each chart may be the first that it shows.
        page.goto(f"{experiment[0]}/#/charts/{chart}")
        page.locator(f".subnav [aria-current=page][href*={chart}]").wait_for()
        drawn(page)
        assert saved(page, "PNG").startswith(b"\x89PNG"), chart
        assert saved(page, "CSV").count(b"\n") > 10, chart


def test_the_importance_of_parameters_is_drawn_and_leads_to_their_contour(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/importance")
    page.locator(".chart[data-ready]").wait_for(timeout=100_000)
    rows = saved(page, "CSV").decode().split()
    assert {row.partition(",")[0] for row in rows[1:]} == {"x", "n", "kind"}
    assert 0.98 < sum(float(row.split(",")[1]) for row in rows[1:]) < 1.02
    page.get_by_role("link", name=re.compile("two most important")).click()
    page.get_by_role("heading", name=re.compile("^Metric over")).wait_for()


def test_chosen_trials_are_compared_side_by_side(open_page: Any, experiment: Any) -> None:
    page = open_page(f"{experiment[0]}/#/trials?state=SUCCEEDED")
    for place in (0, 1, 2):
        page.locator(".grid-row input[type=checkbox]").nth(place).check()
    page.get_by_role("link", name="Compare").click()
    page.locator(".compare thead a").nth(2).wait_for()
    assert page.locator(".compare td.differs").count() >= 3
    drawn(page)


def test_the_best_trial_is_compared_with_the_one_in_the_middle(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/")
    page.get_by_role("link", name="Compare with the median trial").click()
    page.locator(".compare thead a").nth(1).wait_for()
    found = sorted(client.trials(states=["SUCCEEDED"]), key=lambda trial: -trial["value"]["default"])
    middle = found[len(found) // 2]
    assert page.locator(".compare thead a").all_inner_texts() == [found[0]["id"], middle["id"]]


def test_groups_of_trials_tell_the_best_and_the_median_of_each(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/charts/groups?by=p.kind&objective=loss")
    page.get_by_role("heading", name="Groups of trials").wait_for()
    rows = {row["kind"]: row for row in csv.DictReader(io.StringIO(saved(page, "CSV").decode()))}
    for kind, row in rows.items():
        trials = [trial for trial in client.trials() if trial["parameters"]["kind"] == kind]
        losses = [trial["value"]["loss"] for trial in trials if trial["state"] == "SUCCEEDED"]
        assert [int(row[name]) for name in ("trials", "succeeded")] == [len(trials), len(losses)]
        if losses:
            assert float(row["median metric"]) == pytest.approx(statistics.median(losses))
        assert bool(row["best metric"]) == bool(losses)
    page.get_by_role("link", name="bad", exact=True).click()
    page.get_by_text(f"{rows['bad']['trials']} of 16 trials").wait_for()


def test_brushing_an_axis_chooses_trials(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/parallel")
    drawn(page)
    box = page.locator(".chart").bounding_box()
    page.mouse.move(box["x"] + 45, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 45, box["y"] + 300, steps=8)
    page.mouse.up()
    page.get_by_role("heading", name=re.compile("trials? chosen")).wait_for()


# Draws the chart anew all the time: with other data, and in other colours.
FLICKER = """() => { let on = true; window.flicker = setInterval(() => {
  on = !on; location.hash = location.hash.split("?")[0] + (on ? "?top=60" : "?top=100"); }, 7); }"""


@pytest.mark.parametrize("chart", ["parallel", "metric", "slices"])
def test_a_chart_takes_the_mouse_while_it_is_drawn_anew(look: Any, experiment: Any, chart: str) -> None:
    page = look(f"{experiment[0]}/#/charts/{chart}", viewport={"width": 800, "height": 700})
    drawn(page)
    box = page.locator(".chart").first.bounding_box()
    page.evaluate(FLICKER)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.mouse.move(box["x"] + 45, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 45, box["y"] + 250, steps=4)
        page.mouse.up()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100, steps=4)
    page.evaluate("clearInterval(window.flicker)")
    drawn(page)


PAGES = {
    "config": "trialConcurrency:",
    "space": "loguniform",
    "logs": "is served at",
    "export": "Results of all ended trials",
    "others": "this one",
}


def test_the_experiments_pages(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    for tab, text in PAGES.items():
        # Loaded anew, as in the test of all charts.
        page.goto(f"{experiment[0]}/#/experiment/{tab}")
        page.get_by_text(text).first.wait_for()


PHONE = {"width": 390, "height": 844}
VIEWS = ("overview", "trials", "charts/metric", "charts/importance", "experiment/config", "experiment/logs")


def test_a_phone_needs_no_sideways_scrolling(look: Any, experiment: Any) -> None:
    url, client = experiment
    for view in (*VIEWS, "charts/timeline", f"trials/{client.profile()['best']['id']}"):
        page = look(f"{url}/#/{view}", viewport=PHONE)
        page.locator("main .card, main .grid").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


def test_names_of_other_experiments_have_room_on_a_phone(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/experiment/others", viewport=PHONE)
    name = page.get_by_role("region", name="Experiments on this machine").get_by_role("row").nth(1).locator("td").nth(1)
    assert name.evaluate("(cell) => cell.offsetWidth") >= 110


def test_views_may_be_left_before_their_charts_and_searches_are_ready(open_page: Any, experiment: Any) -> None:
    held: list[Any] = []
    page = open_page()
    page.add_init_script("requestAnimationFrame = () => 0")  # what tidies up after a frame does so as late as it may
    page.route("**/vendor/echarts.js", lambda route: held.append(route))
    page.goto(f"{experiment[0]}/#/charts/metric")
    page.locator(".chart").first.wait_for()
    eventually(lambda: page.evaluate("1") and held)
    page.evaluate("location.hash = '#/trials'")
    chart = "({ on() {}, setOption() {}, resize() {}, dispose() {} })"
    library = f"export const init = (box) => box.getAttribute('id') || {chart};"
    held.pop().fulfill(content_type="text/javascript", body=library)
    page.get_by_label("Find trials").press("x")
    page.evaluate("location.hash = '#/'")
    page.get_by_role("heading", name="Best trial").wait_for()
    page.wait_for_timeout(300)  # longer than a search field waits for a further key
    assert page.evaluate("location.hash") == "#/"


# The event that tells of a new address comes later than that.
LEAVE_AND_SEARCH = """async () => { const { setQuery } = await import("./lib/route.js");
  location.hash = "#/"; setQuery({ q: "x" }); }"""


def test_a_search_in_a_view_that_is_being_left_does_not_bring_it_back(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/trials")
    page.get_by_text("16 trials", exact=True).wait_for()
    page.evaluate(LEAVE_AND_SEARCH)
    page.get_by_role("heading", name="Best trial").wait_for(timeout=30_000)
    assert page.evaluate("location.hash") == "#/"


def test_the_keyboard_is_enough(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    page.get_by_text("Live", exact=True).wait_for()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_role("grid").focus()
    for key in ("ArrowDown", "j", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("heading", name=re.compile("^Trial ")).wait_for()
    assert page.get_by_text("number 13").is_visible()
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for(state="hidden")


def test_what_is_not_there_is_said(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/")
    page.expected_errors.append("404")
    look(f"{experiment[0]}/#/trials/nothere1")
    page.get_by_text("There is no trial nothere1 here").wait_for()
    page.evaluate("location.hash = '#/elsewhere'")
    page.get_by_text("There is no such page").wait_for()


def test_a_link_that_means_nothing_breaks_no_page(open_page: Any, look: Any, experiment: Any) -> None:
    url, _ = experiment
    for visit, address in ((open_page, "%"), (look, "trials?cols=%25&x=in:%25"), (look, "charts/parallel?axes=%25")):
        page = visit(f"{url}/#/{address}")
        page.get_by_text("Live", exact=True).wait_for()
        page.get_by_role("main").locator(".card, .grid, .empty").first.wait_for()


def test_everything_works_behind_a_prefix(start: Any, open_page: Any) -> None:
    running = start(maxTrialNumber=2)
    running.wait("DONE")
    running.stop()
    entry = launch.resume(running.entry, options=launch.ManagerOptions(port=0, url_prefix="nni/a_b"), detach=False)
    with Client(entry.url or "", launch.token(entry)) as client:
        page = open_page(client.sign_in_link())  # behind a proxy the kernel cannot say who asks
    # The link counts once, so the page has to have the key that it got for it before it is left.
    page.get_by_text("Live", exact=True).wait_for()
    page.goto(f"{entry.url}/#/charts/metric")
    assert "/nni/a_b/" in page.url
    page.get_by_text("Live", exact=True).wait_for()
    drawn(page)
