"""Log scales, the charts of ranks and of the distribution function, and previews of files, in a real browser."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.service import JobState
from nnilite.testing import eventually
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

TRIALS = 20
TRIAL = """
import os, struct, zlib
from pathlib import Path
import nnilite

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

p = nnilite.get_next_parameter()
rows = zlib.compress(b"\\0" + b"\\xff\\x80\\x00" * 7)
header = chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 1, 8, 2, 0, 0, 0))
folder = Path(os.environ["NNI_OUTPUT_DIR"])
(folder / "a plot.png").write_bytes(b"\\x89PNG\\r\\n\\x1a\\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
(folder / "cut.png").write_bytes(b"\\x89PNG")
(folder / "notes.txt").write_text("<b>three</b> words here")
script = "<script>window.top.ran = true</script>"
svg = f"<svg xmlns='http://www.w3.org/2000/svg' onload='window.ran = true'>{script}</svg>"
(folder / "drawing.svg").write_text(svg)
(folder / "page.html").write_text(f"{script}<img src=x onerror='window.ran = true'>")
(folder / "weights.bin").write_bytes(bytes(range(256)))
Path(os.fsdecode(os.fsencode(folder) + b"/odd\\xff.txt")).write_text("its name is not UTF-8")
for value in (1, 0.1, -1):
    nnilite.report_intermediate_result(value)
print("line 1")
nnilite.report_final_result({"default": 10 ** (-4 * p["x"]), "gain": p["x"] - 0.5})
"""
SPACE = {
    "x": {"_type": "quniform", "_value": [0, 1, 0.1]},
    "n": {"_type": "randint", "_value": [1, 9]},
    "kind": {"_type": "choice", "_value": ["one", "two"]},
    "rest": {"_type": "choice", "_value": [None, "", 1]},
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """The address of an experiment that is done, and a client of it."""
    folder = tmp_path_factory.mktemp("more charts")
    (folder / "trial.py").write_text(TRIAL)
    config = {
        "searchSpace": SPACE,
        "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
        "trialConcurrency": 4,
        "maxTrialNumber": TRIALS,
        "tuner": {"name": "Random", "classArgs": {"seed": 1, "optimize_mode": "minimize"}},
        "trainingService": {"platform": "local"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            eventually(lambda: client.profile()["state"] == "DONE", 90)
            yield entry.url or "", client
            client.stop()


def results(client: Client, name: str) -> dict[str, float]:
    """What each succeeded trial has as `name` in its final result."""
    found = {trial["id"]: trial["value"][name] for trial in client.trials(states=["SUCCEEDED"])}
    assert len(found) == TRIALS
    return found


def left_out(how_many: int, of: str) -> re.Pattern[str]:
    return re.compile(f"^Not shown: {how_many} of {of}, which (is|are) 0 or less")


def table(page: Any) -> list[dict[str, str]]:
    """The rows that a chart's button CSV saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").first.click()
    with Path(download.value.path()).open(newline="") as file:
        return list(csv.DictReader(file))


def call(page: Any, file: str, function: str, *given: Any, attempts: int = 4) -> Any:
    """What a function of the page's own sources returns.

    Where another test makes or removes a network interface, the page loses a file, and loads itself again.
    """
    imported = "([file]) => import(new URL(file, document.baseURI))"
    program = f"([file, name, given]) => ({imported})([file]).then((it) => it[name](...given))"
    for _ in range(attempts):
        try:
            return page.evaluate(program, [file, function, given])
        except Exception as error:
            if not any(part in str(error) for part in ("Failed to fetch", "context was destroyed")):
                raise
            page.reload()
    return page.evaluate(program, [file, function, given])


def test_a_log_scale_says_above_the_chart_what_it_leaves_out(look: Any, experiment: Any) -> None:
    url, client = experiment
    low = sum(value <= 0 for value in results(client, "gain").values())
    page = look(f"{url}/#/charts/metric?objective=gain")
    card = page.get_by_role("region", name="Metric of each trial")
    card.get_by_label("Log scale").check()
    note = card.get_by_text(left_out(low, f"{TRIALS} results"))
    note.wait_for()
    assert "scale=log" in page.url
    assert note.bounding_box()["y"] < card.locator(".chart").bounding_box()["y"]
    assert faults(page) == []
    card.get_by_label("Metric", exact=True).select_option("default")  # all of it is above 0
    note.wait_for(state="detached")
    card.get_by_label("Metric", exact=True).select_option("gain")
    note.wait_for()
    card.get_by_label("Log scale").uncheck()
    note.wait_for(state="detached")
    assert "scale" not in page.url


def test_the_cost_so_far_counts_all_trials_also_those_that_a_filter_leaves_out(look: Any, experiment: Any) -> None:
    url, client = experiment
    results(client, "gain")
    page = look(f"{url}/#/charts/metric?p.kind=in:one")
    page.get_by_text(f"of {TRIALS}").first.wait_for()
    program = """async () => {
      const [data, chart] = await Promise.all(
        ["lib/live_data.js", "charts/metric.js"].map((file) => import(new URL(file, document.baseURI))));
      for (const trial of data.trials()) trial.cost = 2;
      return Math.max(...data.trials().map(chart.placesBy("spent")));
    }"""
    assert page.evaluate(program) == 2 * TRIALS


def test_all_charts_of_results_have_a_log_scale(look: Any, experiment: Any) -> None:
    url, client = experiment
    gains = results(client, "gain")
    low = sum(value <= 0 for value in gains.values())
    first, second = list(gains)[:2]
    expected = {
        "charts/slices?objective=gain": left_out(low, f"{TRIALS} results"),
        "charts/edf?objective=gain": left_out(low, f"{TRIALS} results"),
        "charts/curves?order=best": left_out(TRIALS, f"{3 * TRIALS} intermediate results"),
        f"charts/compare?ids={first},{second}": left_out(2, "6 intermediate results"),
    }
    page = look(f"{url}/#/trials/{first}?scale=log")
    page.get_by_text(left_out(1, "3 intermediate results")).wait_for()
    for view, text in expected.items():
        look(f"{url}/#/{view}&scale=log")
        page.get_by_text(text).wait_for()
        assert page.get_by_label("Log scale").is_checked()
        page.locator(".chart[data-ready]").first.wait_for()


def test_ticks_of_a_log_scale_are_round_numbers_also_within_a_decade(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    assert call(page, "parts/log_scale.js", "logTicks", 5e-4, 20) == [0.001, 0.01, 0.1, 1, 10]
    assert call(page, "parts/log_scale.js", "logTicks", 0.3, 4) == [0.3, 1, 3]
    assert call(page, "parts/log_scale.js", "logTicks", 0.9, 0.97) == [0.9, 0.92, 0.94, 0.96]
    assert len(call(page, "parts/log_scale.js", "logTicks", 1e-300, 1e300)) <= 12
    assert call(page, "parts/log_scale.js", "logTicks", 0.01, 0.1 * 0.1) == [0.01, 0.1 * 0.1]
    assert call(page, "parts/log_scale.js", "logTicks", 0.01, 0.01) == []


def test_ticks_between_neighbouring_numbers_have_an_end(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    for low, high in ((1e16, 1e16 + 2), (1e22, 1e22 + 4e6), (-1e308, 1e308), (5e-324, 1e-323), (3, 3)):
        for ticks in ("evenTicks", "logTicks"):
            assert len(call(page, "parts/log_scale.js", ticks, max(low, 1e-300), high)) <= 10


@pytest.mark.parametrize(("file", "function"), [("charts/slices.js", "axisOf"), ("charts/parallel.js", "scaleOf")])
def test_an_axis_of_whole_numbers_has_no_tick_between_them(
    look: Any, experiment: Any, file: str, function: str
) -> None:
    page = look(f"{experiment[0]}/")
    numbers = {"field": "p.n", "text": False, "low": 1, "high": 4, "values": [1, 4], "partial": False, "whole": True}
    assert call(page, file, function, numbers)["minInterval"] == 1
    assert not call(page, file, function, {**numbers, "whole": False})["minInterval"]


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1), ("maximize", -1)])
def test_a_trial_that_diverged_leaves_the_contours_of_the_others(
    look: Any, experiment: Any, goal: str, sign: int
) -> None:
    page = look(f"{experiment[0]}/")
    values = [sign * number / 100 for number in range(99)] + [sign * 1e300]
    points = [{"x": 0.5, "y": 0.5, "z": value} for value in values]
    found = [point["z"] for point in call(page, "charts/contour.js", "tamed", points, goal)]
    assert found[:-1] == values[:-1]
    assert 0.98 < sign * found[-1] < 2
    other = "maximize" if goal == "minimize" else "minimize"
    assert call(page, "charts/contour.js", "tamed", points, other) == points


def test_a_contour_of_the_largest_numbers_has_a_surface(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    points = [{"x": place, "y": place, "z": z} for place, z in ((0, 1e308), (0.5, -1e308), (1, 1.7e308))]
    cells = call(page, "charts/contour.js", "surface", points, 1.7e308)
    assert all(-1 <= cell[2] <= 1 for cell in cells)
    assert max(cell[2] for cell in cells) > 0.9


def test_the_best_line_is_drawn_where_there_are_too_many_for_all(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    for count, kept in ((3, 3), (4000, 4000), (4001, 2001), (9998, 3333)):
        drawn = call(page, "charts/parallel.js", "thin", list(range(count)))
        assert (len(drawn), drawn[-1]) == (kept, count - 1)


def test_a_single_trial_is_drawn_with_all_its_parameters(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    fields = [{"field": f"p.{name}", "values": values} for name, values in (("a", [1]), ("b", ["x"]), ("c", [1, 2]))]
    assert call(page, "lib/filters.js", "drawn", fields) == fields[2:]
    assert call(page, "lib/filters.js", "drawn", fields[:2]) == fields[:2]


def test_a_log_scale_has_room_for_equal_values_and_for_none(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/overview?scale=log")
    ends = "([values]) => import(new URL('parts/log_scale.js', document.baseURI)).then((it) => it.resultAxis(values))"
    ends += ".then(({type, min, max}) => [type, min, max])"
    assert page.evaluate(ends, [[2, 2, None, -1]]) == ["log", 1, 4]
    assert page.evaluate(ends, [[1, 1 + 2e-16]]) == ["log", 0.5, pytest.approx(2)]
    assert page.evaluate(ends, [[0, -3]]) == ["log", 1, 10]
    smallest = page.evaluate(ends, [[5e-324, 1e308]])
    assert smallest[1] > 0
    assert smallest[2] < float("inf")


def test_ranks_and_shares_are_those_of_the_definition(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/")
    assert call(page, "lib/ranks.js", "ranks", [3, 1, 2, 2, 10]) == [0.75, 0, 0.375, 0.375, 1]
    assert call(page, "lib/ranks.js", "ranks", [7]) == [0.5]
    assert call(page, "lib/ranks.js", "shares", [2, 1, 2, -3]) == [[-3, 0], [-3, 0.25], [1, 0.5], [2, 1]]
    assert call(page, "lib/ranks.js", "shares", []) == []
    assert call(page, "lib/ranks.js", "quantile", [4, 1, 3, 2], 0.5) == 2


@pytest.mark.parametrize(("name", "is_low_best"), [("default", True), ("gain", False)])
def test_the_best_trial_has_the_highest_rank(open_page: Any, experiment: Any, name: str, is_low_best: bool) -> None:
    url, client = experiment
    found = results(client, name)
    page = open_page(f"{url}/#/charts/rank?objective={name}&x=p.n&y=p.kind")
    page.locator(".chart[data-ready]").wait_for()
    rows = table(page)
    assert {row["trial"]: float(row[name]) for row in rows} == pytest.approx(found)
    by_rank = sorted(rows, key=lambda row: float(row["rank"]), reverse=True)
    values = [float(row[name]) for row in by_rank]
    assert values == sorted(values, reverse=not is_low_best)


def test_the_distribution_function_is_that_of_the_trials_and_of_the_filtered_ones(
    open_page: Any, experiment: Any
) -> None:
    url, client = experiment
    found = sorted(results(client, "gain").values())
    page = open_page(f"{url}/#/charts/edf?objective=gain")
    page.locator(".chart[data-ready]").wait_for()
    rows = [(float(row["gain"]), float(row["share"])) for row in table(page)]
    expected = [(value, sum(one <= value for one in found) / TRIALS) for value in sorted(set(found))]
    assert rows == pytest.approx([(found[0], 0.0), *expected])
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("one", exact=True).check()
    page.get_by_text(f"of {TRIALS} trials").wait_for()
    assert {row["trials"] for row in table(page)} == {"these trials", "all trials"}


def test_the_timeline_tells_stopped_and_lost_attempts_from_failed_ones(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/timeline")
    colours = page.evaluate("import(new URL('parts/chart.js', document.baseURI)).then((it) => it.STATE_COLOURS)")
    shown = {
        (attempt, trial): call(page, "charts/timeline.js", "shownState", {"state": attempt}, {"state": trial})
        for attempt, trial in (
            ("CANCELED", "EARLY_STOPPED"),
            ("CANCELED", "USER_CANCELED"),
            ("CANCELED", "RUNNING"),
            ("LOST", "SUCCEEDED"),
            ("FAILED", "EARLY_STOPPED"),
        )
    }
    assert list(shown.values()) == ["EARLY_STOPPED", "USER_CANCELED", "CANCELED", "LOST", "FAILED"]
    assert set(JobState.__members__) <= set(colours)
    assert "s-failed" not in {colours[state] for state in shown.values() if state != "FAILED"}


def test_pictures_and_texts_of_a_trial_are_shown_and_run_nothing(open_page: Any, experiment: Any) -> None:
    url, client = experiment
    trial = next(iter(results(client, "default")))
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}/#/trials/{trial}?tab=files")
    pictures = page.get_by_role("region", name="Pictures")
    eventually(lambda: pictures.get_by_alt_text("0/a plot.png").evaluate("one => one.naturalWidth") == 7, 60)
    pictures.get_by_text("A browser cannot show this file as a picture.").wait_for()
    assert pictures.locator("figure").count() == 2
    texts = {
        "notes.txt": "<b>three</b> words here",
        "drawing.svg": "onload='window.ran = true'",
        "page.html": "<script>window.top.ran = true</script>",
    }
    for name, text in texts.items():
        page.get_by_label(f"Show 0/{name}").click()
        page.get_by_role("region", name=f"0/{name}").get_by_text(text).wait_for()
    page.get_by_label("Show 0/weights.bin").click()
    page.get_by_text("This file is not UTF-8 text.").wait_for()
    page.get_by_title("Its name is not UTF-8").wait_for()
    assert page.evaluate("window.ran") is None
    read = {one for one in asked if f"/trials/{trial}/files/" in one}
    assert len(read) == 6
    # Each file is brought here when it is looked at, and not before.
    assert not any("fetch" in one for one in read)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_axe_finds_nothing_in_the_files_of_a_trial(look: Any, experiment: Any, scheme: str, width: int) -> None:
    url, client = experiment
    view = f"trials/{next(iter(results(client, 'default')))}?tab=files&scale=log"
    page = look(f"{url}/#/{view}", color_scheme=scheme, viewport={"width": width, "height": 850})
    page.get_by_label("Show 0/notes.txt").click()
    page.get_by_role("region", name="0/notes.txt").wait_for()
    page.get_by_text("A browser cannot show this file").wait_for()
    page.get_by_text("Not shown:").wait_for()
    assert faults(page) == []


def test_null_and_the_empty_text_are_options_like_others(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/charts/groups?by=p.rest")
    page.get_by_role("heading", name="Groups of trials").wait_for()
    rows = {row["rest"]: int(row["trials"]) for row in table(page)}
    assert rows == Counter(json.dumps(trial["parameters"]["rest"]) for trial in client.trials())
    empty = json.dumps("")
    page.get_by_role("link", name=empty, exact=True).click()
    page.get_by_text(f"{rows[empty]} of {TRIALS} trials").wait_for()


def test_the_output_of_a_trial_that_is_opened_behind_another_page_is_there_when_it_is_looked_at(
    open_page: Any, experiment: Any
) -> None:
    url, client = experiment
    trial = next(iter(results(client, "gain")))
    page = open_page(f"{url}/#/overview")
    page.evaluate("""() => {
      Object.assign(window, { isHidden: true, looks: 0 });
      Object.defineProperty(document, "hidden", { get: () => (window.looks += 1, window.isHidden) });
    }""")
    page.evaluate("hash => { location.hash = hash; }", f"#/trials/{trial}?tab=stdout")
    eventually(lambda: page.evaluate("window.looks ?? 0") >= 2)  # at first, and a second later
    page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_role("region", name="Output").get_by_text("line 1").wait_for()


def test_a_search_marks_what_it_finds_also_behind_letters_that_small_ones_are_two_of(
    look: Any, experiment: Any
) -> None:
    page = look(f"{experiment[0]}/")
    found = call(page, "parts/log.js", "split", "\u0130\u0130 A.b a.B axb", "a.b")
    assert found == ["\u0130\u0130 ", "A.b", " ", "a.B", " axb"]


@pytest.mark.parametrize(
    ("view", "path", "shown"),
    [("experiment/others", "experiments", "this one"), ("experiment/ran?start=0", "provenance", "What ran")],
)
def test_what_could_not_be_read_is_shown_once_it_can(
    open_page: Any, experiment: Any, view: str, path: str, shown: str
) -> None:
    page = open_page(f"{experiment[0]}/#/overview")
    page.expected_errors.append("500")
    address = re.compile(f"/api/v1/{path}($|[?])")
    page.route(address, lambda route: route.fulfill(status=500, json={"error": "its disk hangs"}))
    page.goto(f"{experiment[0]}/#/{view}")
    page.get_by_text("its disk hangs").wait_for()
    page.unroute(address)
    if path == "provenance":
        page.evaluate("location.hash = '#/experiment/ran?start=-1'")
    else:
        page.evaluate("""async () => {
          const { connection } = await import(new URL("lib/live_data.js", document.baseURI));
          connection.value = { ...connection.value, state: "lost" };
        }""")
    page.get_by_text("its disk hangs").wait_for(state="detached")
    page.locator("main").get_by_text(shown, exact=True).first.wait_for()
