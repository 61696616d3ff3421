"""Whose a folder is, for programs other than keepers."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def is_made_by_others(path: str, is_new: bool = False) -> bool:
    """Return whether another user has made this folder, or one above it, where all may make some, as in `/tmp`.

    Such a user can replace all that is in it. In a folder of theirs, one of this user's counts as laid by others only
    if it `is_new`: the user may have made it there by hand. Some network drives show another owner of all files: what
    is made there now has that owner, too. Raises: OSError.
    """
    if not (is_new or _find_strangers(path)):
        return False
    places = {*_walk_up(os.path.abspath(path)), *_walk_up(os.path.realpath(path))}
    open_to_all = [place for place in places if os.stat(os.path.dirname(place)).st_mode & 0o002]
    strangers = {owner for place in open_to_all for owner in _find_strangers(place)}
    if not strangers:
        return False
    probe = os.path.join(path, ".nnilite-owner-" + os.urandom(8).hex())
    os.mkdir(probe, 0o700)
    try:
        return strangers != {os.stat(probe).st_uid}
    finally:
        os.rmdir(probe)


def _find_strangers(path: str) -> set[int]:
    """Return the owners other than root and this user; a link may lead elsewhere tomorrow."""
    return {os.stat(path).st_uid, os.lstat(path).st_uid} - {0, os.geteuid()}


def _walk_up(path: str) -> Iterator[str]:
    while path != os.path.dirname(path):
        yield path
        path = os.path.dirname(path)
