"""Whose a folder is, for programs other than keepers."""

from __future__ import annotations

import os


def is_laid_by_others(path: str) -> bool:
    """Return whether another user has made this folder where all may make some, as in `/tmp`. Raises: OSError.

    Such a user can replace all that is in it. Some network drives show another owner of all files: what is made there
    now has that owner, too.
    """
    owners = {os.stat(path).st_uid, os.lstat(path).st_uid}  # a link may lead elsewhere tomorrow
    strange = owners - {0, os.geteuid()}
    if not strange or not os.stat(os.path.dirname(os.path.abspath(path))).st_mode & 0o002:
        return False
    probe = os.path.join(path, ".nnilite-owner-" + os.urandom(8).hex())
    os.mkdir(probe, 0o700)
    try:
        return strange != {os.stat(probe).st_uid}
    finally:
        os.rmdir(probe)
