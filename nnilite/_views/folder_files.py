"""Finds the files of an experiment and of its trials in the experiment's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnilite._answers.backend import FileListing, Piece
from nnilite._experiments.provenance_reading import read_starts
from nnilite._rest.files import run_in_folder
from nnilite._store.reader import Reader
from nnilite._store.recorded_workers import find_workers
from nnilite._views.file_listing import list_folder
from nnilite.errors import NotFound
from nnilite.foreign_files import open_below
from nnilite.records import Attempt, Json

_LOGS = {"manager": "manager.log", "tuner": "tuner.log"}


class FolderFiles:
    """Implements `nnilite._answers.backend.ExperimentFiles` with the files that are on this machine."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self._folder = folder
        self._reader = reader

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        if name not in _LOGS:
            raise NotFound(f"There is no log {name!r}; there are {', '.join(_LOGS)}.")
        return await asyncio.to_thread(read_piece, self._folder / "log", _LOGS[name], offset, limit)

    async def starts(self) -> Sequence[Mapping[str, Json]]:
        return await asyncio.to_thread(read_starts, self._folder)

    async def recorded_workers(self) -> Sequence[Mapping[str, Json]]:
        return await self._reader.ask(find_workers)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        found, attempts = await self._reader.trial(trial)
        number = found.attempt if attempt is None else attempt
        trials, folder = self._folder / "trials", f"{found.id}/{number}"
        path = f"{folder}/trial.{stream}"
        ran = next((one for one in attempts if one.number == number and one.exit_code is not None), None)

        def read() -> Piece:
            piece = read_piece(trials, path, offset, limit)
            if not piece.total and ran is not None and _is_gone(trials / folder, stream, ran):
                raise NotFound(f"{trials / path} was moved or removed: the trial's {stream} is gone.")
            return piece

        return await run_in_folder(trials / folder, read)

    async def list_files(self, trial: str, elsewhere: bool) -> FileListing:
        folder = await self.directory(trial)
        return await run_in_folder(folder, lambda: list_folder(folder))

    async def fetch_files(self, trial: str) -> None:
        """Do nothing, as nothing is elsewhere that could be copied."""
        await self._reader.trial(trial)

    async def fetch_file(self, trial: str, path: str) -> None:
        """Do nothing, as nothing is elsewhere that could be copied."""
        await self._reader.trial(trial)

    async def directory(self, trial: str) -> Path:
        found, _ = await self._reader.trial(trial)
        path = self._folder / "trials" / found.id
        if not await run_in_folder(path, path.is_dir):
            raise NotFound(f"Trial {trial} has no folder on this machine yet.")
        return path

    def code_package(self, digest: str) -> Path:
        path = self._folder / "code" / f"{digest}.tar.gz"
        if not digest.isalnum() or not path.is_file():
            raise NotFound(f"There is no code package {digest!r}.")
        return path

    def keeper(self) -> Path:
        return self._folder / "keeper.pyz"


def _is_gone(folder: Path, stream: str, ran: Attempt) -> bool:
    """Return whether an attempt has written a stream in its folder here, and the file is there no longer."""
    names = {f"trial.{one}": (folder / f"trial.{one}").exists() for one in ("stdout", "stderr")}
    wrote_here = any(names.values()) or (ran.handle or {}).get("directory") == str(folder)
    return wrote_here and not names[f"trial.{stream}"]


def read_piece(root: Path, path: str, offset: int, limit: int) -> Piece:
    """Return bytes of a growing file below `root`, where no link is followed.

    A negative offset counts from the end. Without a file (yet) there are none.
    """
    try:
        with open_below(root, path) as file:
            total = file.seek(0, 2)
            start = max(total + offset, 0) if offset < 0 else min(offset, total)
            file.seek(start)
            return Piece(file.read(limit), start, total)
    except NotFound:
        return Piece(b"", 0, 0)
