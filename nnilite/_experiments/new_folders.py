"""Makes folders in which no other user can put or replace anything, whatever the umask is."""

from __future__ import annotations

import errno
from pathlib import Path

from nnilite._keeper.folder_owner import is_made_by_others

_ABOVE = 0o755


def make_own_folder(folder: Path, mode: int = 0o700, *, exist_ok: bool = True) -> None:
    """Make a folder for this user, and those above it that are missing, which others may read at most.

    Under a umask such as 002 or 0, others could else replace what is in them. One that another user has laid in a place
    such as `/tmp`, or below such a folder, is refused for the same reason. Raises: OSError.
    """
    try:
        _make(folder, mode, exist_ok)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_own_folder(folder.parent, _ABOVE)
        # Some systems say so again, of a place such as /proc that takes no folder.
        _make(folder, mode, exist_ok)


def _make(folder: Path, mode: int, exist_ok: bool) -> None:
    try:
        folder.mkdir(mode)
    except OSError:
        # Some systems say of a folder that is there that it may not be made.
        if not (exist_ok and folder.is_dir()):
            raise
        _refuse_laid_by_others(folder)
    else:
        try:
            _refuse_laid_by_others(folder, is_new=True)
        except OSError:
            folder.rmdir()
            raise


def _refuse_laid_by_others(folder: Path, is_new: bool = False) -> None:
    if is_made_by_others(str(folder), is_new):
        raise PermissionError(
            errno.EPERM, "it, or a folder above it, is another user's, who could replace what is in it", str(folder)
        )
