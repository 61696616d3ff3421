"""Rows of the web interface's tables that are ticked together, and where one is in a table, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from nnilite._running.manager_client import Client
from nnilite.testing import eventually
from platforms.many_trials import many_trials

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def sixty(browser: Any) -> Iterator[tuple[str, Client]]:
    with many_trials(60, 3) as found:
        yield found


def all_of(open_page: Any, url: str, query: str = "") -> Any:
    """A page with the table of sixty trials, all of which have come."""
    page = open_page(f"{url}/#/trials?{query}")
    page.get_by_text("60 trials", exact=True).wait_for()
    return page


def box_of_all(page: Any, trials: int) -> Any:
    return page.get_by_role("checkbox", name=f"Select the {trials} trials shown")


def ticked(page: Any) -> list[str]:
    return list(page.locator(".grid-row[aria-selected=true] a").all_inner_texts())


def test_all_trials_that_the_filters_leave_are_ticked_at_once(open_page: Any, sixty: Any) -> None:
    page = open_page(f"{sixty[0]}/#/trials?q=x000000")
    box = box_of_all(page, 10)
    box.check()
    page.get_by_text("10 selected", exact=True).wait_for()
    assert len(ticked(page)) == 10
    page.get_by_label("Find trials").fill("x000001")
    page.get_by_text("10 selected, 10 of them hidden by filters").wait_for()
    box_of_all(page, 10).check()
    page.get_by_text("20 selected, 10 of them hidden by filters").wait_for()
    box_of_all(page, 10).uncheck()
    page.get_by_label("Find trials").fill("x000000")
    page.get_by_text("10 of them hidden").wait_for(state="detached")
    page.get_by_text("10 selected", exact=True).wait_for()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.locator(".compare thead a").nth(9).wait_for()


def test_the_box_of_all_stands_between_on_and_off_for_some(open_page: Any, sixty: Any) -> None:
    page = all_of(open_page, sixty[0])
    box = box_of_all(page, 60)
    page.locator(".grid-row input").nth(2).check()
    assert box.evaluate("box => box.indeterminate && !box.checked")
    box.press("Space")
    assert box.evaluate("box => !box.indeterminate && box.checked")
    page.get_by_text("60 selected").wait_for()
    box.press("Space")
    page.get_by_text("60 selected").wait_for(state="detached")


def test_shift_ticks_all_rows_between(open_page: Any, sixty: Any) -> None:
    page = all_of(open_page, sixty[0])
    page.locator(".grid-row input").nth(1).click()
    page.locator(".grid-row input").nth(5).click(modifiers=["Shift"])
    page.get_by_text("5 selected").wait_for()
    assert ticked(page) == [f"x00000{number}" for number in range(58, 53, -1)]
    page.locator(".grid-row input").nth(3).click()
    page.locator(".grid-row input").nth(1).click(modifiers=["Shift"])
    page.get_by_text("2 selected").wait_for()


def test_more_than_can_be_compared_says_which_are(open_page: Any, sixty: Any) -> None:
    page = all_of(open_page, sixty[0], "sort=sequence")
    page.get_by_role("grid", name="Trials").press("Control+a")
    page.get_by_text("60 selected").wait_for()
    page.get_by_role("link", name="Compare the first 12").click()
    page.locator(".compare thead a").nth(11).wait_for()
    assert page.locator(".compare thead a").first.inner_text() == "x0000000"
    page.get_by_label("Trial to add").fill("40")
    page.get_by_role("button", name="Add").click()
    page.get_by_text("12 trials can be compared at once. Remove one first.").wait_for()
    page.get_by_label("Trial to add").fill("nope")
    page.get_by_role("button", name="Add").click()
    page.get_by_text("There is no trial nope.").wait_for()
    page.goto(f"{page.url.partition('#')[0]}#/charts/compare")
    page.get_by_text("These are the first of 60.").wait_for()


def test_many_trials_are_run_again_only_after_a_question(open_page: Any, sixty: Any) -> None:
    page = all_of(open_page, sixty[0])
    box_of_all(page, 60).check()
    page.get_by_role("button", name="Run 60 again").click()
    page.get_by_role("dialog").get_by_text("Run 60 trials again?").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert {trial["attempt"] for trial in sixty[1].trials()} == {0}


def test_a_table_that_one_comes_back_to_is_where_it_was_left(open_page: Any, sixty: Any) -> None:
    page = all_of(open_page, sixty[0])
    page.get_by_role("grid").focus()
    for _ in range(30):
        page.keyboard.press("j")
    top = page.locator(".grid").evaluate("grid => grid.scrollTop")
    assert top > 0
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("x0000029")).wait_for()
    page.go_back()
    page.locator("#row-x0000029.active").wait_for()
    assert page.locator(".grid").evaluate("grid => grid.scrollTop") == top


def test_a_new_trial_moves_neither_the_rows_in_sight_nor_the_active_one(open_page: Any) -> None:
    with many_trials(60, 3) as (url, client):
        page = all_of(open_page, url)
        page.get_by_role("grid").focus()
        for _ in range(30):
            page.keyboard.press("j")
        row = page.locator("#row-x0000029.active")
        before = row.bounding_box()
        client.add_trial({"lr": 0.01, "hidden": 32, "dropout": 0.1, "optimizer": "adam"})
        page.get_by_text("61 trials").wait_for()
        eventually(lambda: row.bounding_box() == before, 10)
        page.keyboard.press("Space")
        assert ticked(page) == ["x0000029"]
