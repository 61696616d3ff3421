"""Parameters of a query are refused where the OpenAPI document says so, to the last character."""

from __future__ import annotations

import pytest

from nnilite._rest.routes import ROUTES
from nnilite.errors import ConfigError

[KEY] = [
    param
    for route in ROUTES
    if route.path == "/curves"
    for param in route.operations["GET"].query
    if param.name == "key"
]


@pytest.mark.parametrize("text", ["loss\n", "\n", "a\nb", "loss\r", "loss\u2028", "", "x" * 201])
def test_a_key_with_more_than_its_pattern_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must match"):
        KEY.read([text])


@pytest.mark.parametrize("text", ["loss", "val loss", "Genauigkeit in %", "x" * 200])
def test_a_key_that_matches_is_taken(text: str) -> None:
    assert KEY.read([text]) == text
