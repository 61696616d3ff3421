"""The calls of a platform's own library, which blocks: how long they are tried, and what a failure is."""

from __future__ import annotations

import asyncio

import pytest

from nnilite._network.interactive_calls import limit_patience
from nnilite.platform_http import AccessRefused, LibraryCalls, Outage, Problem
from nnilite.platform_http import library_calls as calls


class Foo(LibraryCalls):
    def translate(self, what: str, error: Exception) -> Problem:
        found = AccessRefused(f"Foo refuses {what}") if "login" in str(error) else Outage(f"no {what}: {error}")
        found.status = 401 if isinstance(found, AccessRefused) else 0
        return found


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The first bound of each pause between two tries. The first pause would take ten seconds."""
    asked: list[float] = []
    monkeypatch.setattr(calls.random, "uniform", lambda *bounds: asked.append(bounds[0]) or 20.0)
    return asked


def fail() -> None:
    raise OSError("away")


def test_where_a_person_waits_a_call_has_less_patience(pauses: list[float]) -> None:
    with limit_patience(0.2), pytest.raises(Outage, match="no jobs: away"):
        asyncio.run(Foo("Foo", 5).run("jobs", fail, patience_s=40))
    assert len(pauses) == 1  # the pause before a second try would be longer than that


def test_a_platform_that_comes_back_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnilite.platform_http._patience.PAUSE_S", (0.01, 0.02))
    tries = iter([fail, fail, lambda: "here"])
    assert asyncio.run(Foo("Foo", 5).run("jobs", lambda: next(tries)(), patience_s=40)) == "here"


def test_a_call_without_patience_is_tried_once(pauses: list[float]) -> None:
    made: list[int] = []

    def make() -> None:
        made.append(1)
        fail()

    with pytest.raises(Outage):
        asyncio.run(Foo("Foo", 5).run("a job", make, patience_s=0))
    assert made == [1]


def test_a_login_is_renewed_once() -> None:
    renewed: list[int] = []

    def refused() -> None:
        raise OSError("login")

    with pytest.raises(AccessRefused):
        asyncio.run(Foo("Foo", 5).run("jobs", refused, patience_s=0, renew=lambda: renewed.append(1)))
    assert renewed == [1]
