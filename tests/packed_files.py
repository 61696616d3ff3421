"""Archives as strangers send them, and what a folder holds before and after they were unpacked."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

Member = tuple[str, bytes, str, bytes]  # its name, tar's type, where a link leads, its content


def packed(*members: Member, mode: int = 0o6755) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, target, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size, info.mode = kind, target, len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def file(name: str, content: bytes = b"x") -> Member:
    return name, tarfile.REGTYPE, "", content


def link(name: str, target: str) -> Member:
    return name, tarfile.SYMTYPE, target, b""


def snapshot(folder: Path) -> dict[str, object]:
    """All that is in a folder, with its kind, rights, content and time."""
    found: dict[str, object] = {}
    for path in [folder, *folder.rglob("*")]:
        facts = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""
        target = str(path.readlink()) if path.is_symlink() else ""
        found[str(path)] = (facts.st_mode, facts.st_nlink, content, target, facts.st_mtime_ns)
    return found
