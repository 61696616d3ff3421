"""Keeps artifacts of a trial: files in the folder `artifacts` of its own folder, and an index of them.

The index has a line of JSON for each artifact, and the last one with a name counts. A file is there whole before the
index names it.
"""

from __future__ import annotations

import os
import re
import time

from nnilite import _append, _environment
from nnilite._cpython import dumps, sha256
from nnilite._sdk.artifact_values import MOST_BYTES, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Callable

FOLDER = "artifacts"
INDEX = "index.jsonl"
_NAME_MAX = 100


def log_artifact(name: str, value: Any, own_folder: Callable[[], str]) -> Path:
    """Keep an artifact; in standalone mode in `own_folder()`. Raises: TypeError, ValueError, OSError."""
    from pathlib import Path

    if not isinstance(name, str):
        raise TypeError(f"the name of an artifact must be a text, not {type(name).__name__}")
    if not 0 < len(name) <= _NAME_MAX:
        raise ValueError(f"the name of an artifact must have 1 to {_NAME_MAX} characters, not {len(name)}")
    kind, ending, data = make(value)
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"artifact {name!r} has more than {MOST_BYTES:,} bytes; write large files to $NNI_OUTPUT_DIR, "
            "where the page lists them"
        )
    folder = os.path.join(_environment().get("NNI_OUTPUT_DIR") or own_folder(), FOLDER)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, _make_file_name(name, ending))
    _write_whole(path, data)
    entry = {"name": name, "file": os.path.basename(path), "kind": kind, "bytes": len(data), "time": time.time()}
    _append(os.path.join(folder, INDEX), (dumps(entry) + "\n").encode("ascii"), "artifact")
    return Path(path)


def _make_file_name(name: str, ending: str) -> str:
    """Return a name that every file system takes, and that no other artifact has."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9_-]+', '-', name)[:40].strip('-') or 'artifact'}-{digest}{ending}"


def _write_whole(path: str, data: bytes) -> None:
    draft = f"{path}.{os.getpid()}.new"
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    finally:
        if os.path.lexists(draft):
            os.remove(draft)
