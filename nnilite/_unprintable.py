"""Characters that terminals, logs and notebooks show in an escaped form."""

from __future__ import annotations

import re

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Terminals obey the first ones, others change the order of what is read, and a lone surrogate cannot be written."""


def escape_unprintable(text: str) -> str:
    r"""Return a text in which they are written as Python writes them.

    >>> escape_unprintable("\u202eab\x1b[8m")
    '\\u202eab\\x1b[8m'
    """
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
