"""The files from which an experiment was created, and which of them have changed since: a resume does not read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from nnilite._experiments.documents import read_content, read_document, write_json
from nnilite.errors import NniliteError

FILE_NAME = "config-source.json"
_CURE = "remove it; nothing needs it"
_MOST_FILES = 2  # the configuration and its search space; a stranger's experiment may name any number of large ones


def write_source(directory: Path, files: Iterable[Path]) -> None:
    """Record the files in the folder of their new experiment. Raises: OSError."""
    digests = {str(path.absolute()): _digest(path) for path in files}
    write_json(directory / FILE_NAME, {"files": {path: digest for path, digest in digests.items() if digest}})


def list_changed(directory: Path) -> list[str]:
    """Return the paths of those files that have another content now. Those that are gone are left out."""
    try:
        known = read_document(directory / FILE_NAME, _CURE).fields.get("files")
    except (FileNotFoundError, NniliteError):  # the experiment was created elsewhere, or by an earlier version
        return []
    if not isinstance(known, dict) or len(known) > _MOST_FILES:
        return []
    return [path for path, digest in known.items() if _digest(Path(path)) not in ("", digest)]


def _digest(path: Path) -> str:
    """Return a digest of a file; "" if it cannot be read."""
    try:
        return hashlib.sha256(read_content(path, _CURE)).hexdigest()
    except (OSError, ValueError, NniliteError):
        return ""
