"""The way to the manager that a specification asks for."""

from __future__ import annotations

from .link import Link, NoLink, RestLink, StdoutLink
from .spec import Spec


def link_of(spec: Spec) -> Link:
    """Return the way to the manager that the specification asks for."""
    if spec.report == "stdout":
        return StdoutLink()
    if spec.callback_file:
        from .local_link import LocalLink

        return LocalLink(spec)
    return RestLink(spec) if spec.callback else NoLink()
