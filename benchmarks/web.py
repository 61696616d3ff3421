"""The web page of a large experiment, in a real browser: first paint, all of it there, a new trial, what travels.

The page is served by a real manager whose database holds the trials. "First paint" is the first time that the
browser draws text (first contentful paint), counted from the start of the navigation, with an empty cache.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.curves import Curve
from benchmarks.table import Result
from nnilite._running.manager_client import Client
from tests.platforms.chromium import ARGUMENTS, executable
from tests.platforms.many_trials import many_trials

TRIALS = 10_000
SIZES = (100, 1_000, TRIALS)
METRICS = 50
ROUNDS = 5
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_BYTES = "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0)"


def measure() -> list[Result]:
    path = executable()
    if path is None:
        return [Result("web page", "no Chromium here", "", "", "1 s", None)]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, many_trials(TRIALS, METRICS) as (url, client):
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        empty_ms = statistics.median(_paint(browser, "data:text/html,<p>empty") for _ in range(ROUNDS))
        paint_ms = statistics.median(_paint(browser, f"{url}/") for _ in range(ROUNDS))
        shown_ms = statistics.median(_shown(browser, f"{url}/") for _ in range(ROUNDS))
        full_ms, sent_mb = _full(browser, url, TRIALS)
        new_ms = _new_trial(browser, url, client)
        browser.close()
    base = f"an empty page: {empty_ms:.0f} ms"
    return [
        Result(
            "web page, 10,000 trials of 50 metrics: first paint", f"{paint_ms:.0f} ms", base, "", "1 s", paint_ms < 1000
        ),
        Result("... state and best trial are shown", f"{shown_ms:.0f} ms", base, "", "", None),
        Result("... all trials in the table", f"{full_ms:.0f} ms, {sent_mb:.1f} MB sent", base, "", "", None),
        Result("... a new trial shows", f"{new_ms:.0f} ms", base, "", "500 ms", new_ms < 500),
    ]


def curve() -> Curve | None:
    path = executable()
    if path is None:
        return None
    from playwright.sync_api import sync_playwright

    points = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        for trials in SIZES:
            with many_trials(trials, METRICS) as (url, _):
                points.append((trials, statistics.median(_full(browser, url, trials)[0] for _ in range(ROUNDS))))
        browser.close()
    return Curve("all trials in the table of the web page", "trials", "ms", points)


def _paint(browser: Any, address: str) -> float:
    page = browser.new_context().new_page()
    page.goto(address)
    while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
        time.sleep(0.01)
    found = float(page.evaluate(_PAINT))
    page.context.close()
    return found


def _shown(browser: Any, address: str) -> float:
    page = browser.new_context().new_page()
    begun = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.get_by_role("region", name="Best trial").locator(".big").wait_for(timeout=60_000)
    took_ms = (time.perf_counter() - begun) * 1000
    page.context.close()
    return took_ms


def _full(browser: Any, url: str, trials: int) -> tuple[float, float]:
    page = browser.new_context().new_page()
    begun = time.perf_counter()
    page.goto(f"{url}/#/trials")
    page.get_by_text(f"{trials:,} trials", exact=True).wait_for(timeout=60_000)
    took_ms = (time.perf_counter() - begun) * 1000
    sent_mb = float(page.evaluate(_BYTES)) / 1e6
    page.context.close()
    return took_ms, sent_mb


def _new_trial(browser: Any, url: str, client: Client) -> float:
    page = browser.new_context().new_page()
    page.goto(f"{url}/#/trials")
    page.get_by_text(f"{TRIALS:,} trials", exact=True).wait_for(timeout=60_000)
    client.update(maxTrialNumber=TRIALS + 100)
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        trial = client.add_trial({"lr": 0.01, "hidden": 64, "dropout": 0.1, "optimizer": "adam"})["id"]
        page.get_by_role("link", name=trial).wait_for(timeout=60_000)
        times.append((time.perf_counter() - begun) * 1000)
    page.context.close()
    return statistics.median(times)
