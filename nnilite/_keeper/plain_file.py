"""Looks at, reads and writes small files by the system's calls: for them, Python's files cost more than all the rest.

A trial may have put a pipe, a device or a folder in the place of a file of its folder. These functions never wait for
such a thing.

What is to be done where a file is missing often loses or repeats work if the file is there, on a disk that fails for a
moment. `os.path.exists` is False there and, from Python 3.14 on, so is `Path.exists`; `is_there` raises.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Optional, Union


NOT_REGULAR = "it is not a regular file"


class NotRegularFile(OSError):
    """Something other than a file, such as a link or a pipe, is in the place of a file."""


def find_mode(path: Union[str, os.PathLike[str]]) -> int:
    """Return the mode of what is at this path, or of what a link there leads to; 0 if that is nothing.

    Raises: OSError if the system does not say.
    """
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_there(path: Union[str, os.PathLike[str]]) -> bool:
    """Return whether anything is at this path. Raises: OSError if the system does not say."""
    return find_mode(path) != 0


def is_folder_there(path: Union[str, os.PathLike[str]]) -> bool:
    """Return whether a folder is at this path. Raises: OSError if the system does not say."""
    return stat.S_ISDIR(find_mode(path))


def open_regular(path: str) -> IO[bytes]:
    """Open a file to read, but not what a link in its place leads to. Raises: NotRegularFile, OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotRegularFile(errno.EINVAL, NOT_REGULAR, path) from error
        raise
    return require_regular(file, path)


def open_code_file(path: Union[str, os.PathLike[str]]) -> IO[bytes]:
    """Open a file of a person's code, also where a link leads to it. Raises: NotRegularFile, OSError.

    In its place there may be a pipe, which another program would have to open, too, or a device without an end.
    """
    return require_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), str(path))


def require_regular(file: int, path: str, mode: str = "rb") -> IO[bytes]:
    """Return what was opened with O_NONBLOCK as a file, or close it. Raises: NotRegularFile."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotRegularFile(errno.EINVAL, NOT_REGULAR, path)
    return os.fdopen(file, mode)


def read(path: str, most: int) -> bytes:
    """Return the content, up to `most` bytes. Raises: OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = b""
        while len(content) < most:
            piece = os.read(file, most - len(content))
            if not piece:
                break
            content += piece
        return content
    finally:
        os.close(file)


def write(path: str, data: bytes, flags: int = os.O_TRUNC, cut_at: Optional[int] = None) -> None:
    """Write a file that only its owner can read, from its beginning. Raises: OSError, and then part may be written.

    `flags`: added to those for writing. `cut_at`: how long the file is to be afterwards.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
        if cut_at is not None:
            os.ftruncate(file, cut_at)
    finally:
        os.close(file)
