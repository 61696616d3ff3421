"""Cases that are long texts get short names.

Some tests try texts of megabytes. By default a case is named after its text: all processes of `pytest -n` would send
these names at the start, compare them and print them.
"""

from __future__ import annotations

import zlib

import pytest

LONGEST = 100
"""In characters. What a name keeps of a longer text is its beginning."""


@pytest.hookimpl(trylast=True)
def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long text by its beginning and its CRC-32, which is the same in all processes."""
    if not isinstance(val, (str, bytes)) or len(val) <= LONGEST:
        return None
    as_bytes = val if isinstance(val, bytes) else val.encode("utf-8", "surrogatepass")
    begin = val[:LONGEST].decode("latin-1") if isinstance(val, bytes) else val[:LONGEST]
    return f"{begin}...{zlib.crc32(as_bytes):08x}"
