"""For services of platforms that run a shell command in an image: the command that becomes the keeper there.

    instructions = Instructions(spec, Supply(file="keeper", packed=True), digest, Supply(file="code"), package.hash)
    secret = {"spec": instructions.packed(), "keeper": pack(keeper), "code": code}     a secret of the platform
    words = command("/var/run/secret", "/work")         or shlex.join(words), where the platform wants one string

The command gets specification, keeper and code from wherever the platform can hand them over, each from a place of its
own, and holds no secret itself:

| place | specification | keeper and code |
| --- | --- | --- |
| a secret that is mounted, or any mounted storage | `command("/path")` | `Supply(file="/path/keeper.pyz")` |
| environment variables | `command("env:NNILITE_START")` | `Supply(variable="NNILITE_KEEPER")`, see `environment` |
| an object store | `command("url:NAME")`, a variable with a URL | `Supply(url="https://...")`, which opens one object |
| the manager | no: it holds the token that opens the manager | the code: `spec_for(..., code={"download": hash})` |

The keeper is checked by its hash and does not come from the manager: a job that has waited for days might find a
manager of another version there. The code from the manager is fetched by the keeper, which has it prove who it is.

The image needs a POSIX `/bin/sh` and a Python of 3.8 or later, under any of its usual names; without one the job ends
with a sentence that says so. SIGTERM to the job reaches the keeper, which keeps the job's process id. What the keeper
could not deliver to the manager is in the job's log, for `keeper_folder.read_log`, and so does why it never ran.

Limits: Linux accepts 128 kB for each word of a command and each environment variable, and about 2 MB for all of them.
The command is about 7 kB; the keeper is 55 kB packed, and 73 kB in a variable, or 38 and 51 kB by `for_one_job` and
`pack_tightly`. `environment` splits what is longer.
Where there is room for 107 kB, the keeper of `with_bytecode` lets trials start earlier.
"""

from __future__ import annotations

import base64
import bz2
import functools
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nnilite._keeper import bootstrap_shell, bootstrap_source, for_one_job, with_bytecode
from nnilite.records import Json

__all__ = [
    "Instructions",
    "JobProcess",
    "Supply",
    "command",
    "environment",
    "file_digest",
    "for_one_job",
    "pack",
    "pack_tightly",
    "python_command",
    "with_bytecode",
]

_VARIABLE_CHARS = 100_000


@dataclass(frozen=True)
class Supply:
    """Where a job gets one file: exactly one of `file`, `url` and `variable`."""

    file: str = ""
    """A path there; a relative one is below `files` of the command, or in the folder of the instructions."""
    url: str = ""
    """http or https; anyone who has it can read the object, so it is handed over like a secret."""
    variable: str = ""
    """The first of the environment variables that `environment` has made."""
    packed: bool = False
    """Whether it went through `pack`."""


@dataclass(frozen=True)
class Instructions:
    """The instructions of a job. They hold the trial's token, so they are a secret."""

    spec: Mapping[str, Json]
    """Of `Job.spec_for`. A relative `callback_file` is in the folder of the instructions."""
    keeper: Supply
    keeper_sha256: str
    """Of the keeper's file, in hexadecimal digits."""
    code: Supply | None = None
    """None: `spec` says it."""
    code_hash: str = ""
    """`CodePackage.hash`."""
    roles: Mapping[str, Json] = field(default_factory=dict)
    """For jobs of several processes: {role: {"reports": whether it reports for the trial, "spec": what differs}}."""
    log_stays: bool = True
    """Whether the log of a job can be read when the job has ended."""
    log_tells_end: bool = False
    """Whether the end is printed even if the manager has it already, for platforms that report no exit code."""
    shared: bool = False
    """Whether all processes of the job have one folder."""

    def packed(self) -> bytes:
        """Return the bytes to hand over."""
        content = {
            "spec": dict(self.spec),
            "keeper": {**_entry(self.keeper), "sha256": self.keeper_sha256},
            "code": {**_entry(self.code), "hash": self.code_hash} if self.code else None,
            "roles": dict(self.roles),
            "log_stays": self.log_stays,
            "log_tells_end": self.log_tells_end,
            "shared": self.shared,
        }
        return pack(json.dumps(content).encode())


@dataclass(frozen=True)
class JobProcess:
    """Which process of a job a command starts, for jobs that have several."""

    role: str = ""
    rank_variable: str = ""
    """The environment variable with the number of the process within its role; it is 0 without one."""
    task: str = "run"
    """run, or resume or prepare: see `nnilite._keeper.job`."""


def command(
    source: str,
    work: str,
    process: JobProcess = JobProcess(),
    *,
    message_file: str = "",
    files: str = "",
    checkpoints: str = "",
) -> list[str]:
    """Return the command of a job, as a list of words.

    `source` is where the instructions are, `work` the folder where the job may write. `message_file` is a file whose
    content the platform shows when the job has ended; `files`, the folder for relative names of supplies;
    `checkpoints`, the folder for checkpoints.

    >>> command("/var/run/secret", "/tmp/nnilite")[-4:]
    ['--from', '/var/run/secret', '--work', '/tmp/nnilite']
    """
    given = {
        "message": message_file,  # the first, where the shell looks for it
        "from": source,
        "work": work,
        "files": files,
        "checkpoints": checkpoints,
        "role": process.role,
        "rank": process.rank_variable,
        "task": "" if process.task == "run" else process.task,
    }
    words = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return python_command(bootstrap_source(), *words)


def python_command(program: str, *arguments: str) -> list[str]:
    """Return a command that runs a program's text for Python 3.8 or later with whatever Python the image has."""
    return ["/bin/sh", "-c", bootstrap_shell(), _load_text(program), *arguments]


@functools.lru_cache(maxsize=4)
def _load_text(program: str) -> str:
    """Return the text of a short program that runs this one. Each job has it, and to compress takes milliseconds."""
    text = base64.b64encode(pack(program.encode())).decode()
    # `binascii` is a part of the interpreter, and `base64` would load `re`.
    return f"import binascii, zlib; exec(zlib.decompress(binascii.a2b_base64({text!r})))"


def environment(name: str, data: bytes) -> dict[str, str]:
    """Return environment variables for any data: NAME, and NAME_1, NAME_2 and so on where one would be too long.

    >>> environment("NNILITE_START", b"abc")
    {'NNILITE_START': 'YWJj'}
    """
    text = base64.b64encode(data).decode()
    pieces = [text[begin : begin + _VARIABLE_CHARS] for begin in range(0, len(text), _VARIABLE_CHARS)]
    return {f"{name}_{number}" if number else name: piece for number, piece in enumerate(pieces)}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex, such as `Instructions.keeper_sha256`. Raises: OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def pack(data: bytes | Path) -> bytes:
    """Compress, as supplies that are `packed` must be. Raises: OSError."""
    return zlib.compress(data.read_bytes() if isinstance(data, Path) else data, 9)


def pack_tightly(data: bytes) -> bytes:
    """Compress for platforms where each byte counts. A Python of the image that has no `bz2` cannot unpack it."""
    return bz2.compress(data)


def _entry(supply: Supply) -> dict[str, Json]:
    return {name: value for name, value in asdict(supply).items() if value}
