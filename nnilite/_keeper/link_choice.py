"""The way to the manager that a specification asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from .link import NoLink, RestLink
from .spec import Spec

if TYPE_CHECKING:
    from .stdout_link import StdoutLink

Link = Union[RestLink, "StdoutLink", NoLink]


def link_of(spec: Spec) -> Link:
    """Return the way to the manager that the specification asks for."""
    if spec.report == "stdout":
        from .stdout_link import StdoutLink

        return StdoutLink()
    if spec.callback_file:
        from .local_link import LocalLink

        return LocalLink(spec)
    return RestLink(spec) if spec.callback else NoLink()
