"""What all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "manager"))  # simulation.py, fake_backend.py

_DEAR = ("tests/platforms/hosts/", "tests/e2e/test_ui_", "tests/manager/test_rest_schemathesis")
"""Files whose tests share something dear to make: all tests of one file run in one process of `pytest -n`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(_DEAR):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests say they have shown: `record_property("shown", sentence)`."""
    passed = terminalreporter.stats.get("passed", [])
    shown = [str(value) for report in passed for name, value in report.user_properties if name == "shown"]
    if shown:
        terminalreporter.section("shown")
        for sentence in shown:
            terminalreporter.line(sentence)
