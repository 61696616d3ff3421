"""What a host's name or address alone reveals."""

from __future__ import annotations

import ipaddress
import re

_PAGE_NAME = re.compile(r"nnilite-[0-9a-f]{16}\.localhost")


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a URL's host is, also in brackets or with a zone; None if it is a name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_page_name(host: str) -> bool:
    """Return whether a host is one of the names of this machine under which browsers open pages of nnilite.

    `_rest.page_name` says what they are for, and makes them.
    """
    return _PAGE_NAME.fullmatch(host) is not None


def is_loopback(host: str) -> bool:
    """Return whether an address or host name can only be reached from this machine."""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    address = ip_address(host)
    return address is not None and address.is_loopback
