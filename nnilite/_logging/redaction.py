"""Removes secrets from text: those in the usual places, and those that the program has named by `hide`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from nnilite.units import HIDDEN

_PATTERNS = (
    re.compile(r"(?i)((?:[?&;](?:token|ticket)|#key)=)[^&\s'\")]*"),
    re.compile(r"(?i)(bearer\s+)[^\s'\",)]+"),
    re.compile(r"(?i)((?:(?:set-)?cookie|x-nnilite-session|sec-websocket-protocol)['\"]?\s*[:=]\s*)[^\n]+"),
)
# A shorter text occurs in too many words.
_SHORTEST = 4
_hidden: set[str] = set()


def hide(secret: str) -> None:
    """Make `redact` remove this text from now on, as it is and as URLs spell it. Texts of under 4 characters stay."""
    if len(secret) >= _SHORTEST:
        _hidden.update((secret, quote(secret, safe=""), quote_plus(secret)))


def redact(text: str, more: Iterable[str] = ()) -> str:
    """Return the text with `********` for each secret; `more` are secrets for this text alone."""
    for secret in sorted({*_hidden, *more}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text
