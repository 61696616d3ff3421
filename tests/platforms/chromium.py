"""The system's Chromium, driven by Playwright, for tests of the web interface.

Use the fixtures `browser` (one for each group of tests), `open_page` and `look`, whose pages fail the test if they
raise an error, log one, or break the server's Content-Security-Policy. Where there is no Chromium the tests skip and
say so.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)

AXE = Path(__file__).parent / "axe" / "axe.min.js"
TIMEOUT_MS = 60_000
ARGUMENTS = [
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
SPARING = [
    "--in-process-gpu",
    "--enable-features=NetworkServiceInProcess2",
    "--js-flags=--single-threaded",
]
"""For tests alone: processes and threads that serve a user's patience take a twentieth more of the processor in all."""


PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without a browser's windows: the tests take 40 % of the processor time with it."""


def executable() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A running Chromium. It does not outlive its group of tests: see `harness.group_ends`."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    path = executable()
    if path is None:
        pytest.skip("there is no Chromium here (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *SPARING])
        yield found
        found.close()


OpenPage = Callable[..., Any]
Look = Callable[..., Any]
NETWORK_ERRORS = ("net::ERR_", "WebSocket connection to")  # a manager that ended before its page, or a new interface
USUAL: dict[str, Any] = {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light"}


class WatchedPages:
    """Pages of a browser, and the errors that they have raised or logged."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self._problems: list[tuple[Any, str]] = []

    def open(self, url: str | None = None, **options: Any) -> Any:
        """Open a page of a fresh context with these options."""
        # What moves for as long as it is in sight is drawn on the processor, sixty times a second.
        context = self._browser.new_context(**{**USUAL, "reduced_motion": "reduce", **options})
        context.set_default_timeout(TIMEOUT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self._contexts.append(context)
        page = context.new_page()
        page.expected_errors = list(NETWORK_ERRORS)
        page.on("pageerror", lambda error: self._problems.append((page, f"error in the page: {error}")))
        page.on("console", lambda message: self._note(page, message))
        _tell_network(page)
        if url is not None:
            _go(page, url)
        return page

    def _note(self, page: Any, message: Any) -> None:
        if message.type == "error":
            self._problems.append((page, message.text))

    def log_all(self) -> None:
        """Log what each page shows and has loaded, for the report of a test that fails."""
        for context in self._contexts:
            for page in context.pages:
                _log.info(
                    "the page %s shows: %r and has loaded: %s", page.url, _asked(page, SHOWN), _asked(page, LOADED)
                )

    def close(self) -> None:
        while self._contexts:
            self._contexts.pop().close()

    def take_unexpected(self) -> list[str]:
        """Return the errors since the last call, without those that their page's test expects."""
        problems, self._problems = self._problems, []
        return [text for page, text in problems if not any(part in text for part in page.expected_errors)]


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """`open_page(url, **options of the context)`: a page of a fresh context, whose errors fail the test at its end.

    `page.expected_errors` is a list to which a test adds parts of messages that it provokes. What the page shows in
    the end, and what its network did, is logged, for the report of a test that fails.
    """
    pages = WatchedPages(browser)
    yield pages.open
    pages.log_all()
    pages.close()
    unexpected = pages.take_unexpected()
    assert not unexpected, unexpected


NOWHERE = """() => { location.hash = "#/nowhere";
  document.querySelectorAll(".toast button").forEach((dismiss) => dismiss.click()); }"""


class LastingPage:
    """One page that goes from view to view, as its user does: to load it anew takes ten times as long."""

    def __init__(self, browser: Any) -> None:
        self.pages = WatchedPages(browser)
        self._page: Any = None
        self._address = ("", "")

    def look(self, url: str, sign_in: Callable[[], str] | None = None, **options: Any) -> Any:
        """Go to a view, with another size or other colours as for `open_page`; `sign_in` gives the link to load."""
        address, _, view = url.partition("#")
        wanted = {**USUAL, **options}
        if self._page is None or (address, self._page.url.partition("#")[0]) != self._address:
            self.leave()
            self._page = self.pages.open(**wanted)
            _go(self._page, sign_in() if sign_in else url)
            self._address = (address, self._page.url.partition("#")[0])
        else:
            self._page.set_viewport_size(wanted["viewport"])
            self._page.emulate_media(color_scheme=wanted["color_scheme"])
            self._page.evaluate(NOWHERE)
            # Nothing of the former view is left, which a test could take for a part of the next one.
            self._page.get_by_text("There is no such page").wait_for()
            self._page.locator(".toast").wait_for(state="detached")
            self._page.evaluate("view => { location.hash = view; }", f"#{view or '/'}")
        return self._page

    def rest(self) -> list[str]:
        """Make the page ready for the next test, and return the errors that this one did not expect."""
        self.pages.log_all()
        for page in self._page.context.pages if self._page else ():
            if page is not self._page:
                page.close()
        unexpected = self.pages.take_unexpected()
        if self._page:
            self._page.expected_errors = list(NETWORK_ERRORS)
        return unexpected

    def leave(self) -> None:
        self.pages.close()
        self._page = None


@pytest.fixture(scope="module")
def lasting_page(browser: Any) -> Iterator[LastingPage]:
    page = LastingPage(browser)
    yield page
    page.leave()


@pytest.fixture
def look(lasting_page: LastingPage, request: pytest.FixtureRequest) -> Iterator[Look]:
    """`look(url)`: a view on a page that the tests of a module share, whose errors fail the test at its end.

    For tests that leave nothing on the page but its address. After a failure the next test has a fresh page.
    """
    failed = request.session.testsfailed
    yield lasting_page.look
    unexpected = lasting_page.rest()
    if unexpected or request.session.testsfailed > failed:
        lasting_page.leave()
    assert not unexpected, unexpected


SHOWN = "document.body?.innerText.slice(0, 1000)"
LOADED = """(() => {
  const all = performance.getEntriesByType("resource");
  performance.clearResourceTimings(); // the next test, and no more entries are kept than 250
  return all.map((one) => `${(one.startTime / 1000).toFixed(2)} ${one.name} ${one.duration.toFixed(0)} ms`).join("\\n");
})()"""


def _asked(page: Any, expression: str) -> str:
    """Return what the page answers, or why it cannot be asked: it may be on its way to another one just now."""
    from playwright.sync_api import Error

    try:
        return str(page.evaluate(expression))
    except Error as error:
        return str(error)


def _go(page: Any, url: str, attempts: int = 5) -> None:
    """Open the page, again where another test made or removed a network interface meanwhile."""
    for left in reversed(range(attempts)):
        try:
            page.goto(url)
        except Exception as error:
            if "ERR_NETWORK_CHANGED" not in str(error) or not left:
                raise
        else:
            return


def _tell_network(page: Any) -> None:
    """Log the requests of a page that fail and its stream, with the seconds since it was made.

    To hear of each request takes a seventh of the load of a page: it is asked for them in the end (`LOADED`).
    """
    began = time.monotonic()

    def tell(what: str) -> None:
        _log.info("%.2f %s", time.monotonic() - began, what)

    page.on("requestfailed", lambda request: tell(f"{request.failure} {request.url}"))
    page.on("websocket", lambda stream: _tell_stream(stream, tell))


def _tell_stream(stream: Any, tell: Callable[[str], None]) -> None:
    tell(f"stream {stream.url}")
    stream.on("framereceived", lambda _: tell("the stream says something"))
    stream.on("close", lambda _: tell("the stream is closed"))


def faults(page: Any) -> list[str]:
    """What axe-core finds in the page as it is, one line for each element."""
    # What is wide is measured, and can be reached by the keyboard, a frame after it was drawn.
    page.evaluate("() => new Promise(seen => requestAnimationFrame(() => requestAnimationFrame(() => seen(null))))")
    if not page.evaluate("'axe' in window"):  # parsing it takes as long as the search in a small view
        page.evaluate(AXE.read_text("utf-8"))  # by the debugging protocol: the page's own policy would not let it in
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html'][:160]} {json.dumps(node['any'][:1])[:200]}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]
