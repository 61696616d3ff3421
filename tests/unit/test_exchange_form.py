"""Exchanges of a stand-in that differ by more than an identity or a time are each held against the contract."""

from __future__ import annotations

import pytest

from platforms.exchange_form import form_of

_ONE = '{"job": "x3fa9c", "at": "2030-05-17T08:15:59.123456Z", "code": 37, "state": "failed"}'


def test_the_same_of_another_job_at_another_time_has_the_same_form() -> None:
    other = '{"job": "x00ab1", "at": "2031-12-01T23:59:00.654321Z", "code": 37, "state": "failed"}'
    assert form_of(other.encode()) == form_of(_ONE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("37", "42"), ("37", '"37"'), ("37", "-37"), ("failed", "killed"), ("x3fa9c", "3fa9c"), ('"job"', '"name"')],
)
def test_anything_else_makes_another_form(old: str, new: str) -> None:
    assert form_of(_ONE.replace(old, new)) != form_of(_ONE)
