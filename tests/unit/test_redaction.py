"""Secrets in logs and errors are hidden however a library writes them."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from urllib.parse import quote

import pytest

from nnilite._logging.redaction import redact
from nnilite._logging.secret_filter import SecretFilter

SECRET = 'pä"s\\s w'


@pytest.mark.parametrize(
    "spell",
    [
        str,
        repr,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: repr(text.encode()),
        lambda text: quote(text, safe=""),
        lambda text: base64.b64encode(text.encode()).decode(),
    ],
)
def test_a_secret_is_hidden_in_each_way_of_writing_it(spell: Callable[[str], str]) -> None:
    shown = redact(f"a {spell(SECRET)} b", [SECRET])
    assert "********" in shown
    assert spell(SECRET).strip("b'\"") not in shown


def test_each_line_of_a_key_is_hidden() -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nab\n"
    assert redact("line 2 is MIIEpAIBAAKCAQEA, and line 3 ab", [key]) == "line 2 is ********, and line 3 ab"


@pytest.mark.parametrize("scheme", ["Basic", "Bearer", "Token"])
def test_what_signs_a_request_in_is_hidden_whatever_it_is(scheme: str) -> None:
    for text in (f"Authorization: {scheme} bWU6cGFzcw==", str({"Authorization": f"{scheme} bWU6cGFzcw=="})):
        assert "bWU6cGFzcw" not in redact(text)


def test_a_line_of_a_log_hides_a_secret_in_the_error_of_a_library() -> None:
    record = logging.LogRecord("a", logging.INFO, "a.py", 1, "refused: %s", (json.dumps({"key": SECRET}),), None)
    assert SecretFilter([SECRET]).filter(record)
    assert record.msg == 'refused: {"key": "********"}'
