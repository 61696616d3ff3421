"""The web interface by the keyboard alone: the focus is never lost, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from nnilite.testing import eventually
from platforms.many_trials import many_trials

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def address(browser: Any) -> Iterator[str]:
    with many_trials(30, 3) as (url, _):
        yield url


def table(open_page: Any, address: str, query: str = "") -> Any:
    """A page with the table of trials, all of which have come."""
    page = open_page(f"{address}/#/trials?{query}")
    page.get_by_text(re.compile("30 trials$")).wait_for()
    return page


def focus(page: Any) -> str:
    """The name of what has the focus, or its tag."""
    return str(
        page.evaluate(
            """() => { const { ariaLabel, innerText, labels, tagName, id } = document.activeElement;
            return ariaLabel || labels?.[0]?.innerText || (id === "main" ? "main" : innerText) || tagName; }"""
        )
    )


def press(page: Any, button: str, key: str = "Enter") -> None:
    found = page.get_by_role("button", name=button, exact=True).first
    found.focus()
    found.press(key)


def wait_for_focus(page: Any, name: str) -> None:
    eventually(lambda: focus(page) == name, 10)


def test_what_opens_a_dialog_has_the_focus_again_after_it(open_page: Any, address: str) -> None:
    page = table(open_page, address)
    press(page, "New trial")
    page.get_by_role("dialog").wait_for()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    wait_for_focus(page, "New trial")


def test_what_disappears_gives_the_focus_to_its_neighbour(open_page: Any, address: str) -> None:
    page = table(open_page, address, "p.lr=0.001..&p.hidden=64..")
    press(page, "Remove filter lr: 0.001 to …")
    wait_for_focus(page, "Remove filter hidden: 64 to …")
    page.keyboard.press("Enter")
    wait_for_focus(page, "Trials")  # the table
    page.keyboard.press("Space")
    press(page, "Clear")
    wait_for_focus(page, "Trials")


def test_columns_are_taken_away_one_after_the_other(open_page: Any, address: str) -> None:
    page = table(open_page, address, "cols=sequence,state,started")
    press(page, "Columns")
    page.get_by_role("checkbox", name="State").press("Space")
    wait_for_focus(page, "Started")
    press(page, "Restore the default columns")  # the manager remembers them for other pages, too
    page.get_by_role("checkbox", name="Reason").wait_for()


def test_a_panel_closes_when_the_focus_leaves_it(open_page: Any, address: str) -> None:
    page = table(open_page, address)
    press(page, "Views")
    page.get_by_role("textbox", name="Name of this view").focus()
    page.get_by_role("button", name="CSV").focus()
    page.locator(".pop-panel").wait_for(state="detached")
    press(page, "Columns")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    wait_for_focus(page, "Columns")


def test_a_panel_hears_escape_from_its_beginning(open_page: Any, address: str) -> None:
    page = table(open_page, address)
    left = page.evaluate(
        """async () => {
        const button = [...document.querySelectorAll("button")].find((one) => one.innerText === "Columns");
        button.focus(); button.click();
        while (!document.querySelector(".pop-panel")) await null;  // so no frame is drawn meanwhile
        button.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
        await new Promise(requestAnimationFrame);
        return document.querySelectorAll(".pop-panel").length; }"""
    )
    assert left == 0


def test_the_filters_close_by_escape_from_inside_and_from_their_button(open_page: Any, address: str) -> None:
    page = table(open_page, address)
    panel = page.locator(".filters")
    press(page, "Filters")
    panel.get_by_label("lr from").press("Escape")
    panel.wait_for(state="detached")
    wait_for_focus(page, "Filters")
    page.keyboard.press("Enter")
    panel.wait_for()
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")


def test_tab_passes_the_rows(open_page: Any, address: str) -> None:
    page = table(open_page, address)
    page.get_by_role("button", name="Reason", exact=True).focus()
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.closest('.grid')")


def test_another_view_begins_at_its_content(open_page: Any, address: str) -> None:
    page = table(open_page, address)
    page.get_by_role("grid").press("Enter")
    wait_for_focus(page, "main")
    page.get_by_role("button", name="Customise").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') && document.activeElement.id !== 'main'")
    assert page.title().startswith("Trial x0000029 · ")


def test_who_uses_the_pointer_opens_no_field_by_it(open_page: Any, address: str) -> None:
    page = open_page(f"{address}/#/overview")
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Save").wait_for()
    assert focus(page) != "Trials at once (a whole number from 1)"
    page.get_by_role("button", name="Cancel").click()
    press(page, "Edit")
    wait_for_focus(page, "Trials at once (a whole number from 1)")
