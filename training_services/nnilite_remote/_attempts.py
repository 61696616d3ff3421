"""Attempts of trials on one machine: starts, watches and ends them through its agent, and reads their files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from nnilite.foreign_files import TrialFile, listed
from nnilite.records import Json, KeeperEvent
from nnilite.services.bootstrap import file_digest
from nnilite.services.keeper_folder import copied_events
from nnilite.services.slots import SlotTerms
from nnilite.ssh.download import save, save_stream_below, unpack_stream
from nnilite.ssh.errors import RemoteFileMissing
from nnilite_remote._agent_answers import read_files, read_piece, read_start, read_trace
from nnilite_remote._machine_session import TRANSFER_S, MachineSession

_START_S = 20.0
_TRACE_S = 3.0
_PIECE_BYTES = 1 << 20


class Attempts:
    """The attempts on one machine. All methods are for the event loop, and may raise MachineError."""

    def __init__(self, session: MachineSession) -> None:
        self._session = session

    async def start(self, spec: Json, terms: SlotTerms, again: bool) -> Json:
        """Start a keeper and return its pid, start and boot.

        Or {"missing": name}, or {"waits": the experiment that it waits for}. `again`: an earlier request may have
        started it.

        Raises: MachineError if none was started, OutcomeUnknown.
        """
        return read_start(await self._session.ask("start", _START_S, spec=spec, terms=terms._asdict(), again=again))

    async def withdraw(self, job: str) -> None:
        """Withdraw a job that no longer needs or waits for a slot there."""
        await self._session.ask("withdraw", job=job)

    async def statuses(self, jobs: Sequence[Json]) -> list[Json]:
        """Return the status of jobs, by their handles."""
        return list(await self._session.ask("status", jobs=list(jobs)))

    async def cancel(self, job: Json) -> None:
        """Ask for the end of a job without waiting for it."""
        await self._session.ask("cancel", job=job)

    async def remove(self, job: Json) -> None:
        """Have a job's folder tidied up."""
        await self._session.ask("remove", job=job)

    async def read(self, directory: str, name: str, offset: int, limit: int) -> bytes | None:
        """Return a piece of a file of an attempt; None if the file does not exist."""
        return read_piece(await self._session.ask("read", directory=directory, name=name, offset=offset, limit=limit))

    async def piece(self, directory: str, name: str, offset: int) -> bytes:
        """Return a piece of a file, as large as one answer can hold; b"" at its end, or if it does not exist."""
        return await self.read(directory, name, offset, _PIECE_BYTES) or b""

    async def events(self, directory: str) -> Sequence[KeeperEvent]:
        """Return the events in an attempt's files."""
        with tempfile.TemporaryDirectory(prefix="nnilite-") as copy:
            return await copied_events(Path(copy), lambda name, offset: self.piece(directory, name, offset))

    async def fetch(self, directory: str, target: Path) -> None:
        """Copy an attempt's folder."""
        await self._session.receive(directory, lambda stream: unpack_stream(stream, target), attempt=True)

    async def files(self, directory: str) -> list[TrialFile]:
        """Return the files in an attempt's folder."""
        found = read_files(await self._session.ask("files", directory=directory))
        if found is None:
            raise RemoteFileMissing(f"the folder {directory} is gone")
        return listed(found)

    async def fetch_file(self, directory: str, name: str, target: Path, most_bytes: int) -> None:
        """Copy one file of an attempt's folder."""
        await self._session.receive_file(
            directory, name, lambda stream: save_stream_below(stream, target, name, most_bytes)
        )

    async def trace(self, trial: str) -> Json:
        """Return what earlier attempts of the trial have left there."""
        return read_trace(await self._session.ask("trace", _TRACE_S, trial=trial))

    async def give_checkpoints(self, directory: str, archive: Path) -> None:
        """Write a trial's checkpoints to an archive here."""
        await self._session.receive(directory, lambda stream: save(stream, archive), attempt=False)

    async def take_checkpoints(self, trial: str, attempt: int, archive: Path) -> None:
        """Put there the checkpoints that `attempt` wrote elsewhere."""
        digest = await self._session.blocking(file_digest, archive)
        name = f"checkpoints-{trial}-{attempt}-{digest[:16]}.tar"
        await self._session.upload(name, archive)
        await self._session.ask("restore", TRANSFER_S, trial=trial, attempt=attempt, archive=name)
