"""Unpacking what a machine sends: a tar stream of a trial's folder, which the trial may have filled with anything.

Only files, folders and links that stay inside come out of it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Protocol

from nnilite.ssh.errors import LinkLost, MachineError


class _RemoteFile(Protocol):
    def rest(self) -> bytes: ...

    def read(self) -> bytes: ...


class _FileReader(io.RawIOBase):
    def __init__(self, source: _RemoteFile) -> None:
        self._source = source
        self._data = source.rest()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._data:
            self._data = self._source.read()
        count = min(len(buffer), len(self._data))
        buffer[:count], self._data = self._data[:count], self._data[count:]
        return count


def save(source: _RemoteFile, archive: Path) -> None:
    """Write the stream to a file as it is. Raises: LinkLost, OSError."""
    with archive.open("wb") as file:
        shutil.copyfileobj(_FileReader(source), file, 1 << 20)


def unpack(source: _RemoteFile, target: Path) -> None:
    """Unpack the stream to the folder `target`. Raises: LinkLost if it breaks off, MachineError, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    links: list[tarfile.TarInfo] = []
    try:
        with tarfile.open(fileobj=io.BufferedReader(_FileReader(source), 1 << 20), mode="r|") as archive:
            for member in archive:
                if member.issym():
                    links.append(member)
                else:
                    _extract(archive, member, _place(target, member.name))
    except (tarfile.TarError, EOFError) as error:
        raise LinkLost(f"the connection broke off ({error})") from error
    for link in links:
        _link(link, _place(target, link.name), target)


def _place(target: Path, name: str) -> Path:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or not name:
        raise MachineError(f"sent a file that would lie outside of its folder: {name!r}")
    return target.joinpath(*parts)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    source = archive.extractfile(member) if member.isreg() else None
    if source is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with source, place.open("r+b" if _grows(member.name) and place.exists() else "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    place.chmod(0o600 | (member.mode & 0o155))


def _grows(name: str) -> bool:
    """Whether the manager writes it here, too, as it comes: it may already have more than this copy."""
    return name in ("trial.stdout", "trial.stderr")


def _link(member: tarfile.TarInfo, place: Path, target: Path) -> None:
    """After all files, so that none is written through a link."""
    inside = os.path.realpath(target) + os.sep
    real = os.path.realpath(place.parent / member.linkname)
    if os.path.isabs(member.linkname) or not real.startswith(inside):  # noqa: PTH117
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(place):
        place.symlink_to(member.linkname)
