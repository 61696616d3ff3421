"""What all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "manager"))  # simulation.py, fake_backend.py

_TOGETHER = {"hosts": "platforms/hosts/", "browser": "e2e/test_ui_", "schemathesis": "manager/test_rest_schemathesis"}
"""Tests that share something dear to make: one of the processes of `pytest -n` runs them all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = next((name for name, place in _TOGETHER.items() if f"tests/{place}" in item.nodeid), None)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests say they have shown: `record_property("shown", sentence)`."""
    passed = terminalreporter.stats.get("passed", [])
    shown = [str(value) for report in passed for name, value in report.user_properties if name == "shown"]
    if shown:
        terminalreporter.section("shown")
        for sentence in shown:
            terminalreporter.line(sentence)
