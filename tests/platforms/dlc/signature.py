"""ACS3-HMAC-SHA256, the signature of Alibaba's requests, checked without Alibaba's library."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import parse_qsl, quote, urlsplit

_HEADER = re.compile(r"ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})")
_SIGNED = {"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-content-sha256", "x-acs-signature-nonce"}
_APART_S = 900


def broken(
    method: str, target: str, headers: Mapping[str, str], body: bytes, key: tuple[str, str]
) -> tuple[str, str] | None:
    """What is wrong with who asks: a code of Alibaba's, and words; None if all is well. `key`: id and secret."""
    given = {name.lower(): value.strip() for name, value in headers.items()}
    match = _HEADER.fullmatch(given.get("authorization", ""))
    if match is None:
        return "MissingAuthorization", "the request is not signed"
    if match[1] != key[0]:
        return "InvalidAccessKeyId.NotFound", "Specified access key is not found."
    names = match[2].split(";")
    if names != sorted(names) or not set(names) >= _SIGNED | ({"content-type"} if body else set()):
        return "IncompleteSignature", f"only {names} are signed"
    if given["x-acs-content-sha256"] != hashlib.sha256(body).hexdigest():
        return "SignatureDoesNotMatch", "the body has another hash"
    sent = datetime.strptime(given["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    if abs((datetime.now(timezone.utc) - sent).total_seconds()) > _APART_S:
        return "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."
    parts = urlsplit(target)
    query = sorted(parse_qsl(parts.query, keep_blank_values=True))
    canonical = "\n".join(
        [
            method,
            parts.path,
            "&".join(f"{_quote(name)}={_quote(value)}" for name, value in query),
            "".join(f"{name}:{given[name]}\n" for name in names),
            match[2],
            given["x-acs-content-sha256"],
        ]
    )
    text = f"ACS3-HMAC-SHA256\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    expected = hmac.new(key[1].encode(), text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, match[3]):
        return "SignatureDoesNotMatch", "Specified signature does not match our calculation."
    return None


def _quote(text: str) -> str:
    return quote(text, safe="-_.~")
