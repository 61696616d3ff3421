"""Copies of records in which some fields are changed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from nnilite.records import Attempt, Trial, TrialState, copy_with

TRIAL = Trial("t", 1, {"x": 0.5}, 1)


def test_a_copy_is_what_dataclasses_would_make() -> None:
    changed = copy_with(TRIAL, state=TrialState.RUNNING, started=2.0)
    assert changed == replace(TRIAL, state=TrialState.RUNNING, started=2.0)
    assert (type(changed), list(vars(changed))) == (Trial, [field.name for field in fields(Trial)])
    assert (TRIAL.state, TRIAL.started) == (TrialState.WAITING, None)


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="Trial has no field stat"):
        copy_with(TRIAL, stat=TrialState.RUNNING)


@pytest.mark.parametrize("kind", [Trial, Attempt])
def test_no_record_does_more_when_it_is_made(kind: type) -> None:
    """A copy would leave that out."""
    assert not hasattr(kind, "__post_init__")
    assert not hasattr(kind, "__slots__")
