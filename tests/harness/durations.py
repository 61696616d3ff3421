"""Prints at the end of a run how long the tests of each folder have taken."""

from __future__ import annotations

from collections import defaultdict

import pytest

FEWEST_TESTS = 200
"""Fewer need no table: somebody runs a file."""


class FolderDurations:
    """Adds up the durations of all tests by folder, with what their fixtures take."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = report.nodeid.partition("::")[0].rpartition("/")[0]
        self._seconds[folder] += report.duration
        self._tests[folder].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(map(len, self._tests.values())) < FEWEST_TESTS:
            return
        terminalreporter.section("durations, over all processes")
        for folder in sorted(self._seconds, key=self._seconds.__getitem__, reverse=True):
            terminalreporter.line(f"{self._seconds[folder]:8.1f} s {len(self._tests[folder]):6} tests  {folder}")
        terminalreporter.line(f"{sum(self._seconds.values()):8.1f} s")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FolderDurations())
