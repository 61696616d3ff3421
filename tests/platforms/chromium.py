"""The system's Chromium, driven by Playwright, for tests of the web interface.

Use the fixtures `browser` (one for each module) and `open_page`, whose pages fail the test if they raise an error, log
one, or break the server's Content-Security-Policy. Where there is no Chromium the tests skip and say so.
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


PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without a browser's windows: the tests take 40 % of the processor time with it."""


def executable() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running Chromium. It does not outlive its module: Playwright keeps an event loop in this thread, beside
    which the tests of other modules could not run theirs."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    path = executable()
    if path is None:
        pytest.skip("there is no Chromium here (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


OpenPage = Callable[..., Any]
NETWORK_ERRORS = ("net::ERR_", "WebSocket connection to")  # a manager that ended before its page, or a new interface


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """`open_page(url, **options of the context)`: a page of a fresh context, whose errors fail the test at its end.

    `page.expected_errors` is a list to which a test adds parts of messages that it provokes. What the page shows in
    the end, and what its network did, is logged, for the report of a test that fails.
    """
    contexts = []
    problems: list[tuple[Any, str]] = []

    def begin(url: str | None = None, **options: Any) -> Any:
        # What moves for as long as it is in sight is drawn on the processor, sixty times a second.
        usual = {"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**usual, **options})
        context.set_default_timeout(TIMEOUT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.expected_errors = list(NETWORK_ERRORS)
        page.on("pageerror", lambda error: problems.append((page, f"error in the page: {error}")))
        page.on("console", lambda message: message.type == "error" and problems.append((page, message.text)))
        _tell_network(page)
        if url is not None:
            _go(page, url)
        return page

    yield begin
    for context in contexts:
        for page in context.pages:
            _log.info("the page %s shows: %r", page.url, _shown(page))
        context.close()
    unexpected = [text for page, text in problems if not any(part in text for part in page.expected_errors)]
    assert not unexpected, unexpected


def _shown(page: Any) -> str:
    """Return what the page shows, or why it cannot be asked: it may be on its way to another one just now."""
    from playwright.sync_api import Error

    try:
        return str(page.evaluate("document.body?.innerText.slice(0, 1000)"))
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
    """Log what the page asks and gets, with the seconds since it was made."""
    began = time.monotonic()

    def tell(what: str) -> None:
        _log.info("%.2f %s", time.monotonic() - began, what)

    page.on("request", lambda request: tell(f"{request.method} {request.url}"))
    page.on("requestfinished", lambda request: tell(f"done {request.url}"))
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
