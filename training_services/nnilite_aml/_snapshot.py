"""Build the folder that is uploaded as the code of all jobs: their start program, the keeper, the code in one archive.

An archive keeps what single blobs would lose: modes of files, empty folders, and names that a URL cannot have. And
`.amlignore` or `.gitignore` files in the code do not exclude files a second time. Azure finds a snapshot by the hash of
its content, so that the same code is uploaded once, also for several experiments.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from nnilite.errors import ConfigError, Place, ServiceError, describe_os_error
from nnilite.service import ServiceContext
from nnilite.services.bootstrap import JobProcess, command, file_digest, python_command
from nnilite.services.delivery import START_VARIABLE
from nnilite.units import format_size
from nnilite_aml import _start

START_FILE = "nnilite-start"
KEEPER_FILE = "keeper.pyz"
SNAPSHOT_LIMIT_BYTES = 300 * 1024**2
"""Azure's own limit for the snapshot of a job."""


@dataclass(frozen=True)
class CodeSnapshot:
    """A folder of this machine, ready to be uploaded."""

    folder: Path
    keeper_sha256: str
    code_hash: str
    size_bytes: int


def start_script() -> str:
    """Return the shell script that a job runs on each node.

    Its argument is the folder for checkpoints, if there is one.
    """
    words = command(f"env:{START_VARIABLE}", _start.WORK, JobProcess(rank_variable=_start.RANK), files=".")
    program = Path(_start.__file__).read_text(encoding="utf-8")
    return f'exec {shlex.join(python_command(program, json.dumps(words)))} "$@"\n'


def prepare(context: ServiceContext) -> CodeSnapshot:
    """Make the folder. Blocks. Raises: ConfigError if it is more than Azure accepts, CodeDirError, ServiceError."""
    package, keeper = context.package(), context.keeper.read_bytes()
    script = start_script().encode()
    size = len(keeper) + len(script) + package.archive.stat().st_size
    if size > SNAPSHOT_LIMIT_BYTES:
        raise ConfigError(
            f"the packed code is {format_size(size)}, and a snapshot on Azure can have "
            f"{format_size(SNAPSHOT_LIMIT_BYTES)}: exclude files with .nniignore, and let trials read data from a "
            "datastore",
            Place(field="trialCodeDirectory"),
        )
    digest = file_digest(context.keeper)
    name = hashlib.sha256(script + digest.encode() + package.hash.encode()).hexdigest()[:16]
    folder = context.directory / "aml" / name
    if not folder.is_dir():
        _fill(folder, script, keeper, package.archive)
    return CodeSnapshot(folder, digest, package.hash, size)


def _fill(folder: Path, script: bytes, keeper: bytes, archive: Path) -> None:
    """Fill the folder, whole or not at all."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        (draft / START_FILE).write_bytes(script)
        (draft / KEEPER_FILE).write_bytes(keeper)
        try:
            os.link(archive, draft / archive.name)
        except OSError:  # another file system, or one without links
            shutil.copyfile(archive, draft / archive.name)
        draft.rename(folder)
    except OSError as error:
        raise ServiceError(
            f"cannot prepare the code for Azure in {folder.parent}: {describe_os_error(error)}"
        ) from error
