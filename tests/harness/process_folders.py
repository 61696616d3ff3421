"""Folders whose tests all start processes, or share fixtures that do: marked, and not read where that is no use.

`make check` leaves them out, and each process of `pytest -n` would read them all the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDERS = ("tests/e2e/", "tests/platforms/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(FOLDERS):
            item.add_marker(pytest.mark.process)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not str(config.getoption("markexpr")).startswith("not process"):
        return None
    return f"{collection_path.relative_to(config.rootpath).as_posix()}/" in FOLDERS or None
