"""The other end of `_code_pod`: a program that takes files from its standard input. It runs on Python 3.8 and later.

Its argument is the folder for them. The first line is a JSON list of {"name", "size", "digest"}. The program answers
with the list of the names that it wants, gets their bytes one after the other, and answers `done`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import IO, Any, Dict

_CHUNK_BYTES = 1 << 20


class TransferRefused(Exception):
    """The files cannot be received; one sentence."""


def main(folder: str) -> None:
    """Receive the files. Raises: TransferRefused, OSError."""
    source = sys.stdin.buffer
    os.makedirs(folder, mode=0o755, exist_ok=True)
    missing = [entry for entry in json.loads(source.readline().decode("utf-8")) if not _is_there(folder, entry)]
    _say(json.dumps([entry["name"] for entry in missing]))
    for entry in missing:
        _unpack(source, folder, entry)
    _say("done")


def _is_there(folder: str, entry: Dict[str, Any]) -> bool:
    path = os.path.join(folder, entry["name"])
    is_file = os.path.isfile(path) and not os.path.islink(path)
    return is_file and os.path.getsize(path) == entry["size"] and _digest_of(path) == entry["digest"]


def _unpack(source: IO[bytes], folder: str, entry: Dict[str, Any]) -> None:
    path = os.path.join(folder, entry["name"])
    draft, left = "{}.{}.new".format(path, os.urandom(8).hex()), entry["size"]
    # Trials may write to this volume: nothing is written through a link of theirs.
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb") as file:
        while left:
            data = source.read(min(left, _CHUNK_BYTES))
            if not data:
                raise TransferRefused("the connection broke off")
            file.write(data)
            left -= len(data)
        file.flush()
        os.fsync(file.fileno())
    if _digest_of(draft) != entry["digest"]:
        os.remove(draft)
        raise TransferRefused("{} was damaged on its way".format(entry["name"]))
    os.chmod(draft, 0o644)  # pods may run as anybody
    os.replace(draft, path)


def _digest_of(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            found.update(chunk)
    return found.hexdigest()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (TransferRefused, OSError) as error:
        sys.exit(str(error))
