"""The folder of all files, on the file system that the login node and the compute nodes share.

DIRECTORY/cache/                              the keeper and the code, by their content
DIRECTORY/EXPERIMENT/callback                 where the manager is
DIRECTORY/EXPERIMENT/trials/TRIAL/ATTEMPT/    spec.json, the script, job.log, and what keeper and trial write
"""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nnilite.errors import ConfigError, Place, ServiceError
from nnilite.foreign_files import BrokenStream, read_small
from nnilite.records import Json
from nnilite.services.cluster import shell_scripts as shell
from nnilite.services.cluster.hanging_folders import HangingFolders, attempt_folder, describe_hanging, was_killed
from nnilite.services.cluster.login import TRANSFER_S, USUAL_S, LoginHost, ShellAnswer

log = logging.getLogger(__name__)

NOTE_MAX_BYTES = 1_000_000
"""A larger file in the place of a note was put there by the trial, and is never fetched."""
_MOST_MESSAGE_CHARS = 1000
_CACHE_DAYS = "30"
_READ_S = "25"  # for pieces of files; less than the time limit of a command
_SHOW_S = "8"  # for a file that a person wants to see; less than the manager waits
_KNOWN = 3


@dataclass(frozen=True)
class JobListing:
    """The answer of a command that lists jobs, and the sizes of files that were looked at after it."""

    status: int
    output: bytes
    complaint: str
    sizes: Mapping[str, int]
    hanging: frozenset[str] = frozenset()  # folders in an unknown state, for they do not answer

    @property
    def reason(self) -> str:
        """Return its complaint, in one line."""
        return " ".join(self.complaint.split())[:_MOST_MESSAGE_CHARS] or f"exit status {self.status}"


@dataclass
class SharedFolder:
    """What is done in the folder, by way of the login host. Methods raise ServiceError if that is not possible now."""

    host: LoginHost
    root: str = ""  # its absolute name, once `prepare` was called

    def __post_init__(self) -> None:
        self.hanging = HangingFolders(self.host, lambda: self.root)

    # ------------------------------------------------------------ the cache

    async def send_code(
        self,
        directory: str,
        files: Mapping[str, Path],
        stored_code: Callable[[str], Mapping[str, Json] | None],
        pythons: Sequence[str],
    ) -> None:
        """Bring keeper and code into the cache, unless they are there. `files`: by name, the keeper first.

        `stored_code` says where the shared storage has the code; the login host takes it from there if it can. Raises:
        ConfigError, ServiceError.
        """
        keeper = next(iter(files))
        for name in await self.prepare(directory, files):
            stored = None if name == keeper else stored_code(name.partition(".")[0])
            if stored is not None:
                trouble = await self.take_code(keeper, name, stored, pythons)
                if not trouble:
                    continue
                log.warning("sending the code to %s from this machine: %s", self.host.title, trouble)
            await self.upload(name, files[name])

    async def prepare(self, directory: str, files: Mapping[str, Path]) -> list[str]:
        """Make the folder. Return those of the files, by name, that its cache does not have."""
        answer = await self.host.run(shell.PREPARE, directory, _CACHE_DAYS, *files)
        if answer.status:
            raise ConfigError(f"cannot be created on {self.host.title}: {answer.reason}", Place(field="directory"))
        *sizes, self.root = answer.output.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n", len(files))
        known = zip(files.items(), sizes, strict=True)
        return [name for (name, source), size in known if size.strip() != str(source.stat().st_size)]

    async def upload(self, name: str, source: Path) -> None:
        """Bring a file to the cache."""
        await self.checked(shell.UPLOAD, name, given=source, limit_s=TRANSFER_S)

    async def take_code(self, keeper: str, name: str, storage: Mapping[str, Json], pythons: Sequence[str]) -> str:
        """Have the code brought to the cache from the shared storage. Return why that is not possible, or ""."""
        given = json.dumps(dict(storage)).encode()
        try:
            words = (self.root, keeper, name, *pythons)
            answer = await self.host.run(shell.TAKE_CODE, *words, given=given, limit_s=TRANSFER_S)
        except ServiceError as error:
            return str(error)
        output = answer.output.decode("utf-8", "replace").strip()
        return "" if answer.status == 0 else output[-_MOST_MESSAGE_CHARS:] or answer.reason

    # ------------------------------------------------------------ writing

    async def write_spec(self, folder: str, spec: bytes) -> bool:
        """Make an attempt's folder with its specification; False if it is there already."""
        answer = await self.host.run(shell.WRITE_SPEC, self.root, folder, str(len(spec)), given=spec)
        if answer.status not in (0, _KNOWN):
            raise ServiceError(f"cannot write to the folder {self.root}/{folder}: {answer.reason}")
        return answer.status == 0

    async def tell_address(self, experiment: str, url: str) -> None:
        """Write down where the manager is, for keepers."""
        await self.checked(shell.CALLBACK, experiment, given=url.encode())

    async def remove(self, folder: str) -> None:
        """Remove what holds a secret or much space of an attempt that has ended."""
        await self.checked(shell.REMOVE, folder)

    async def finish(self, experiment: str, keep: str) -> None:
        """Clear the folders of the attempts that were removed. `keep`: "outputs" or "nothing"."""
        await self.checked(shell.FINISH, experiment, keep)

    # ------------------------------------------------------------ reading

    async def look(self, listing: Sequence[str], files: Iterable[str], before: str = "") -> JobListing:
        """Run a command that lists jobs, and look at files, at once. `before`: shell commands that come first."""
        listed = await self.hanging.look(files, partial(self._look, before, listing))
        return replace(listed, hanging=self.hanging.aside())

    async def await_file(self, files: Sequence[str], looks: int, pause_s: float) -> frozenset[str]:
        """Return which files exist, as soon as one does; none if none appears within `looks` looks."""
        folders = self.hanging.aside()
        asked = [name for name in files if attempt_folder(name) not in folders]
        answer = await self.host.run(shell.AWAIT_FILE, self.root, str(looks), str(pause_s), *asked)
        if answer.status:
            raise ServiceError(f"cannot look into the folder {self.root}: {answer.reason}")
        return frozenset(answer.output.decode("utf-8", "surrogateescape").splitlines())

    async def _look(self, before: str, listing: Sequence[str], files: Sequence[str], limit_s: str) -> JobListing | None:
        mark = secrets.token_hex(8)
        given = b"".join(name.encode() + b"\0" for name in files)
        answer = await self.host.run(before + shell.POLL, self.root, mark, limit_s, *listing, given=given)
        if was_killed(answer):
            return None
        output, found, rest = answer.output.rpartition(f"\n{mark} ".encode())
        status, _, sizes = rest.partition(b"\n")
        if not found:
            raise ServiceError(f"{self.host.title}: {answer.reason}")
        return JobListing(int(status), output, answer.complaint, _sizes(sizes))

    async def read_files(self, files: Iterable[str]) -> dict[str, bytes]:
        """Read small files, as many as are there, by name."""
        names = list(files)
        if not names:
            return {}
        answer = await self.hanging.look(names, self._archive)
        found: dict[str, bytes] = {}
        try:
            for name, content in read_small(io.BytesIO(answer.output).read, NOTE_MAX_BYTES):
                found[name] = content
        except BrokenStream as error:
            raise ServiceError(f"{self.host.title} sent files that cannot be read: {error}") from error
        return found

    async def _archive(self, names: Sequence[str], limit_s: str) -> ShellAnswer | None:
        given = b"".join(name.encode() + b"\0" for name in names)
        answer = await self.host.run(shell.TAKE, self.root, limit_s, given=given)
        return None if was_killed(answer) else answer

    async def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Read pieces of files: name, offset, length. All of them must exist."""
        output = await self._read_pieces(wanted, _READ_S)
        if len(output) != sum(length for _, _, length in wanted):
            raise ServiceError(f"files on {self.host.title} changed while they were read")
        found, begin = [], 0
        for _, _, length in wanted:
            found.append(output[begin : begin + length])
            begin += length
        return found

    async def piece(self, name: str, offset: int, limit: int) -> bytes:
        """Read up to `limit` bytes of a file from `offset`; b"" where there is nothing (yet)."""
        return await self._read_pieces([(name, offset, limit)], _SHOW_S)

    async def _read_pieces(self, wanted: Sequence[tuple[str, int, int]], limit_s: str) -> bytes:
        for name, _, _ in wanted:
            self.hanging.check(name)
        given = "".join(f"{offset} {length} {name}\n" for name, offset, length in wanted)
        answer = await self.host.run(shell.PIECES, self.root, limit_s, given=given.encode())
        if was_killed(answer):
            raise ServiceError(describe_hanging(attempt_folder(wanted[0][0]), self.host.title))
        return answer.output

    async def checked(
        self, script: str, *words: str, given: bytes | Path = b"", limit_s: float = USUAL_S
    ) -> ShellAnswer:
        """Run a shell script with the folder as $1. Raises: ServiceError, also if it fails."""
        answer = await self.host.run(script, self.root, *words, given=given, limit_s=limit_s)
        if answer.status:
            raise ServiceError(f"{self.host.title}: {answer.reason}")
        return answer


def _sizes(text: bytes) -> dict[str, int]:
    found = {}
    for entry in text.split(b"\0"):
        size, _, name = entry.partition(b" ")
        if name and size.isdigit():
            found[name.decode("utf-8", "surrogateescape")] = int(size)
    return found
