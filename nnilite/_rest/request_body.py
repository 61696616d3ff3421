"""What the headers of a request say of its body, and which bodies are refused by these alone."""

from __future__ import annotations

from tornado.httputil import HTTPServerRequest

from nnilite._rest.refusal import HttpRefusal

BODY_METHODS = ("POST", "PUT", "PATCH")
STRANGERS_BODY_MAX = 64 * 1024  # bytes of a refused request that are read, and dropped


def claimed_bytes(request: HTTPServerRequest) -> int:
    """Return the body's length by the headers. Tornado itself refuses a length that is not a number."""
    claim = request.headers.get("Content-Length", "").partition(",")[0].strip()
    return int(claim[:18]) if claim.isascii() and claim.isdigit() else 0


def check_body(request: HTTPServerRequest, body_max: int) -> None:
    """Refuse a body that will not be read. `body_max`: of those methods that have one. Raises: HttpRefusal."""
    if "Transfer-Encoding" in request.headers:
        raise HttpRefusal(411, "send the body with a Content-Length, not in chunks")
    most = body_max if request.method in BODY_METHODS else STRANGERS_BODY_MAX
    if claimed_bytes(request) > most:
        raise HttpRefusal(413, f"the body is larger than {most} bytes; send less at a time")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "send the body as it is, not compressed")
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if request.method in BODY_METHODS and kind != "application/json":
        raise HttpRefusal(415, "send JSON, with the header Content-Type: application/json")
