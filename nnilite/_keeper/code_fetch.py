"""Brings a code package from the shared storage to a worker's cache, for all attempts there.

A storage may block without end, like a mounted folder whose server is unreachable. So the work has a thread of its own,
and is abandoned when no byte has come for a while. What comes is checked before it gets its name, so that a package in
a cache is whole, and the one that its name says.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from nnilite._cpython import loads

from . import working_copy
from .storage import StorageError, make_code_name
from .storage_choice import open_storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping

_PATIENCE_S = 60.0
_LOOK_S = 0.05


def main(archive: str) -> int:
    """Fetch by the storage's description on standard input; print why not. Never returns: a thread may hang."""
    try:
        entry = loads(sys.stdin.read())
        trouble = fetch_code(entry if isinstance(entry, dict) else {}, archive)
    except (ValueError, RecursionError):
        trouble = "the instructions to fetch are incomplete"
    sys.stdout.write(trouble)
    sys.stdout.flush()
    os._exit(1 if trouble else 0)


def fetch_code(entry: Mapping[str, Any], archive: str) -> str:
    """Bring the package to the path `archive`, `<hash>.tar.gz`, whole or not at all. Return why not, or "".

    `entry` is a specification's `storage`. A storage that sends nothing for its `patience_s` seconds is abandoned.
    """
    patience_s = float(entry.get("patience_s", _PATIENCE_S))
    name = os.path.basename(archive).split(".", 1)[0]
    draft = "{}.{}.part".format(archive, os.urandom(4).hex())
    trouble: List[str] = []
    moved = [time.monotonic()]

    def progress(count: int) -> None:
        moved[0] = time.monotonic()

    def fetch() -> None:
        try:
            if open_storage(entry).get(make_code_name(name), draft, progress):
                working_copy.check(draft, name)
                os.replace(draft, archive)
            else:
                trouble.append("the shared storage does not have the code (any more)")
        except (StorageError, working_copy.CodeError, OSError) as error:
            trouble.append(str(error))

    thread = threading.Thread(target=fetch, name="storage", daemon=True)
    thread.start()
    while thread.is_alive() and time.monotonic() - moved[0] < patience_s:
        thread.join(_LOOK_S)
    if thread.is_alive():
        trouble.append("the shared storage has sent nothing for {:.0f} s".format(patience_s))
    if os.path.exists(draft):
        os.unlink(draft)  # a thread that wakes up later can do nothing with it
    return trouble[0] if trouble else ""
