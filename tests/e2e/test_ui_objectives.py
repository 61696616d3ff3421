"""The page of an experiment with several objectives, in a real browser: what it shows is what `nnictl` says."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.failure_outputs import FAILURES
from nnilite._cli import screen
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.testing import eventually
from nnilite.tuning.objectives import front, signs
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

TRIAL = """
import nnilite
p = nnilite.get_next_parameter()
if p["n"] == 1:
    raise ValueError(f"fold {p['x'] * 1e6:.0f} is empty at 0x{int(p['x'] * 2**40):x}")
layers = p["model"].get("layers", 1)
nnilite.report_intermediate_result(p["x"])
nnilite.report_final_result({"accuracy": 1 - (p["x"] - 0.5) ** 2, "size": p["n"] * layers * (1 + p["x"])})
"""
DEEP = {
    "layers": {"_type": "choice", "_value": [2, 3, 4], "_unit": "blocks"},
    "decay": {"_type": "loguniform", "_value": [1e-5, 0.5]},
}
LONG = "probability_of_a_zero_in_the_last_fully_connected_layer"
SPACE = {
    "x": {"_type": "quniform", "_value": [0, 1, 0.1]},
    "n": {"_type": "randint", "_value": [1, 9]},
    "model": {"_type": "choice", "_value": [{"_name": "deep", **DEEP}, {"_name": "flat"}]},
    LONG: {"_type": "uniform", "_value": [0, 0.5]},
}
OBJECTIVES = {"accuracy": "maximize", "size": "minimize"}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """The address of an experiment of 40 trials that is done, and a client of it."""
    folder = tmp_path_factory.mktemp("two goals")
    (folder / "trial.py").write_text(TRIAL)
    config = {
        "searchSpace": SPACE,
        "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
        "trialConcurrency": 4,
        "maxTrialNumber": 40,
        "stopOnSameError": 0,
        "resultConstraints": ["size <= 12"],
        "tuner": {"name": "NSGA2", "classArgs": {"seed": 1, "objectives": OBJECTIVES}},
        "trainingService": {"platform": "local"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            eventually(lambda: client.profile()["state"] == "DONE", 90)
            yield entry.url or "", client
            client.stop()


def feasible(client: Client) -> list[dict[str, Any]]:
    return [trial for trial in client.trials(states=["SUCCEEDED"]) if not trial["violates"]]


def front_of(client: Client) -> list[str]:
    """The front as `nnictl trial ls --front` has it."""
    found = feasible(client)
    return [trial["id"] for trial in front(((one, one["value"]) for one in found), signs(OBJECTIVES))]


def test_the_front_has_the_same_trials_as_on_the_command_line(look: Any, experiment: Any) -> None:
    url, client = experiment
    expected = front_of(client)
    page = look(f"{url}/#/charts/pareto")
    chips = page.get_by_role("region", name="On the front").locator("a.chip")
    chips.first.wait_for()
    eventually(lambda: chips.count() == len(expected))
    assert [text.partition(":")[0] for text in chips.all_inner_texts()] == expected
    assert page.get_by_label("Goal of x").input_value() == "maximize"
    page.get_by_label("Goal of x").select_option("minimize")
    eventually(lambda: [text.partition(":")[0] for text in chips.all_inner_texts()] != expected)


def test_results_that_violate_a_constraint_are_crosses_and_add_no_hypervolume(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/charts/pareto")
    page.get_by_text("Crosses violate a constraint.").wait_for()
    with page.expect_download() as download:
        page.get_by_role("region", name="Hypervolume").get_by_role("button", name="CSV").click()
    rows = Path(download.value.path()).read_text().splitlines()[1:]
    assert {row.split(",")[1] for row in rows} == {trial["id"] for trial in feasible(client)}
    assert len(rows) < client.profile()["counts"]["SUCCEEDED"]
    [wrong, *_] = [trial["id"] for trial in client.trials(states=["SUCCEEDED"]) if trial["violates"]]
    [[_, sentence]] = of_module(page, "parts/crosses.js", f"it.violation('{wrong}')")
    assert sentence.startswith("size <= 12")


def test_the_overview_shows_each_objective_and_the_front(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/")
    card = page.get_by_role("region", name="Objectives", exact=True)
    eventually(lambda: card.locator(".big").inner_text() == str(len(front_of(client))))
    assert card.locator("tbody td:nth-child(2)").all_inner_texts() == ["maximize", "minimize"]
    history = page.get_by_role("region", name=re.compile("^Metric of all trials"))
    history.get_by_label("Objective").select_option("size")
    history.locator(".chart[data-ready]").wait_for()


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(("boot.js", "style/base.css"), id="the first files"),
        pytest.param(("app.js", "lib/objectives.js"), id="the program", marks=pytest.mark.long),
        pytest.param(("lib/api.js", "charts/pareto.js"), id="what it imports", marks=pytest.mark.long),
    ],
)
def test_the_page_starts_although_files_of_it_get_lost(open_page: Any, experiment: Any, lost: tuple[str, str]) -> None:
    """As they do when the browser's network changes: Chromium gives up what it loads."""
    page = open_page()
    given_up: list[str] = []
    page.on("requestfailed", lambda request: given_up.append(request.url))
    for file in lost:  # a module is asked for ahead, and again where that was in vain
        page.route(f"**/{file}", lambda route: route.abort("internetdisconnected"), times=2)
    page.goto(f"{experiment[0]}/#/charts/pareto")
    page.locator(".chart[data-ready]").first.wait_for()
    assert all(any(url.endswith(file) for url in given_up) for file in lost)
    eventually(lambda: page.evaluate("getComputedStyle(document.body).margin") == "0px")


def test_a_stylesheet_that_gets_lost_comes_without_a_new_load_of_the_page(open_page: Any, experiment: Any) -> None:
    page = open_page()
    page.route("**/style/parts.css", lambda route: route.abort("internetdisconnected"), times=2)
    with page.expect_event("requestfinished", lambda request: request.url.endswith("parts.css")):
        page.goto(f"{experiment[0]}/#/charts/pareto")
        page.evaluate("document.body.dataset.kept = 'typed'")
    assert page.evaluate("document.body.dataset.kept") == "typed"


def test_failures_that_differ_in_numbers_only_are_one(look: Any, experiment: Any) -> None:
    url, client = experiment
    failed = client.profile()["counts"]["FAILED"]
    page = look(f"{url}/")
    trouble = page.get_by_role("region", name="Failures and waiting")
    trouble.get_by_text("exit code 1: ValueError: fold … is empty at …", exact=True).wait_for()
    assert trouble.locator("tr").count() == 1
    trouble.get_by_role("link").click()
    page.get_by_text(f"{failed} of 40 trials").wait_for()


def test_numbers_are_written_as_people_write_them(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/contour?x=p.n&y=p.model.decay")
    page.locator(".chart[data-ready]").wait_for()
    assert of_module(page, "parts/log_scale.js", "evenTicks(1, 30, true)") == [5, 10, 15, 20, 25, 30]
    assert of_module(page, "parts/log_scale.js", "evenTicks(1, 3, true)") == [1, 2, 3]
    assert of_module(page, "parts/log_scale.js", "logTicks(1.3e-5, 0.43)") == [1e-4, 1e-3, 1e-2, 1e-1]
    exact = "[0.1 + 0.2, 40, 1 / 3].map((one) => it.exact(one))"
    assert of_module(page, "lib/format.js", exact) == ["0.3", "40", "0.3333333333333333"]
    short = "[508220.3, 16897.54, 1234.567, 0.00053731, 0.00000000099999999].map((one) => it.number(one))"
    assert of_module(page, "lib/format.js", short) == ["508,220", "16,898", "1,234.6", "0.00053731", "1e-9"]


def test_a_trial_that_failed_stands_at_the_bottom_of_the_chart_and_says_why(look: Any, experiment: Any) -> None:
    url, client = experiment
    failed = next(client.trials(states=["FAILED"]))
    page = look(f"{url}/")
    page.locator(".chart[data-ready]").first.wait_for()
    found = "{score: -3, sequence: 0}"
    drawn = f"it.historyOption([{found}], [-3], [{json.dumps(failed)}], {{title: 'loss', goal: 'minimize'}})"
    option = of_module(page, "views/history.js", drawn)
    cross = option["series"][-1]
    assert (option["yAxis"][cross["yAxisIndex"]]["min"], cross["data"][0]["value"]) == (0, [failed["sequence"], 0])
    tip = of_module(
        page,
        "views/history.js",
        f"{drawn}.series.at(-1).tooltip.formatter({json.dumps({'data': cross['data'][0]})}).textContent",
    )
    assert f"Trial {failed['id']}" in tip
    assert "failed: exit code 1: ValueError: fold" in tip


def test_a_failure_is_named_by_its_error_and_not_by_what_follows(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    shown = of_module(page, "lib/format.js", f"{json.dumps(list(FAILURES))}.map((one) => it.brief(one))")
    assert shown == [screen.brief(text) for text in FAILURES]


def of_module(page: Any, file: str, expression: str) -> Any:
    """What an expression is with the names of one of the page's modules, or with the module as `it`."""
    code = f"({{ {', '.join(('evenTicks', 'logTicks', 'stairs'))} }}, it) => {expression}"
    return page.evaluate(f"(file) => import(new URL(file, document.baseURI)).then((it) => ({code})(it, it))", file)


def test_parameters_of_an_option_have_its_scale_its_unit_and_its_options(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/slices")
    page.get_by_role("heading", name="model.layers (blocks)").wait_for()
    known = "['model.decay', 'model.layers', 'x', 'model.nothing', 'nothing'].map((one) => it.isLogarithmic(one))"
    assert of_module(page, "lib/filtered.js", known) == [True, False, False, False, False]
    text = "it.fields.value.parameters.filter(({ text }) => text).map(({ field }) => field)"
    assert sorted(of_module(page, "lib/filtered.js", text)) == ["p.model", "p.model.layers"]
    dotted = "it.spaceOf('a.b.c', { 'a.b': { _value: [{ _name: 'x', c: { _type: 'uniform' } }] } })"
    assert of_module(page, "lib/filtered.js", dotted) == {"_type": "uniform"}
    look(f"{experiment[0]}/#/experiment/space")
    rows = page.get_by_role("region", name="Search space").locator("tbody tr")
    rows.first.wait_for()
    assert rows.locator("td:first-child").all_inner_texts()[3:5] == ["model=deep.layers", "model=deep.decay"]
    assert rows.nth(3).locator("td").all_inner_texts()[1:] == ["choice", "2, 3, 4", "in blocks"]


def test_steps_of_less_than_a_pixel_are_no_slope(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    line = "stairs([[0, 5], [150, 4.9999], [300, 4.9999], [300.5, 4], [600, 4]])"
    flat = [[0, 5], [2, 5], [150, 4.9999], [152, 4.9999], [300, 4.9999], [300.5, 4], [302.5, 4], [600, 4]]
    assert of_module(page, "parts/stairs.js", line) == flat
    assert of_module(page, "parts/stairs.js", "stairs([])") == []


NARROW = (
    "overview",
    "charts/slices",
    "charts/contour?x=p.n&y=p." + LONG,
    "charts/rank?x=p." + LONG,
    "experiment/space",
)


def test_names_of_any_length_leave_room_on_a_phone(look: Any, experiment: Any) -> None:
    url, client = experiment
    best = front_of(client)[:2]
    phone = {"width": 400, "height": 844}
    for view in (*NARROW, f"trials/{best[0]}", f"charts/compare?ids={','.join(best)}"):
        page = look(f"{url}/#/{view}", viewport=phone)
        page.locator("main .card :is(.chart[data-ready], dd, td)").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, view
    assert page.locator(".compare td").first.bounding_box()["x"] < 250
    look(f"{url}/#/trials/{best[0]}", viewport=phone)
    value = page.get_by_role("region", name="Parameters").locator("dd").first
    eventually(lambda: value.bounding_box()["width"] > 100)


def test_no_trial_is_shown_to_run_on_a_host_after_the_end(look: Any, experiment: Any) -> None:
    url, client = experiment
    eventually(lambda: client.profile()["hosts"][0]["running"] == 0)
    page = look(f"{url}/")
    hosts = page.get_by_role("region", name="Services and hosts")
    eventually(lambda: hosts.locator("tbody td.number").inner_text() == "0")


def test_a_training_service_that_fails_is_named_even_if_it_is_the_only_one(open_page: Any, experiment: Any) -> None:
    page = open_page(f"{experiment[0]}/")
    hosts = page.get_by_role("region", name="Services and hosts")
    hosts.locator("td").first.wait_for()
    assert hosts.get_by_text("set aside").count() == 0
    page.evaluate(
        """async () => {
            const { profile, takeProfile } = await import(new URL("lib/live_data.js", document.baseURI).href);
            const services = profile.value.services.map((one) => ({ ...one, state: "aside", reason: "no answer" }));
            takeProfile({ ...profile.value, services });
        }"""
    )
    hosts.get_by_text("no answer").wait_for()


def test_importance_is_asked_for_each_objective(experiment: Any) -> None:
    found = experiment[1].ask("GET", "/importance", {"method": "pedAnova", "key": "size"})
    assert found["reason"] == ""
    assert {one["parameter"] for one in found["importances"]} >= {"n", "x", "model"}


def test_j_and_enter_work_at_once(open_page: Any, experiment: Any) -> None:
    page = open_page(f"{experiment[0]}/#/trials")
    page.get_by_text("40 trials", exact=True).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.get_by_text("number 38").wait_for()


VIEWS = (
    *("overview", "trials", "charts/metric", "charts/parallel", "charts/slices", "charts/contour", "charts/curves"),
    *("charts/importance?method=pedAnova", "charts/duration", "charts/timeline", "charts/pareto", "charts/compare"),
    *("charts/rank", "charts/edf?scale=log", "charts/groups"),
    *(
        "experiment/config",
        "experiment/space",
        "experiment/ran",
        "experiment/logs",
        "experiment/export",
        "experiment/others",
    ),
)


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 400),
        pytest.param("light", 400, marks=pytest.mark.long),
        pytest.param("dark", 1280, marks=pytest.mark.long),
    ],
)
def test_axe_finds_nothing_in_any_view(look: Any, experiment: Any, scheme: str, width: int) -> None:
    url, client = experiment
    page = look(f"{url}/", color_scheme=scheme, viewport={"width": width, "height": 850})
    page.get_by_text("Live", exact=True).wait_for()
    for view in (*VIEWS, f"trials/{front_of(client)[0]}"):
        page.evaluate("view => { location.hash = `#/${view}`; }", view)
        page.locator("main .card, main .grid").first.wait_for()
        eventually(lambda: page.get_by_text("Loading …").count() == 0)
        assert faults(page) == [], view


def test_groups_say_that_trials_which_violate_a_constraint_are_not_counted(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/groups")
    page.get_by_text("Best and median are of succeeded trials that violate no constraint.").wait_for()


def test_the_best_results_are_never_cut_off(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    page.get_by_role("heading", name="Progress").wait_for()
    wild = "it.robustRange([...Array.from({ length: 40 }, (_, n) => n), -1e9, 1e9], {goal})"
    ranges = {goal: of_module(page, "parts/robust_range.js", wild.replace("{goal}", f"'{goal}'")) for goal in GOALS}
    assert "max" not in ranges["maximize"]
    assert -100 < ranges["maximize"]["min"] < 0
    assert "min" not in ranges["minimize"]
    assert 39 < ranges["minimize"]["max"] < 200


def test_columns_are_as_wide_as_their_options_within_limits(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/trials")
    page.locator(".grid-row").first.wait_for()
    widths = [["k"], ["k", "transformer"], ["k", "o" * 200]]
    assert of_module(page, "views/trials.js", f"{widths}.map(it.widthFor)") == [100, 128, 190]


FIRST = """(() => {
  const { name, left } = it.firstAxis(%r);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "12.5px sans-serif";
  return pen.measureText(name).width / 2 - left;
})()"""


def test_the_name_of_the_first_parallel_axis_is_not_cut_off_at_the_left(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    page.get_by_role("heading", name="Progress").wait_for()
    assert of_module(page, "charts/parallel.js", FIRST % LONG) <= 0
    assert of_module(page, "charts/parallel.js", "it.firstAxis('x')") == {"name": "x", "left": 44}


GOALS = ("maximize", "minimize")


def test_long_names_and_options_get_the_room_that_there_is(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    page.get_by_role("heading", name="Progress").wait_for()
    assert of_module(page, "parts/chart.js", "it.axis({ name: 'a' + 'n'.repeat(200) + 'z' }).name.length") == 48
    assert of_module(page, "charts/parallel.js", "it.labelOf('a' + 'o'.repeat(200) + 'z')") == "aooooooo…ooooooz"
    assert of_module(page, "charts/parallel.js", "[it.labelOf('a\\nb'), it.labelOf(true)]") == ["a b", "true"]
