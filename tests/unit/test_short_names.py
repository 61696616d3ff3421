"""Cases that are long texts get short names, and different ones."""

from __future__ import annotations

import pytest

from harness.short_names import LONGEST, pytest_make_parametrize_id


@pytest.mark.parametrize("text", ["x" * (LONGEST + 1), b"\xff" * 9_000_000, "\ud800" * 1000], ids=len)
def test_a_long_text_is_named_by_its_beginning(text: str | bytes) -> None:
    name = pytest_make_parametrize_id(text)
    begin = text[:LONGEST] if isinstance(text, str) else text[:LONGEST].decode("latin-1")
    assert name is not None
    assert name.startswith(begin)
    assert len(name) < 2 * LONGEST


def test_texts_that_begin_alike_have_different_names() -> None:
    assert pytest_make_parametrize_id("x" * 200) != pytest_make_parametrize_id("x" * 201)


@pytest.mark.parametrize("value", ["x" * LONGEST, 3, None, ("x",)], ids=repr)
def test_what_is_short_or_no_text_keeps_its_name(value: object) -> None:
    assert pytest_make_parametrize_id(value) is None
