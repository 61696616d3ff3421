"""What all tests share."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from nnilite._logging.secret_filter import SecretFilter
from platforms.contract_cases import is_for_long_runs

# Look for no garbage until all tests are read: that leaves little, and makes a million objects that stay.
gc.disable()

sys.path.insert(0, str(Path(__file__).parent / "manager"))  # simulation.py, fake_backend.py

pytest_plugins = [
    # What the run itself checks, reports and makes cheaper.
    "harness.process_starts",
    "harness.process_folders",
    "harness.left_processes",
    "harness.durations",
    "harness.group_ends",
    "harness.mixed_work",
    "harness.named_files",
    "harness.short_names",
    "harness.ready_managers",
    "harness.memory_files",
    # Fixtures that more than one folder uses.
    "e2e.running",
    "e2e.chaos_setting",
    "ddp_example",
    "fake_platforms",
    "platforms.chromium",
    "platforms.gpu.nvml",
]

_DEAR = (
    "tests/e2e/test_packages",
    "tests/e2e/test_ui_",
    "tests/e2e/test_verify",
    "tests/platforms/gridengine/",
    "tests/platforms/hosts/",
)
"""Files whose tests share something dear to make: all tests of one file run in one process of `pytest -n`, as do those
of the folders in `harness.mixed_work.COMPUTE`."""

_SHORT_UI = tuple(
    f"tests/e2e/test_ui_{name}.py::"
    for name in (
        *("attributes", "exact_numbers", "fronts", "hub_first", "more_charts", "odd_names"),
        *("remembered", "stopped_trials", "trial_roles", "trial_usage"),
    )
)
"""Files that share one Chromium, whose start takes two seconds. Each of the longer ones has its own."""

# How long an example takes says more about the machine than about nnilite. Fixtures of one test serve all examples.
_NO_FAULTS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": _NO_FAULTS, "print_blob": True}
# A change is judged by the same examples each time. The long runs look for new ones.
settings.register_profile("daily", derandomize=True, **_COMMON)
settings.register_profile("long", **_COMMON)
settings.load_profile("long" if "NNILITE_SIMULATION_RUNS" in os.environ else "daily")

# Whoever runs the tests over SSH would be told links that sign in, in the place of plain addresses.
os.environ.pop("SSH_CONNECTION", None)

# Algorithms that they have registered would be imported when tests are read, and be tested as ours.
os.environ["NNI_CONFIG_DIR"] = "/nonexistent"

# OpenBLAS reads it when NumPy is loaded: in the processes of `pytest -n`, and in programs that tests start. Where
# several processes compute, threads for small matrices take ten times the processor. Tuners set that limit themselves.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# By the shims of pyenv a start of `python3` takes eight times as long, and jobs of tests start it again and again.
if "shims" in Path(shutil.which("python3") or "").parts:
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.base_prefix, "bin")), os.environ["PATH"]])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background with Ctrl-C ignored, and programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def kept_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All that is logged, as it comes to the file of a manager: without secrets."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "nnilite")  # a program that ran within an earlier test may have set it
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("nnilite") and isinstance(logger, logging.Logger):
            logger.disabled = False  # `logging.config.fileConfig`, which libraries of trackers call, disables all
    # All tests of a process share that handler.
    secrets = SecretFilter()
    caplog.handler.addFilter(secrets)
    yield caplog
    caplog.handler.removeFilter(secrets)


@pytest.fixture(autouse=True)
def _plain_log(caplog: pytest.LogCaptureFixture) -> None:
    """What a program that ran within an earlier test hides does not change what this test reads."""
    for handler in (caplog.handler, *logging.getLogger().handlers):
        for old in [item for item in handler.filters if isinstance(item, SecretFilter)]:
            handler.removeFilter(old)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_for_long_runs(item):
            item.add_marker(pytest.mark.long)
        if item.nodeid.startswith(_SHORT_UI):
            item.add_marker(pytest.mark.xdist_group("short tests of the page"))
        elif item.nodeid.startswith(_DEAR):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what all tests share out of later collections of garbage, which would walk a million objects each time."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests say they have shown: `record_property("shown", sentence)`."""
    passed = terminalreporter.stats.get("passed", [])
    shown = [str(value) for report in passed for name, value in report.user_properties if name == "shown"]
    if shown:
        terminalreporter.section("shown")
        for sentence in shown:
            terminalreporter.line(sentence)
