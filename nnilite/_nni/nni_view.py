"""Shows an experiment of Microsoft NNI: what `nnictl view` and all commands that read need. It cannot be resumed.

Its results come from the copy that `nni_import` has made; the trials' files and the logs are read where NNI left them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path

from nnilite._answers.backend import Piece, TrialRemarks
from nnilite._experiments import nni_folders, registry
from nnilite._experiments.documents import read_document
from nnilite._experiments.nni_folders import COPY, COPY_CURE
from nnilite._store.reader import Reader
from nnilite._store.settings_of_config import is_maximizing
from nnilite._store.writer import Store, open_store
from nnilite._views.experiment_facts import ExperimentFacts, ExperimentProgress
from nnilite._views.folder_files import FolderFiles, read_piece
from nnilite._views.view_control import ViewControl
from nnilite._views.viewer import Viewer
from nnilite.errors import Conflict, NotFound
from nnilite.records import ExperimentLimits, Json
from nnilite.units import parse_duration_s

_LOGS = {"manager": "nnimanager.log", "tuner": "dispatcher.log"}


class NniFiles(FolderFiles):
    """Finds files where NNI put them."""

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        if name not in _LOGS:
            raise NotFound(f"There is no log {name!r}; there are {', '.join(_LOGS)}.")
        return await asyncio.to_thread(read_piece, self._folder / "log", _LOGS[name], offset, limit)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        folder = await self.directory(trial)
        return await asyncio.to_thread(_output, folder, stream, offset, limit)

    async def directory(self, trial: str) -> Path:
        found, _ = await self._reader.trial(trial)
        folder = await asyncio.to_thread(nni_folders.find_trial_folder, self._folder, found.id)
        if folder is None:
            raise NotFound(f"NNI left no folder of trial {trial} on this machine.")
        return folder


class NniControl(ViewControl):
    """Refuses what NNI's experiments cannot do."""

    @property
    def cannot_resume(self) -> str:
        return registry.explain_no_resume(self._about.id)

    async def resume(self) -> None:
        raise Conflict(self.cannot_resume)

    async def remark(self, remarks: TrialRemarks) -> TrialRemarks:
        """Refuse remarks, as this shows a copy, which is renewed when NNI's own database has changed.

        Raises: Conflict.
        """
        raise Conflict(f"Experiment {self._about.id} was made by Microsoft NNI and can only be read.")

    def refusal(self, what: str) -> Conflict:
        return Conflict(self.cannot_resume)


def _output(folder: Path, stream: str, offset: int, limit: int) -> Piece:
    """Return one stream of a trial.

    NNI 3 writes what a local trial prints to `trial.log`, and leaves its stdout empty.
    """
    names = [f"trial.{stream}", stream] + (["trial.log"] if stream == "stdout" else [])
    pieces = (read_piece(folder, name, offset, limit) for name in names)
    return next((one for one in pieces if one.total), Piece(b"", 0, 0))


def open_view(directory: Path, token: str) -> tuple[Viewer, Store]:
    """Open a reader of an experiment that `prepare` has copied here. Raises: NniliteError."""
    document = read_document(directory / COPY, COPY_CURE)
    config, origin = document.fields.get("config"), document.folder("directory")
    if not isinstance(config, dict):
        raise document.wrong("config", "a JSON object")
    store = open_store(directory, False, time.time())
    maximize = is_maximizing(_algorithm(config))
    known = store.resume_reader.snapshot(maximize)
    about = ExperimentFacts(
        id=str(document.text("id")),
        directory=origin,
        config=config,
        platforms=tuple((document.text("platform") or "").split(",")),
        created=store.resume_reader.moment("created") or 0.0,
        maximize=maximize,
        space=config.get("searchSpace"),
        objectives={"default": "maximize" if maximize else "minimize"},
        pid=os.getpid(),
    )
    progress = ExperimentProgress(
        state=known.state,
        reason="",
        duration_s=known.duration_s,
        ended=store.resume_reader.moment("ended"),
        limits=_limits(config),
        counts=known.counts,
        best=known.best,
        next_sequence=known.next_sequence,
    )
    reader = Reader(store.path)
    return Viewer(about, progress, reader, token, NniControl, NniFiles(origin, reader)), store


def _algorithm(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the tuner, also from a config of NNI 1, which had advisors, and other names."""
    section = config.get("tuner") or config.get("advisor")
    section = section if isinstance(section, dict) else {}
    name = section.get("name") or section.get("builtinTunerName") or section.get("builtinAdvisorName")
    arguments = section.get("classArgs")
    return {"name": name, "classArgs": arguments if isinstance(arguments, dict) else {}}


def _limits(config: Mapping[str, Json]) -> ExperimentLimits:
    def whole(*names: str) -> int | None:
        return next((config[name] for name in names if type(config.get(name)) is int and config[name] >= 0), None)

    found = ExperimentLimits(whole("trialConcurrency") or 1, whole("maxTrialNumber", "maxTrialNum"))
    return dataclasses.replace(
        found,
        max_duration_s=_duration(config.get("maxExperimentDuration") or config.get("maxExecDuration")),
        max_trial_duration_s=_duration(config.get("maxTrialDuration")),
    )


def _duration(value: Json) -> int | None:
    try:
        return None if value is None else parse_duration_s(value)
    except ValueError:
        return None
