"""Removes secrets from text: those in the usual places, and those that the program has named by `hide`."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from nnilite.units import HIDDEN

_PATTERNS = (
    re.compile(r"(?i)((?:[?&;](?:token|ticket)|#key)=)[^&\s'\")]*"),
    re.compile(r"(?i)(bearer\s+)[^\s'\",)]+"),
    re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?\w+\s+)[^\s'\",)]+"),
    re.compile(r"(?i)((?:(?:set-)?cookie|x-nnilite-session|sec-websocket-protocol)['\"]?\s*[:=]\s*)[^\n]+"),
)
# A shorter text occurs in too many words.
_SHORTEST = 4
_SHORTEST_LINE = 8
_hidden: set[str] = set()


def hide(secret: str) -> None:
    """Make `redact` remove this text from now on, in each way of writing it. Texts of under 4 characters stay."""
    if len(secret) >= _SHORTEST:
        _hidden.update(_spellings(secret))


def redact(text: str, more: Iterable[str] = ()) -> str:
    """Return the text with `********` for each secret; `more` are secrets for this text alone."""
    for secret in sorted(_hidden.union(*map(_spellings, more)), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


@functools.lru_cache(maxsize=256)
def _spellings(secret: str) -> frozenset[str]:
    """Return a secret as it is, and as URLs, JSON, Python and Base64 have it. Of one with several lines, each line."""
    data = secret.encode("utf-8", "replace")
    found = {
        quote(data, safe=""),
        quote_plus(data),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr(data)[2:-1],
        base64.b64encode(data).decode("ascii"),
    }
    lines = [line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE]
    return frozenset({secret, *(one for one in found if len(one) >= _SHORTEST), *lines})
