"""The token of an experiment, which opens its REST interface: `<experiment>/token`, readable by its user alone."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

from nnilite._experiments import registry
from nnilite._experiments.documents import read_content, write_content
from nnilite.errors import DamagedFile

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,512}")


def read_token(directory: Path) -> str:
    """Return the token for the experiment's REST interface. Raises: FileNotFoundError, DamagedFile, UnreadableFile."""
    path, cure = directory / "token", "remove it, and the next manager makes a new one"
    text = read_content(path, cure).decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise DamagedFile(path, "it does not contain a token: 16 to 512 characters of A-Z, a-z, 0-9, - and _", cure)
    return text


def read_user_token(directory: Path) -> str:
    """Return the token that opens the REST interface; readable by the user alone.

    A new one is made where there is none, and where another person may know it: it came with a folder from elsewhere,
    its file is another user's, or others may read it, as a backup without modes leaves it.
    Raises: DamagedFile, UnreadableFile.
    """
    with contextlib.suppress(FileNotFoundError):
        known = read_token(directory)
        if registry.is_registered(directory) and _is_own(directory / "token") and _is_secret(directory / "token"):
            return known
    write_content(directory / "token", secrets.token_urlsafe(32).encode("ascii"))
    return read_token(directory)


def _is_own(path: Path) -> bool:
    """Return whether this user has made a file. Raises: OSError."""
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode):
        return False
    if facts.st_uid == os.geteuid():
        return True
    # Some network drives show another owner of all files.
    with tempfile.TemporaryFile(dir=path.parent) as fresh:
        return os.fstat(fresh.fileno()).st_uid == facts.st_uid


def _is_secret(path: Path) -> bool:
    """Return whether only its owner can read a file. Raises: OSError."""
    if not path.stat().st_mode & 0o044 or not path.parent.stat().st_mode & 0o011:
        return True
    # Some network drives show the same modes of all files.
    with tempfile.TemporaryFile(dir=path.parent) as fresh:
        return bool(os.fstat(fresh.fileno()).st_mode & 0o044)
