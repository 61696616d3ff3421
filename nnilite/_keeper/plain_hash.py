"""SHA-256 without `hashlib`, which would load all of OpenSSL."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hashlib


def sha256(data: bytes = b"") -> hashlib._Hash:
    """A new digest. Where a Python has no such part of its own, it is that of `hashlib`."""
    for name in ("_sha2", "_sha256"):
        try:
            found: hashlib._Hash = __import__(name).sha256(data)
        except (ImportError, AttributeError):
            continue
        return found
    import hashlib

    return hashlib.sha256(data)
