"""The files that lead other programs to an experiment and its manager, and show its state."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from nnilite._experiments import registry
from nnilite._experiments.address import Address
from nnilite._experiments.documents import as_json, write_content
from nnilite._experiments.file_guard import Guard, GuardedFile
from nnilite._experiments.manager_state import find_manager_state
from nnilite._views.experiment_facts import ExperimentFacts
from nnilite.config import CheckedConfig, stored
from nnilite.records import ExperimentState, Json

log = logging.getLogger("nnilite.manager")


class RuntimeFiles:
    """What a manager, or a viewer, writes about itself into the experiment's folder."""

    def __init__(self, directory: Path, address: Address, *, mode: str) -> None:
        self.guard: Guard | None = None  # only a running manager guards its files; a viewer does not
        self.created: float | None = None  # the experiment, in seconds since the epoch
        self._directory = directory
        self._address = address
        self._mode = mode
        self._about: dict[str, Json] = {}  # the content of `manager.json` as last written

    def write_state(self, state: ExperimentState, ended: float | None, viewed: ExperimentState | None = None) -> None:
        """Record the experiment's state, and where this manager is. `viewed`: the own state of one that is viewed."""
        certificate = self._address.certificate
        about = {"state": state.value, "created": self.created, "ended": ended, "pid": os.getpid()}
        about |= {"port": self._address.port, "url": self._address.url, "mode": self._mode}
        about |= {"tls_cert": str(certificate.resolve()) if certificate else None}
        # A viewer does not touch what the last stop left behind on platforms.
        if self._mode == "view":
            about |= {"left": find_manager_state(self._directory).left}
        if viewed is not None:
            about |= {"viewed": viewed.value}
        self._about = about
        if state is ExperimentState.DONE and self._mode != "view":
            log.info("Experiment done.")  # scripts of NNI's users wait for these words
        self.write("manager.json", GuardedFile(as_json(about), exactly=True))

    def write_left(self, what: str) -> None:
        """Record what a platform could not end or remove, for the command that asked for the stop."""
        self._about = {**self._about, "left": what}
        self.write("manager.json", GuardedFile(as_json(self._about), exactly=True))

    def write(self, name: str, kept: GuardedFile) -> None:
        """Write a file into the folder. If that fails, it is logged."""
        path = self._directory / name
        try:
            if self.guard is None:
                write_content(path, kept.content)
            else:
                self.guard.write(path, kept)
        # The disk may be full. The REST interface still serves the state.
        except OSError as error:
            log.error("cannot write %s: %s", name, error)


def files_of(directory: Path, config: CheckedConfig, token: str, about: ExperimentFacts) -> dict[Path, GuardedFile]:
    """Return the files that lead the next manager and other programs to the experiment."""
    entry, platform = registry.entry(about.id), ",".join(about.platforms)
    started = entry.started if entry is not None and entry.started is not None else about.created
    known = registry.about(about.id, config.experiment_name or "", directory, platform, started)
    return {
        directory / "config.json": GuardedFile(as_json(stored(config))),
        directory / "token": GuardedFile(token.encode("ascii")),
        registry.find_path(about.id): GuardedFile(as_json(known), exactly=True),
    }
