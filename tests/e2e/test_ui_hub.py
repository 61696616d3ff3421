"""The page of all experiments, in a real browser, with 120 of them: each thing that it can do, once."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from many_experiments import copies, stopped
from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._hub import hub_server
from nnilite._running import launch, managers
from nnilite.config import from_dict
from nnilite.testing import eventually
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

TRIAL = "import nnilite\np = nnilite.get_next_parameter()\nnnilite.report_final_result(p['x'])\n"
CONFIG = {
    "experimentName": "really running",
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
    "trialCodeDirectory": ".",
    "trialConcurrency": 1,
    "maxTrialNumber": 2,
    "tuner": {"name": "Random", "classArgs": {"seed": 4123456789}},
    "trainingService": {"platform": "local"},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("it's my $PROJECT")
    (folder / "trial.py").write_text(TRIAL)
    return folder


@pytest.fixture(scope="module")
def page_url(project: Path) -> Iterator[str]:
    """The address that `nnictl ui` prints, over 119 stopped experiments and one that runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(project / "home"))
        copies(stopped("template", "<b>wide</b> & deep", trials=30), 118)
        launch.create(from_dict(CONFIG, project), options=launch.ManagerOptions(port=0), experiment="running1")
        command = [sys.executable, "-m", "nnilite._cli", "ui", "--port", "0", "--require-token", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline() + server.stdout.readline() + server.stdout.readline())["url"]
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
        alive = [one for one in registry.entries() if one.alive]
        for one in alive:
            managers.stop(one)
        assert "running1" in {one.id for one in alive}, "an experiment goes on without the page"


@pytest.fixture
def page(page_url: str, look: Any) -> Any:
    """The page that the tests share."""
    return listing(page_url, look)


def listing(page_url: str, look: Any, **options: Any) -> Any:
    """The list on the page that the tests share, signed in by a new link, as the first link may have been used."""
    found = look(f"{page_url.partition('#')[0]}#/overview", sign_in=hub_server.find_served_address, **options)
    rows(found).first.wait_for()
    return found


@pytest.fixture
def fresh_page(page_url: str, open_page: Any) -> Any:
    """A page for a test that ticks experiments, types a configuration or changes the page's functions."""
    found = open_page()
    found.goto(hub_server.find_served_address())
    rows(found).first.wait_for()
    return found


def test_what_is_done_or_has_failed_is_not_counted_as_running(page: Any) -> None:
    count = """async () => { const { isRunning } = await import(new URL("hub/experiments.js", document.baseURI));
      return ["RUNNING", "DONE", "ERROR", "VIEWED"].filter((state) => isRunning({ alive: true, state })); }"""
    assert page.evaluate(count) == ["RUNNING"]


def rows(page: Any) -> Any:
    return page.locator(".experiments tbody tr")


def row(page: Any, experiment: str) -> Any:
    """The row of an experiment, which is searched for."""
    page.get_by_label("Find experiments").fill(experiment)
    found = page.locator(f"tr[data-id^={experiment}]").first
    found.wait_for()
    return found


def test_experiments_are_printed_with_their_names(page: Any) -> None:
    page.emulate_media(media="print")
    assert page.get_by_role("button", name="run 1", exact=True).is_visible()
    assert not page.get_by_role("button", name="Open run 1", exact=True).is_visible()
    page.emulate_media(media="screen")


def test_more_than_a_hundred_experiments_are_listed_searched_and_sorted(page: Any) -> None:
    page.get_by_text(re.compile(r"^1[12]\d experiments")).wait_for()  # other tests delete and start some
    assert rows(page).count() == 100
    page.get_by_role("button", name="Show more").click()
    assert rows(page).count() >= 115
    page.keyboard.press("/")
    page.keyboard.type("run 11")
    page.get_by_text(re.compile(r"^9 of 1[12]\d experiments")).wait_for()
    page.get_by_role("button", name="Experiment").click()
    page.locator("th[aria-sort=ascending]").wait_for()
    names = page.locator(".name-cell .link").all_inner_texts()
    assert names == sorted(names)
    assert names[0] == "run 11"
    page.get_by_label("Find experiments").fill("nothing like this")
    page.get_by_text("No experiment is like this").wait_for()


def test_a_row_tells_state_trials_and_best(page: Any) -> None:
    text = row(page, "template").inner_text()
    assert "<b>wide</b> & deep" in text
    assert "Stopped" in text
    page.locator("tr[data-id=template]").get_by_text("30", exact=False).first.wait_for()
    page.locator("tr[data-id=template] .best-cell").get_by_text("0.9").wait_for()
    page.get_by_label("Find experiments").fill("")
    page.get_by_label("Show").select_option("running")
    eventually(lambda: rows(page).count() <= 1, 60)


def test_an_experiment_whose_manager_has_died_is_unknown_and_says_how_to_continue(page: Any) -> None:
    write_json(registry.root() / "copy009" / "manager.json", {"state": "RUNNING", "pid": 2**22 + 1})
    page.get_by_label("Show").select_option("stopped")
    lost = row(page, "copy009")
    badge = lost.locator(".badge[data-state=UNKNOWN]")
    badge.get_by_text("Unknown", exact=True).wait_for()
    lost.get_by_text("nnictl resume copy009").wait_for()
    assert badge.get_attribute("title") == "UNKNOWN"
    lost.get_by_role("button", name="Resume").wait_for()
    assert faults(page) == []


def test_a_stopped_experiment_is_opened_by_a_viewer_without_another_sign_in_and_closed_again(page: Any) -> None:
    with page.context.expect_page() as opening:
        row(page, "copy003").get_by_role("button", name="Open").click()
    opened = opening.value
    opened.get_by_text("Read only.").wait_for()
    assert "key" not in opened.url
    row(page, "copy003").get_by_role("button", name="Close").click()
    eventually(lambda: not registry.is_alive(registry.root() / "copy003"), 60)
    row(page, "copy003").get_by_role("button", name="Resume").wait_for()


def test_a_running_experiment_is_opened_stopped_and_resumed(fresh_page: Any) -> None:
    page = fresh_page
    with page.context.expect_page() as opening:
        row(page, "running1").get_by_role("button", name="really running", exact=True).click()
    opening.value.get_by_text("Live", exact=True).wait_for()
    row(page, "running1").get_by_role("button", name="Stop").click()
    if page.get_by_role("button", name="Stop it").is_visible():
        page.get_by_role("button", name="Stop it").click()
    row(page, "running1").get_by_role("button", name="Resume").click()
    eventually(lambda: registry.is_alive(registry.root() / "running1"), 60)
    row(page, "running1").get_by_role("checkbox").check()
    page.get_by_role("button", name="Stop 1").click()
    page.get_by_role("button", name="Stop them").click()
    page.get_by_text("1 experiment stopping.").wait_for()
    row(page, "running1").get_by_role("button", name="Resume").click()
    row(page, "running1").get_by_role("button", name="Stop").wait_for()


def test_a_deletion_asks_first(page: Any) -> None:
    row(page, "copy005").get_by_role("button", name="Delete").click()
    page.get_by_text("This cannot be undone").wait_for()
    page.keyboard.press("Escape")
    assert (registry.root() / "copy005").is_dir()
    row(page, "copy005").get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.get_by_text("run 5 is deleted").wait_for()
    page.locator("tr[data-id=copy005]").wait_for(state="detached")
    assert not (registry.root() / "copy005").exists()


def test_whoever_is_not_signed_in_sees_nothing(page_url: str, open_page: Any) -> None:
    stranger = open_page()
    stranger.expected_errors.append("401")
    stranger.goto(page_url.partition("#")[0])
    stranger.get_by_text("You need to sign in").wait_for()
    assert "template" not in stranger.content()


def test_an_experiment_is_renamed_and_tagged_and_found_by_its_tag(page: Any) -> None:
    row(page, "copy010").get_by_role("button", name="Name, tags and note").click()
    page.get_by_label("Name", exact=True).fill("the <i>baseline</i>")
    page.get_by_label("Tags, separated by commas").fill("paper, wide")
    page.get_by_label("Note", exact=True).fill("to be cited")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    page.get_by_label("Find experiments").fill("cited")
    page.get_by_label("Tag", exact=True).select_option("paper")
    page.get_by_text("the <i>baseline</i>").wait_for()
    assert rows(page).count() == 1
    assert registry.find("copy010").remarks.tags == ("paper", "wide")


def test_all_experiments_that_are_listed_are_ticked_at_once(fresh_page: Any) -> None:
    page = fresh_page
    page.get_by_label("Find experiments").fill("copy02")
    page.get_by_role("checkbox", name=re.compile(r"^Select the \d+ experiments listed$")).check()
    count = rows(page).count()
    page.get_by_role("link", name=f"Compare {count}").wait_for()
    page.get_by_label("Find experiments").fill("copy020")
    page.get_by_text(f"{count - 1} of them hidden by filters").wait_for()


def test_experiments_are_compared(fresh_page: Any) -> None:
    page = fresh_page
    for experiment in ("copy020", "copy021"):
        row(page, experiment).get_by_role("checkbox").check()
    page.get_by_role("link", name="Compare 2").click()
    page.locator(".chart[data-ready]").wait_for()
    assert page.locator("main tbody tr").count() == 2
    page.get_by_label("Over").select_option("time")
    assert "over=time" in page.url
    page.get_by_label("Log scale").check()
    assert "scale=log" in page.url


def test_a_new_experiment_shows_its_faults_in_place_and_starts_without_them(fresh_page: Any, project: Path) -> None:
    page = fresh_page
    page.get_by_role("link", name="New", exact=True).click()
    page.get_by_label("Configuration (YAML)").fill("trialConcurrency: many\n")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("must be an absolute path").wait_for()
    page.get_by_label("Folder").fill(str(project))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("button", name="Line 1").first.click()
    assert page.evaluate("getSelection().toString()") == "trialConcurrency: many"
    page.get_by_label("Configuration (YAML)").fill(json.dumps({**CONFIG, "experimentName": "typed here"}))
    page.get_by_role("button", name="Start").click()
    page.get_by_label("Find experiments").fill("typed here")
    page.get_by_role("button", name="typed here", exact=True).wait_for()


VIEWS = ("overview?find=copy01", "compare?id=copy020&id=template", "new")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_axe_finds_nothing(page_url: str, look: Any, scheme: str, width: int) -> None:
    page = listing(page_url, look, color_scheme=scheme, viewport={"width": width, "height": 850})
    row(page, "copy01")
    for view in VIEWS:
        page.evaluate("view => { location.hash = `#/${view}`; }", view)
        page.locator("main .card").first.wait_for()
        assert faults(page) == [], view


def test_a_tab_says_what_is_being_opened_until_it_is(fresh_page: Any) -> None:
    page = fresh_page
    page.evaluate(
        "window.told = []; const was = window.open;"
        "window.open = (...all) => (told.push(was(...all)), told.at(-1)); null"
    )
    found = row(page, "copy031")
    with page.context.expect_page() as opening:
        found.get_by_role("button", name="Open").click()
        text = page.evaluate("told[0].document.body.textContent + told[0].document.title")
    assert text.startswith("Opening run 31 …A stopped experiment is opened")
    assert text.endswith("Opening run 31 …")
    opening.value.get_by_text("Read only.").wait_for()
    row(page, "copy031").get_by_role("button", name="Close").click()
    eventually(lambda: not registry.is_alive(registry.root() / "copy031"), 60)


def test_the_best_are_sorted_within_one_direction(page: Any) -> None:
    page.evaluate("location.hash = '#/overview?find=copy04&sort=best'")
    page.get_by_text("The highest result is best").wait_for()
    values = [float(text) for text in page.locator("td.best-cell").all_inner_texts() if text.strip()]
    assert values == sorted(values, reverse=True)
    results = [
        {"objectives": {"size": "maximize", "default": "minimize"}, "best": {"default": 2, "size": 1}},
        {"objectives": {"default": "minimize"}, "best": 1},
        {"objectives": {"size": "minimize", "loss": "minimize"}, "best": None},
        {"objectives": {"default": "minimize"}, "best": None},
    ]
    listed = [{"id": str(n), "digest": {**one, "counts": {"SUCCEEDED": 3}}} for n, one in enumerate(results)]
    assert page.evaluate(GROUPS, listed) == [["minimize", ["1", "0"]], ["front", ["2"]], ["", ["3"]]]


GROUPS = """(all) => import(new URL("hub/groups.js", document.baseURI)).then(({ groups }) =>
  groups(all, "best", true, false).map(({ key, rows }) => [key, rows.map(({ id }) => id)]))"""


def test_several_are_tagged_grouped_and_deleted_at_once(fresh_page: Any) -> None:
    page = fresh_page
    chosen = ("copy050", "copy051")
    for experiment in chosen:
        row(page, experiment).get_by_role("checkbox").check()
    page.get_by_role("button", name="Tag 2").click()
    page.get_by_label("Tag", exact=True).last.fill("batch one")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("2 experiments tagged.").wait_for()
    assert all(registry.find(one).remarks.tags == ("batch one",) for one in chosen)
    page.get_by_label("Find experiments").fill("run 5")
    page.get_by_label("Group").select_option("tag")
    page.get_by_role("rowheader", name="batch one 2").wait_for()
    assert page.locator("tbody", has_text="batch one 2").locator("tr[data-id]").count() == 2
    page.get_by_role("button", name="Delete 2").click()
    page.get_by_text("run 50, run 51").wait_for()
    page.get_by_role("button", name="Delete them").click()
    page.get_by_text("2 experiments deleted.").wait_for()
    assert not any((registry.root() / one).exists() for one in chosen)


def test_dense_rows_are_lower_and_stand_in_the_address(page: Any) -> None:
    found = row(page, "copy06")
    high = found.bounding_box()["height"]
    page.get_by_label("Dense").check()
    eventually(lambda: row(page, "copy06").bounding_box()["height"] < 0.8 * high, 10)
    assert "rows=dense" in page.url


def test_columns_are_chosen_sorted_by_and_remembered(page: Any, open_page: Any) -> None:
    page.evaluate("location.hash = '#/overview?find=run+7'")
    page.get_by_role("button", name="Columns").click()
    choice = page.get_by_role("checkbox", name=re.compile("of the best trial")).first
    name = choice.locator("..").inner_text().removesuffix(" of the best trial")
    choice.click()
    page.keyboard.press("Escape")  # the panel covers the table
    page.get_by_role("columnheader", name=name, exact=True).get_by_role("button").click()
    page.locator("th.extra-cell[aria-sort=ascending]").wait_for()
    assert f"sort=p.{name}" in page.url
    cells = page.locator("td.extra-cell").all_inner_texts()
    assert len(cells) == rows(page).count()
    other = open_page()
    other.goto(hub_server.find_served_address())
    other.get_by_role("columnheader", name=name, exact=True).wait_for()
    other.get_by_role("button", name="Columns").click()
    other.get_by_role("button", name="Restore the default columns").click()
    other.locator("td.extra-cell").first.wait_for(state="detached")


def test_a_view_of_the_list_is_saved_as_a_link(page: Any) -> None:
    page.evaluate("location.hash = '#/overview?find=run+8&sort=best&rows=dense'")
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Name of this view").fill("the eights")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="the eights").wait_for()
    page.evaluate("location.hash = '#/overview'")
    page.get_by_role("link", name="the eights").click()
    eventually(lambda: "find=run+8&sort=best&rows=dense" in page.url)
    page.get_by_role("button", name="Remove the view the eights").click()
    page.get_by_role("link", name="the eights").wait_for(state="detached")


def test_the_differences_of_two_configurations_are_shown(page: Any) -> None:
    page.evaluate("location.hash = '#/compare?id=copy020&id=running1'")
    table = page.get_by_role("group", name="Configurations").get_by_role("table")
    table.wait_for()
    lines = {text.split("\t")[0]: text.split("\t")[1:] for text in table.locator("tbody tr").all_inner_texts()}
    assert lines["maxTrialNumber"] == ["30", "2"], "as it was last changed"
    assert lines["trialCommand"][0] == "sleep 60"
    assert lines["tuner.classArgs.seed"][1] == "4123456789"
    assert "trialConcurrency" not in lines, "it is 1 in both"
    page.get_by_text(re.compile(r"\d+ fields are the same in all")).wait_for()


def test_an_experiment_is_run_again_with_changes(fresh_page: Any) -> None:
    page = fresh_page
    row(page, "running1").get_by_role("link", name="Run really running again with changes").click()
    area = page.get_by_label("Configuration (YAML)")
    eventually(lambda: "maxTrialNumber: 2" in area.input_value())
    area.fill(
        area.input_value().replace("really running", "run again").replace("maxTrialNumber: 2", "maxTrialNumber: 1")
    )
    page.get_by_role("button", name="Start").click()
    page.get_by_label("Find experiments").fill("run again")
    page.get_by_role("button", name="run again", exact=True).wait_for()
    page.locator(".trials-cell").get_by_text("of 1").wait_for()


def test_the_configuration_that_was_asked_for_last_is_shown_whichever_comes_last(page: Any) -> None:
    held: list[Any] = []
    address = re.compile("/api/v1/experiments/running1/config$")
    other = next(one.id for one in registry.entries() if "& deep" in one.name)
    page.route(address, lambda route: held.append(route))
    page.evaluate("location.hash = '#/new?from=running1'")
    eventually(lambda: page.evaluate("1") and held)
    page.evaluate(f"location.hash = '#/new?from={other}'")
    page.wait_for_function("() => document.querySelector('#new-config').value.includes('& deep')")
    with page.expect_response(address):
        held[0].continue_()
    page.evaluate("""async () => {
      for (let frame = 0; frame < 20; frame += 1) await new Promise(requestAnimationFrame);
    }""")
    assert "& deep" in page.get_by_label("Configuration (YAML)").input_value()
    page.unroute(address)
