"""A platform that one group of tests shares ends with the group's last test, and not with the run.

A platform without work is not idle: Ray and a kube-apiserver take a tenth of a processor each. And Playwright, which
drives Chromium, keeps an event loop in the thread of the tests, in which others could not run theirs. xdist runs all
tests of a group in one process, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

ENDS_WITH_GROUP = ("browser", "kube_apiserver", "real_ray", "whole_lab")
"""Fixtures of the session. One that a later test wants is made again."""

_made: list[tuple[pytest.FixtureDef[Any], Any]] = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Iterator[None]:
    if fixturedef.argname in ENDS_WITH_GROUP:
        _made.append((fixturedef, request))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    # Fixtures of the test end first: they use the platform.
    yield
    if nextitem is None or _group(nextitem) != _group(item):
        while _made:
            fixture, request = _made.pop()
            fixture.finish(request)


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else ""
