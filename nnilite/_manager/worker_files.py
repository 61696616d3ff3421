"""Finds the files of trials also where the trials ran: output, folders and single files."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from nnilite._answers.backend import FileListing, Piece
from nnilite._manager.trial_copies import TrialCopies
from nnilite._store.reader import Reader
from nnilite._views.file_listing import merged
from nnilite._views.folder_files import FolderFiles
from nnilite.errors import NniliteError, NotFound, ServiceError
from nnilite.records import Attempt
from nnilite.service import TrainingService


class WorkerFiles(FolderFiles):
    """Asks the training service for what is not on this machine."""

    def __init__(self, folder: Path, reader: Reader, service: TrainingService) -> None:
        super().__init__(folder, reader)
        self._service = service
        self._copies = TrialCopies(folder / "trials", service)

    async def list_files(self, trial: str, elsewhere: bool) -> FileListing:
        attempt = await self._find_latest(trial) if elsewhere else None
        found, note = ([], "") if attempt is None else await self._copies.listed(attempt)
        here: FileListing | None = None
        with contextlib.suppress(NotFound):
            here = await super().list_files(trial, elsewhere)
        if here is None and not found and not note:
            raise NotFound(f"Trial {trial} has no folder on this machine yet.")
        return merged(here or FileListing(()), found, note)

    async def fetch_files(self, trial: str) -> None:
        attempt = await self._find_latest(trial)
        if attempt is not None:
            await self._copies.fetch_files(attempt)

    async def fetch_file(self, trial: str, path: str) -> None:
        number, _, inner = path.partition("/")
        _, attempts = await self._reader.trial(trial)
        for attempt in attempts:
            if str(attempt.number) == number and attempt.handle is not None and inner:
                await self._copies.fetch_file(attempt, inner)

    async def _find_latest(self, trial: str) -> Attempt | None:
        """Return the latest attempt that a platform has had."""
        _, attempts = await self._reader.trial(trial)
        return next((attempt for attempt in reversed(attempts) if attempt.handle is not None), None)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        """Read the folder on this machine; if it has nothing, ask the service.

        Raises: NotFound, StoreError; ServiceError if the service cannot answer, for example since it is closed already.
        """
        piece, gone = Piece(b"", 0, 0), None
        try:
            piece = await super().output(trial, attempt, stream, offset, limit)
        except NotFound as error:
            gone = error
        found = piece if piece.total else await self._ask_service(trial, attempt, stream, offset, limit) or piece
        if gone is not None and not found.total:
            raise gone
        return found

    async def _ask_service(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece | None:
        _, attempts = await self._reader.trial(trial)
        handles = [a.handle for a in attempts if a.handle is not None and attempt in (None, a.number)]
        if not handles or offset < 0:
            return None
        try:
            found = await asyncio.wait_for(self._service.logs(handles[-1], stream, offset, limit), 10.0)
        except asyncio.TimeoutError:
            return None
        except NotFound:
            raise
        # A closed service has no threads and no connections any more, and says so in words of its own.
        except (NniliteError, OSError, RuntimeError) as error:
            raise ServiceError(f"The output of trial {trial} cannot be read from its platform now: {error}") from error
        return Piece(found, offset, offset + len(found))
