"""What people do in the web interface, in a real browser on running experiments."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.running import starting
from nnilite._running import launch
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SLOW = """
import time, nnilite
nnilite.get_next_parameter()
for step in range(12):
    nnilite.report_intermediate_result(step)
    print("step", step, flush=True)
    time.sleep(0.1)
time.sleep(60)  # without results, each of which the pages would draw
"""
BRIEF = "import time, nnilite\ntime.sleep(0.5)\nnnilite.report_final_result(nnilite.get_next_parameter()['x'])\n"


@pytest.fixture
def running(start: Any) -> Any:
    """An experiment whose two trials run for a minute."""
    found = start(SLOW, maxTrialNumber=2)
    found.wait_for(lambda: [t for t in found.trials() if t["state"] == "RUNNING"])
    return found


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for the tests that change nothing of it but its limits: its two trials outlast them."""
    folder = tmp_path_factory.mktemp("lasting")
    with pytest.MonkeyPatch.context() as patch, starting(folder) as start:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        found = start(SLOW.replace("sleep(60)", "sleep(600)"), maxTrialNumber=2)
        found.wait_for(lambda: [t for t in found.trials() if t["state"] == "RUNNING"])
        yield found


def confirm(page: Any, name: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def test_a_running_trial_is_watched_and_killed(open_page: Any, running: Any) -> None:
    trial = next(t for t in running.trials() if t["state"] == "RUNNING")
    page = open_page(f"{running.entry.url}/#/trials/{trial['id']}")
    page.locator(".chart[data-ready]").wait_for()
    page.get_by_role("region", name="Output", exact=True).get_by_text(re.compile("step 9")).wait_for()
    page.get_by_role("button", name="Kill").click()
    confirm(page, "Kill")
    page.locator(".page-head").get_by_text("Killed").wait_for()
    running.wait_for(lambda: running.client.trial(trial["id"])["state"] == "USER_CANCELED")
    page.get_by_role("button", name="Run again").wait_for()


def test_a_trial_that_runs_again_does_not_leave_the_focus_on_the_button_that_kills_it(
    open_page: Any, running: Any
) -> None:
    trial = next(t for t in running.trials() if t["state"] == "RUNNING")["id"]
    running.client.cancel(trial)
    page = open_page(f"{running.entry.url}/#/trials/{trial}")
    page.get_by_role("button", name="Run again").press("Enter")
    page.get_by_role("button", name="Kill").wait_for()
    assert page.evaluate("document.activeElement.innerText") == "Customise"


def test_an_ended_trial_is_run_again(start: Any, open_page: Any) -> None:
    done = start(maxTrialNumber=1)
    done.wait("DONE")
    trial = done.trials()[0]["id"]
    page = open_page(f"{done.entry.url}/#/trials/{trial}")
    page.get_by_role("button", name="Run again").click()
    done.wait_for(lambda: (t := done.client.trial(trial))["attempt"] == 1 and t["state"] == "SUCCEEDED")
    page.locator(".page-head").get_by_text("Succeeded").wait_for()


# The page is closed before its manager ends, since what it asks meanwhile may be refused: so `start` comes first.
def test_a_customised_trial_is_run_and_its_result_appears_by_itself(start: Any, open_page: Any) -> None:
    busy = start(BRIEF, maxTrialNumber=500, trialConcurrency=1)
    page = open_page(f"{busy.entry.url}/#/trials")
    page.locator(".grid-row").first.wait_for()
    page.get_by_role("button", name="New trial").click()
    page.get_by_role("dialog").get_by_label("x").clear()
    page.get_by_role("dialog").get_by_label("x").press_sequentially("0.0625")  # "0." on its way
    page.get_by_role("dialog").get_by_role("button", name="Run it").click()
    page.locator(".big", has_text="0.0625").wait_for()
    assert [t["source"] for t in busy.trials() if t["parameters"] == {"x": 0.0625}] == ["customized"]


def test_a_refused_trial_says_why(start: Any, open_page: Any) -> None:
    broken = start("exit('too hot')", maxFailedTrials=1)
    broken.wait("ERROR")
    page = open_page(f"{broken.entry.url}/#/overview")
    page.get_by_text("No trial has reported a final metric. Failures and waiting, below, says why.").first.wait_for()
    page.goto(f"{broken.entry.url}/#/trials")
    page.expected_errors.append("409")
    page.get_by_role("button", name="New trial").click()
    page.get_by_role("dialog").get_by_role("button", name="Run it").click()
    page.get_by_role("dialog").get_by_role("alert").get_by_text("accepts no further trials").wait_for()


def test_limits_are_edited_while_it_runs(look: Any, lasting: Any) -> None:
    page = look(f"{lasting.entry.url}/")
    limits = page.get_by_role("region", name="Limits")
    limits.get_by_role("button", name="Edit").click()
    limits.get_by_label("Trials at once").fill("1")
    limits.get_by_label("Maximum duration").fill("2h")
    limits.get_by_label("Slots shared").fill("3")
    limits.get_by_label("Priority").fill("-2")
    limits.get_by_label("Stop at this result").fill("97.25")
    limits.get_by_role("button", name="Save").click()
    limits.get_by_text("2h", exact=True).wait_for()
    limits.get_by_text("97.25", exact=True).wait_for()
    known = lasting.client.profile()["limits"]
    assert (known["trialConcurrency"], known["maxExperimentDuration"]) == (1, 7200)
    assert (known["maxSlots"], known["priority"]) == (3, -2)


def test_a_limit_that_another_has_changed_meanwhile_is_left_alone(look: Any, lasting: Any) -> None:
    page = look(f"{lasting.entry.url}/")
    limits = page.get_by_role("region", name="Limits")
    limits.get_by_role("button", name="Edit").click()
    lasting.client.update(maxTrialDuration="3h", maxTrialNumber=19)
    page.get_by_text("of 19 trials ended").wait_for()
    limits.get_by_label("Trials at once").fill("2")
    limits.get_by_role("button", name="Save").click()
    limits.get_by_text("3h", exact=True).wait_for()
    known = lasting.client.profile()["limits"]
    assert (known["trialConcurrency"], known["maxTrialDuration"], known["maxTrialNumber"]) == (2, 10800, 19)


def test_a_wrong_limit_is_refused_with_a_sentence(look: Any, lasting: Any) -> None:
    known = lasting.client.profile()["limits"]
    page = look(f"{lasting.entry.url}/")
    page.expected_errors.append("400")
    limits = page.get_by_role("region", name="Limits")
    limits.get_by_role("button", name="Edit").click()
    limits.get_by_label("Maximum duration").fill("soon")
    limits.get_by_role("button", name="Save").click()
    limits.get_by_role("alert").wait_for()
    assert lasting.client.profile()["limits"] == known


def test_a_new_trial_shows_by_itself_without_a_question_of_the_page(open_page: Any, lasting: Any) -> None:
    """The stream tells of it at once; `benchmarks/web.py` has the time that it takes."""
    page = open_page(f"{lasting.entry.url}/#/trials")
    page.get_by_text("Live", exact=True).wait_for()
    lasting.client.update(maxTrialNumber=20)
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    trial = lasting.client.add_trial({"x": 0.5})["id"]
    page.get_by_role("link", name=trial).wait_for()
    assert [url for url in asked if "/api/" in url] == []


def test_a_manager_that_was_stopped_is_not_taken_for_one_without_news(open_page: Any, lasting: Any) -> None:
    page = open_page(f"{lasting.entry.url}/#/trials")
    page.get_by_text("Live", exact=True).wait_for()
    os.kill(lasting.entry.pid, signal.SIGSTOP)
    try:
        page.evaluate("(() => { const now = Date.now; Date.now = () => now() + 31000; })()")
        page.get_by_text("The manager does not answer; it may have been stopped.").wait_for()
    finally:
        os.kill(lasting.entry.pid, signal.SIGCONT)
    page.get_by_text("Live", exact=True).wait_for()


def test_it_reconnects_and_catches_up_after_the_manager_was_killed(open_page: Any, running: Any) -> None:
    port = int(running.entry.url.rpartition(":")[2])
    page = open_page(f"{running.entry.url}/#/trials")
    page.expected_errors.append("421")  # the name of the page is that of the former start
    page.get_by_text("Live", exact=True).wait_for()
    page.locator(".grid-row").nth(1).wait_for()
    running.kill_manager()
    page.get_by_text("The connection to the manager is lost.").wait_for()
    assert page.locator(".grid-row").count() == 2  # what is known stays in sight
    again = launch.resume(running.entry, options=launch.ManagerOptions(port=port), detach=False)
    page.get_by_text("Live", exact=True).wait_for()
    running.entry, running.client = again, running.connect()
    running.client.update(maxTrialNumber=3)
    trial = running.client.add_trial({"x": 0.25})["id"]
    page.get_by_role("link", name=trial).wait_for()
    assert page.locator(".grid-row").count() == 3


def test_what_is_typed_survives_a_new_start_of_the_manager(open_page: Any, running: Any) -> None:
    port = int(running.entry.url.rpartition(":")[2])
    page = open_page(running.entry.url)
    page.expected_errors.append("421")
    page.get_by_text("Live", exact=True).wait_for()
    limits = page.get_by_role("region", name="Limits")
    limits.get_by_role("button", name="Edit").click()
    limits.get_by_label("Maximum number").fill("77")
    running.kill_manager()
    running.entry = launch.resume(running.entry, options=launch.ManagerOptions(port=port), detach=False)
    running.client = running.connect()
    page.get_by_text("It waits for the end of what you type").wait_for()
    assert limits.get_by_label("Maximum number").input_value() == "77"
    limits.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Try now").click()
    page.get_by_text("Live", exact=True).wait_for()


def test_a_trial_that_cannot_be_read_shows_nothing_of_the_one_before(open_page: Any, lasting: Any) -> None:
    first = next(trial for trial in lasting.trials() if trial["sequence"] == 0)
    page = open_page(f"{lasting.entry.url}/#/trials/{first['id']}")
    page.locator(".chart[data-ready]").wait_for()
    page.expected_errors.append("ERR_FAILED")
    page.route("**/api/v1/**", lambda route: route.abort())
    page.get_by_role("button", name="Next trial").click()
    page.get_by_text("number 1").wait_for()
    for name in ("Intermediate results", "Attempts"):
        card = page.get_by_role("region", name=name, exact=True)
        card.get_by_text("The manager cannot be reached.").wait_for()
        assert card.locator(".chart, table").count() == 0


def test_it_stops_and_says_how_to_go_on(open_page: Any, running: Any) -> None:
    page = open_page(f"{running.entry.url}/")
    page.get_by_role("button", name="Stop").click()
    confirm(page, "Stop it")
    page.get_by_text("The experiment is stopped.").wait_for(timeout=60_000)  # its trials are ended first
    assert page.get_by_text(f"nnictl resume {running.entry.id}").first.is_visible()


def test_several_chosen_trials_are_killed_at_once(open_page: Any, running: Any) -> None:
    page = open_page(f"{running.entry.url}/#/trials")
    running.wait_for(lambda: len(running.trials()) == 2)
    for place in (0, 1):
        page.locator(".grid-row input[type=checkbox]").nth(place).check()
    page.get_by_role("button", name="Kill 2").click()
    confirm(page, "Kill")
    running.wait_for(lambda: [t["state"] for t in running.trials()] == ["USER_CANCELED"] * 2)


def test_signing_in_takes_a_link_that_works_once(start: Any, open_page: Any) -> None:
    done = start(maxTrialNumber=1, requireToken=True)
    done.wait("DONE")
    link = done.client.sign_in_link()
    page = open_page(done.entry.url)
    page.expected_errors.append("401")
    page.get_by_text("need to sign in").wait_for()
    page.goto(link)
    page.get_by_text("Live", exact=True).wait_for()
    assert "key" not in page.url
    assert page.context.cookies() == []
    page.get_by_role("region", name="Limits").get_by_role("button", name="Edit").click()
    page.get_by_label("Maximum number of trials").fill("3")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The limits have been changed.").wait_for()
    other = open_page(link)
    other.expected_errors.append("401")
    other.get_by_text("was used already").wait_for()


def test_an_experiment_opened_for_viewing_changes_nothing_and_is_resumed_by_a_button(
    start: Any, open_page: Any
) -> None:
    done = start(maxTrialNumber=2)
    done.wait("DONE")
    done.stop()
    done.entry = launch.view(done.entry, options=launch.ManagerOptions(port=0), detach=False)
    page = open_page(f"{done.entry.url}/#/trials")
    page.expected_errors.append("421")
    page.get_by_text("Read only.").wait_for()
    page.get_by_text("2 trials", exact=True).wait_for()
    assert page.get_by_role("button", name="New trial").is_disabled()
    assert faults(page) == []
    page.evaluate("location.hash = '#/'")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    assert page.get_by_text("Read only.").count() == 0
