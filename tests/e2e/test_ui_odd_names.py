"""Parameters and metrics whose names JavaScript's objects have themselves, hundreds of them, and the page on paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.running import ended_experiment
from nnilite._running.manager_client import Client

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

MANY = [f"p{number:03d}" for number in range(160)]
INHERITED = ["constructor", "toString", "__proto__"]
TRIAL = """
import nnilite
p = nnilite.get_next_parameter()
nnilite.report_final_result({"default": 1, "constructor": 2, "toString": 3, "__proto__": 4})
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """An experiment of two trials, of which only the second one has the parameters of the odd names."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "trial.py").write_text(TRIAL)
    inner = {name: {"_type": "choice", "_value": [5]} for name in INHERITED}
    space = {
        "net": {"_type": "choice", "_value": [{"_name": "plain"}, {"_name": "odd", **inner}]},
        **{name: {"_type": "choice", "_value": [1]} for name in [*INHERITED, *MANY]},
    }
    with ended_experiment(folder, space, 2) as (entry, client):
        yield entry.url or "", client


def test_metrics_and_parameters_of_such_names_are_on_the_page_of_a_trial(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/trials/{next(iter(client.trials()))['id']}")
    metrics = page.get_by_role("region", name="Final metric").locator("dt")
    metrics.first.wait_for()
    assert metrics.all_inner_texts()[:3] == INHERITED
    parameters = page.get_by_role("region", name="Parameters").locator("dt").all_inner_texts()
    assert set(INHERITED) < set(parameters)


def test_a_parameter_that_a_trial_lacks_is_an_empty_cell_whatever_its_name(look: Any, experiment: Any) -> None:
    url, client = experiment
    client.update(maxTrialNumber=3)
    client.add_trial({"net": {"_name": "plain"}, "p000": 1})
    page = look(f"{url}/#/trials?cols=sequence,p.constructor,p.toString&sort=-sequence")
    row = page.locator(".grid-row").first
    row.get_by_text("2", exact=True).wait_for()
    assert "function" not in row.inner_text()
    assert row.locator("[title]").all_inner_texts()[-2:] == ["", ""]


@pytest.mark.parametrize("view", ["", "trials"])
def test_very_many_parameters_push_nothing_off_the_page(look: Any, experiment: Any, view: str) -> None:
    url, client = experiment
    page = look(f"{url}/#/{view and 'trials/' + next(iter(client.trials()))['id']}")
    group = page.get_by_role("group", name="Parameters")
    group.wait_for()
    assert group.locator("dt").count() > len(MANY)
    height = "one => [one.clientHeight < 700, one.scrollHeight > one.clientHeight, one.tabIndex]"
    assert group.evaluate(height) == [True, True, 0], "it scrolls, also by keys"
    page.emulate_media(media="print")
    assert group.evaluate("one => one.scrollHeight === one.clientHeight"), "on paper all are there"
    page.emulate_media(media="screen")


def test_a_dark_page_is_printed_dark_on_white(look: Any, experiment: Any) -> None:
    page = look(experiment[0], color_scheme="dark")
    page.get_by_role("region", name="Progress").wait_for()
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert not page.get_by_role("button", name="Stop").is_visible()
    page.emulate_media(media="screen", color_scheme="light")


def test_the_table_of_trials_is_printed_with_its_head(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/trials")
    page.locator(".grid-row").first.wait_for()
    page.emulate_media(media="print")
    assert page.get_by_role("columnheader", name="State").get_by_text("State").is_visible()
    assert page.locator(".grid").evaluate("one => getComputedStyle(one).overflow") == "visible", "or it fills a page"
    page.emulate_media(media="screen")
