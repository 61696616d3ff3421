"""Removes folders that a trial has filled, however deep they are, and follows no link.

It runs on workers, too: Python 3.8 and the standard library alone.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a file or a folder with all below it, however deep, if it is there. Follows no link. Raises: OSError.

    `shutil.rmtree` ends in a RecursionError, or without file descriptors, in folders that a trial has nested too deep.
    """
    above, name = os.path.split(os.path.abspath(path))
    try:
        folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_below(folder, name)
    finally:
        os.close(folder)


def remove_below(folder: int, name: str) -> None:
    """Remove an entry of an open folder, with all below it, if it is there. Follows no link.

    Raises: OSError for what could not be removed, after all else has gone.
    """
    if _is_unlinked(folder, name):
        return
    top = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    kept: Dict[str, OSError] = {}
    try:
        while _has_less(top, kept):
            pass
    finally:
        os.close(top)
    for error in kept.values():
        raise error
    _rmdir(folder, name)


def _has_less(top: int, kept: Dict[str, OSError]) -> bool:
    """Remove one layer of an open folder: what lies below its folders moves up in their place. False: none is left."""
    names = [name for name in os.listdir(top) if name not in kept]
    for name in names:
        try:
            if not _is_unlinked(top, name):
                _move_up(top, name)
                _rmdir(top, name)
        except OSError as error:
            kept[name] = error
    return bool(names)


def _move_up(top: int, name: str) -> None:
    """Remove the files of a folder in the folder `top`, and move its folders to `top`."""
    inner = os.open(name, FOLDER_FLAGS, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            if not _is_unlinked(inner, entry):
                os.rename(entry, ".nnilite-" + os.urandom(8).hex(), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)


def _is_unlinked(folder: int, name: str) -> bool:
    """Unlink an entry. Return False if it is a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        # Linux says EISDIR of a folder, other systems say EPERM.
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        return False
    return True


def _rmdir(folder: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return
