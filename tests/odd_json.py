"""Arbitrary bytes and JSON for files that are read back."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st

SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    st.sampled_from(["abc", "\ud800", "\0", "/\0", "a\nb\x1b[2J", "http://[::1", "ftp://x", 10**400, -1, 0, 1e300]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
BYTES = st.one_of(st.binary(max_size=60), st.sampled_from([b"", b"[" * 100_000, b"1" * 10_000, b"\xff\xfe{}", b"NaN"]))
SETTINGS = settings(max_examples=12)


def like(**known: object) -> st.SearchStrategy[bytes]:
    """Arbitrary bytes and JSON, and objects with these fields of which some are anything."""
    fields = st.fixed_dictionaries(
        {}, optional={name: st.one_of(st.just(value), SCALARS, JSON) for name, value in known.items()}
    )
    return st.one_of(BYTES, st.one_of(JSON, fields).map(lambda value: json.dumps(value).encode()))
