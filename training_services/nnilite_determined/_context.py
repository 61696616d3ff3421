"""Build the context directory of a job, and check whether Determined would accept it.

The specification holds the trial's token. Determined has no secrets for trials, so the token is in the context
directory, which users who may see the experiment can read, and not in the configuration, which its web page shows them.
The token opens the callback of this one job, and nothing once the trial has ended.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import Instructions, Supply, keeper_digest, pack
from nnilite.services.delivery import HIDDEN

FOLDER = "nnilite"
# Of Determined 0.38.1: determined.constants.MAX_CONTEXT_SIZE, and the master's limit for one request.
CONTEXT_LIMIT_BYTES = 95 * 1024**2
REQUEST_LIMIT_BYTES = 128 * 1024**2
_REGULAR_FILE, _FOLDER = 48, 53
_SPEC_BYTES = 2 * 1024**2  # Reserved for the specification of one job, which is not known yet when the code is checked.


@dataclass(frozen=True)
class DeliveredFiles:
    """The files that all jobs of an experiment have in common."""

    keeper: bytes
    keeper_sha256: str
    code_hash: str
    archive: bytes | None  # None: jobs fetch the code from the manager

    @property
    def size_bytes(self) -> int:
        """Return the size of all files that every job gets."""
        return len(self.keeper) + len(self.archive or b"")


def deliver(context: ServiceContext, code_from: str) -> DeliveredFiles:
    """Read keeper and code; blocks.

    Raises: ConfigError if it is more than Determined accepts, CodeDirError, OSError.
    """
    package = context.package()
    archive = package.archive.read_bytes() if code_from == "context" else None
    found = DeliveredFiles(pack(context.keeper), keeper_digest(context.keeper), package.hash, archive)
    if found.size_bytes + _SPEC_BYTES > CONTEXT_LIMIT_BYTES:
        raise ConfigError(
            f"the code is {found.size_bytes / 1024**2:.0f} MB when packed, and Determined takes a context directory of "
            f"{(CONTEXT_LIMIT_BYTES - _SPEC_BYTES) / 1024**2:.0f} MB at most: exclude files with .nniignore, or set "
            "codeFrom: manager",
            Place(field="codeFrom"),
        )
    return found


def model_definition(job: Job, spec: Mapping[str, Json], delivered: DeliveredFiles) -> list[dict[str, Json]]:
    """Return the files of a job. Raises: ConfigError if they are too large together."""
    archive_name = f"{delivered.code_hash}.tar.gz"
    code = Supply(file=archive_name) if delivered.archive is not None else None
    keeper = Supply(file="keeper", packed=True)
    instructions = Instructions(spec, keeper, delivered.keeper_sha256, code, delivered.code_hash if code else "")
    files = {"spec": instructions.packed(), "keeper": delivered.keeper}
    if delivered.archive is not None:
        files[archive_name] = delivered.archive
    size = sum(map(len, files.values()))
    if size > CONTEXT_LIMIT_BYTES:
        raise ConfigError(
            f"the files of {job.name} are {size / 1024**2:.0f} MB, and Determined takes "
            f"{CONTEXT_LIMIT_BYTES / 1024**2:.0f} MB at most: its parameters are too large"
        )
    return [_entry(FOLDER, _FOLDER, 0o40700, b"")] + [
        _entry(f"{FOLDER}/{name}", _REGULAR_FILE, 0o100600, data) for name, data in files.items()
    ]


def hidden(files: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the same without contents: one of them is secret, and none is readable."""
    return [{**entry, "content": HIDDEN} for entry in files]


def _entry(path: str, kind: int, mode: int, data: bytes) -> dict[str, Json]:
    content = base64.b64encode(data).decode("ascii")
    return {"path": path, "type": kind, "content": content, "mtime": "0", "mode": mode, "uid": 0, "gid": 0}
