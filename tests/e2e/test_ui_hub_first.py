"""The page of all experiments before there are any: it starts an example."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._experiments import registry
from nnilite._hub import hub_server
from nnilite._running import managers
from nnilite.testing import eventually
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A hub over no experiments."""
    home = tmp_path / "it's $HOME"
    monkeypatch.setenv("NNILITE_HOME", str(home))
    command = [sys.executable, "-m", "nnilite._cli", "ui", "--port", "0", "--require-token", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert "url" in json.loads("".join(server.stdout.readline() for _ in range(3)))
        yield home
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    for one in registry.entries():
        if one.alive:
            managers.stop(one)


def test_the_first_page_starts_an_example_that_finds_something(home: Path, open_page: Any) -> None:
    page = open_page(viewport={"width": 400, "height": 800})
    page.goto(hub_server.find_served_address())
    page.get_by_role("button", name="Start an example").wait_for()
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("button", name="Start an example").click()
    page.get_by_role("button", name="example", exact=True).wait_for()
    page.locator(".trials-cell").get_by_text("20", exact=False).first.wait_for()
    (entry,) = registry.entries()
    eventually(lambda: registry.find(entry.id).state == "DONE", 60)
