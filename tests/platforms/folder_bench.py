"""A bench for schedulers of which trials report by their folders."""

from __future__ import annotations

from nnilite.testing import ReadingBench


class FolderBench(ReadingBench):
    """Its trials report by their folders, as with `callback: log`."""

    @property
    def calls_back(self) -> bool:
        return False
