"""What running trials use, from the keeper to the page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from e2e.running import Start
from nnilite._cli.nnictl import run
from nnilite.units import format_size

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TRIAL = """
import time, nnilite
nnilite.get_next_parameter()
held = bytearray(b"1" * 120_000_000)
for step in range(1000):
    nnilite.report_intermediate_result(step)
    time.sleep(0.5)
"""


def hosts_of(running: Any) -> list[Any]:
    found: list[Any] = running.client.ask("GET", "/experiment")["hosts"]
    return found


def test_the_memory_of_a_running_trial_is_shown_by_the_page_and_by_nnictl(
    start: Start, open_page: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start(TRIAL, maxTrialNumber=1)
    running.wait_for(lambda: running.client.ask("GET", "/uses")["uses"])
    (trial,) = running.trials()
    page = open_page(f"{running.entry.url}/#/trials/{trial['id']}")
    page.get_by_role("region", name="In use now").get_by_text(re.compile(r"1\d\d MB")).wait_for()
    page.goto(f"{running.entry.url}/#/trials?cols=id,processors,memory")
    page.get_by_role("gridcell").get_by_text(re.compile(r"1\d\d MB")).wait_for()
    running.wait_for(lambda: [host for host in hosts_of(running) if "memoryTotal" in host["details"]])
    (host,) = hosts_of(running)
    page.goto(f"{running.entry.url}/#/overview")
    page.get_by_text(f" of {format_size(host['details']['memoryTotal'])}").wait_for()  # in the units of nnictl
    assert run(["trial", "show", running.entry.id, "-T", trial["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["use"]["memory"] > 100_000_000
    assert run(["trial", "show", running.entry.id, "-T", trial["id"]]) == 0
    assert re.search(r"In use: +[\d.]+ processors, memory \d+ MB", capsys.readouterr().out)
