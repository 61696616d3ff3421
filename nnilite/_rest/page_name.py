"""The name under which browsers open the page of one start of a server: `nnilite-<random>.localhost`.

A browser gives a page all rights of its origin, and an origin is scheme, name and port. No user owns a port of
127.0.0.1: any user who takes it while no server runs can leave a page in an open tab, or a service worker, that acts
for the user as soon as a server is back at that port. So each start has a name of its own. No page of an earlier
listener has it, and what the browser stores under it is of this start.

Browsers resolve all names below `localhost` to 127.0.0.1 and ::1 by themselves, so a server with such a name listens on
both. At the other names of loopback the page is served, too, but there the user's own browser needs a key. A server
with TLS has no page name: its certificate distinguishes it from others.
"""

from __future__ import annotations

import secrets

from tornado.httputil import HTTPServerRequest

from nnilite._network.host_names import is_page_name

ADDRESSES = ("127.0.0.1", "::1")
"""What browsers take such a name for."""


def new_page_name(bind: str, *, has_tls: bool = False, prefix: str = "") -> str:
    """Return a page name for a new server; "" for one at other addresses, with TLS, or behind a proxy."""
    if has_tls or prefix or bind.lower() not in (*ADDRESSES, "localhost"):
        return ""
    return f"nnilite-{secrets.token_hex(8)}.localhost"


def is_former(host: str, page_name: str) -> bool:
    """Return whether this is the page name of another start."""
    return is_page_name(host.lower()) and host.lower() != page_name


def is_browser(request: HTTPServerRequest) -> bool:
    """Return whether a browser has sent this request. No page can take these headers away."""
    headers = request.headers
    return (
        "Origin" in headers
        or any(name.lower().startswith("sec-fetch-") for name in headers)
        or headers.get("User-Agent", "").startswith("Mozilla/")
    )


def opens_a_page(request: HTTPServerRequest) -> bool:
    """Return whether a browser opens this address in a tab."""
    return request.method == "GET" and request.headers.get("Sec-Fetch-Dest") == "document"
