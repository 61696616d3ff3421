"""The web interface with very many trials, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from nnilite.testing import eventually
from platforms.many_trials import many_trials

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def ten_thousand(browser: Any) -> Iterator[str]:
    with many_trials(10_000, 50) as (url, _):
        yield url


def shown_numbers(page: Any) -> list[int]:
    """The numbers of the trials whose rows lie in sight, top to bottom."""
    return list(
        page.evaluate(
            """() => {
          const frame = document.querySelector(".grid").getBoundingClientRect();
          return [...document.querySelectorAll(".grid-row")].filter((row) => {
            const {top, bottom} = row.getBoundingClientRect();
            return bottom > frame.top + 36 && top < frame.bottom;
          }).map((row) => Number(row.children[1].innerText.replaceAll(",", "")));
        }"""
        )
    )


def test_a_table_that_loads_never_says_that_no_trial_matches(open_page: Any, ten_thousand: str) -> None:
    page = open_page()
    page.add_init_script(
        """window.said = [];
        new MutationObserver(() => {
          const text = document.body?.innerText ?? "";
          if (text.includes("No matching trials")) said.push(text.match(/.* trials/)?.[0]);
        }).observe(document, { childList: true, subtree: true, characterData: true });"""
    )
    page.goto(f"{ten_thousand}/#/trials")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    assert page.evaluate("said") == []


def test_scrolling_ten_thousand_trials_leaves_no_blanks(look: Any, ten_thousand: str) -> None:
    page = look(f"{ten_thousand}/#/trials")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    page.get_by_role("grid").hover()
    filled = len(shown_numbers(page))
    for distance in (400, 12_000, 90_000, -50_000, 250_000, -20_000):
        page.mouse.wheel(0, distance)
        seen = shown_numbers(page)  # at once, whatever has been drawn by now
        assert len(seen) >= filled - 1
        assert seen == list(range(seen[0], seen[0] - len(seen), -1))


def test_the_last_of_ten_thousand_is_reached(look: Any, ten_thousand: str) -> None:
    page = look(f"{ten_thousand}/#/trials")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    page.get_by_role("grid").focus()
    page.keyboard.press("End")
    page.get_by_role("link", name="x0000000").wait_for()


@pytest.mark.long  # Chromium takes ten seconds of the processor for so many
def test_a_thousand_trials_fill_their_pages_of_paper(look: Any, ten_thousand: str) -> None:
    page = look(f"{ten_thousand}/#/trials")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    pages = len(re.findall(rb"/Type /Page\b", page.pdf()))
    assert 20 < pages < 60, "ten thousand rows would be two hundred"


def test_paper_gets_the_first_thousand_trials(look: Any, ten_thousand: str) -> None:
    page = look(f"{ten_thousand}/#/trials")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.get_by_text("The first 1,000 of 10,000 rows.").wait_for()
    assert page.locator(".grid-row").count() == 1000
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    eventually(lambda: page.locator(".grid-row").count() < 100, 10)


@pytest.mark.parametrize(
    "chart",
    [
        "metric",
        "parallel",
        "slices",
        *(pytest.param(chart, marks=pytest.mark.long) for chart in ("contour", "curves", "timeline")),
    ],
)
def test_charts_of_ten_thousand_trials_are_drawn(look: Any, ten_thousand: str, chart: str) -> None:
    page = look(f"{ten_thousand}/#/charts/{chart}")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    page.locator(".chart[data-ready]").first.wait_for(timeout=30_000)


# What takes time by the square of the number needs minutes for a third of them, too.
@pytest.mark.parametrize("trials", [30_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_very_many_trials_open_and_are_filtered(open_page: Any, browser: Any, trials: int) -> None:
    with many_trials(trials, 0) as (url, _):
        page = open_page(f"{url}/#/trials?sort=-metric")
        page.get_by_text(f"{trials:,} trials", exact=True).wait_for(timeout=120_000)
        page.get_by_role("button", name=re.compile("^Failed")).click()
        page.get_by_text(re.compile(rf"^\d?,?\d\d\d of {trials:,} trials$")).wait_for(timeout=30_000)
        page.get_by_role("link", name="Overview", exact=True).click()
        page.locator(".chart[data-ready]").wait_for(timeout=30_000)


SLOW = "() => { const now = Date.now; let more = 0; Date.now = () => now() + (more += 20); }"
"""Each look at the clock takes 20 ms: a chart paints one point a frame, so it is not ready for many seconds."""
FRAMES = "async () => { for (let i = 0; i < 5; i++) await new Promise(requestAnimationFrame); }"


WORD = """() => { const { content, visibility } = getComputedStyle(document.querySelector("#app"), "::before");
  return visibility === "visible" && content; }"""


def test_a_page_whose_program_is_slow_to_arrive_says_that_it_loads(open_page: Any, ten_thousand: str) -> None:
    held: list[Any] = []
    shown = False
    page = open_page()
    page.route(re.compile(r"/app\.js$"), lambda route: route.continue_() if shown else held.append(route))
    page.goto(f"{ten_thousand}/#/trials", wait_until="commit")
    eventually(lambda: page.evaluate(WORD) == '"Loading …"', 60)
    shown = True
    for route in held:
        route.continue_()
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    assert page.evaluate(WORD) != '"Loading …"'


PAINTED = """() => [...document.querySelector(".chart").querySelectorAll("canvas")].some((canvas) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0.7 * width, 0.3 * height, 0.2 * width, 0.4 * height);
  return data.filter((value, at) => at % 4 === 3 && value > 0).length > 0.2 * (data.length / 4);
})"""
"""Whether points cover the right part of the first chart, where the late trials are."""


def test_all_points_are_painted_at_once_and_charts_may_be_left_while_they_paint(
    open_page: Any, ten_thousand: str
) -> None:
    page = open_page(f"{ten_thousand}/#/trials")
    page.get_by_text("10,000 trials", exact=True).wait_for(timeout=60_000)
    page.evaluate(SLOW)
    for chart in ("metric", "slices"):
        page.evaluate(f"location.hash = '#/charts/{chart}'")
        page.locator(".chart[data-ready]").first.wait_for()
        page.evaluate(FRAMES)
        assert chart != "metric" or page.evaluate(PAINTED)
        page.evaluate("location.hash = '#/trials'")
        page.get_by_role("grid").wait_for()
        page.evaluate(FRAMES)  # an error in one of them fails the test
