"""The trial's output files. The trial writes them itself, so that none is lost with the keeper; the keeper caps them.

A file that grows over the cap is cut, as often as needed: the file keeps its beginning (half the cap), a line that says
how much is left out, and its end (a quarter of the cap), where a traceback is. Output that the trial writes at the very
moment of a cut may be lost or be out of order. Without a keeper, files are not cut.

If output is sent to the manager, the first half of the cap is sent at once, since a cut does not change it, and the
rest after the end of the trial. So the manager's copy is equal to the file.
"""

from __future__ import annotations

import os

from .plain_file import NotRegularFile, open_regular

_MARK = b"\n[nnilite: %20d bytes of output left out here: %s]\n"
_MIN_CAP_BYTES = 16 * len(_MARK % (0, b"over maxOutputSize"))


class OutputFile:
    """The file of one stream. `size` is its size at the last call of `grown`.

    `why`: what a cut file says of its cap.
    """

    def __init__(self, path: str, cap_bytes: int, why: bytes = b"over maxOutputSize") -> None:
        self.path = path
        self._why = why
        self.size = 0
        self._cap = max(cap_bytes, _MIN_CAP_BYTES) if cap_bytes else 0
        self._left_out = 0

    @property
    def stable(self) -> int:
        """How many bytes of the file, from its start, no cut can change."""
        return self._cap // 2 if self._cap else self.size

    @property
    def near_cap(self) -> bool:
        return bool(self._cap) and self.size > self.stable

    def grown(self) -> bool:
        """Return whether the file has changed its size since the last call."""
        size = _size(self.path)
        changed = size != self.size
        self.size = size
        return changed

    def cut(self) -> None:
        """Cut the file if it is over the cap. Raises: OSError."""
        if not self._cap or self.size <= self._cap:
            return
        head, tail = self._cap // 2, self._cap // 4
        with open(self.path, "rb+") as file:
            begin = file.seek(0, os.SEEK_END) - tail
            file.seek(begin)
            kept = file.read(tail)  # and not more, which the trial may be writing now
            self._left_out += begin - head - (len(_MARK % (0, self._why)) if self._left_out else 0)
            file.truncate(head)
        with open(self.path, "ab") as file:
            file.write(_MARK % (self._left_out, self._why) + kept)
        self.size = _size(self.path)

    def read(self, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes from `offset`; nothing if there is no such file (any more). Raises: OSError."""
        try:
            with open_regular(self.path) as file:
                file.seek(offset)
                return file.read(limit)
        except (FileNotFoundError, NotADirectoryError, NotRegularFile):
            return b""

    def last(self, limit: int) -> str:
        """Return the last `limit` bytes or fewer, from the beginning of a line."""
        size = _size(self.path)
        try:
            text = self.read(max(0, size - limit), limit)
        except OSError as error:
            return "[{} cannot be read: {}]".format(self.path, error.strerror)
        if size > limit:
            text = text.partition(b"\n")[2] or text
        return text.decode("utf-8", "replace").rstrip()


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
