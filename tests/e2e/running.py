"""Real experiments: a real manager process, the local service, real trials."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.testing import eventually
from nnilite.testing.ports import free_port
from processes import send_signal

ENDED = ("DONE", "ERROR", "STOPPED")
_LAST_BYTES = 3000
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
ECHO = """
import nnilite
p = nnilite.get_next_parameter()
nnilite.report_intermediate_result(p["x"] / 2)
nnilite.report_final_result(p["x"])
"""


@contextlib.contextmanager
def ended_experiment(folder: Path, space: dict[str, Any], trials: int) -> Iterator[tuple[RegistryEntry, Client]]:
    """Serve an experiment that has run `trial.py` of a folder for a grid, one trial after the other."""
    config = {
        "searchSpace": space,
        "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
        "trialConcurrency": 1,
        "maxTrialNumber": trials,
        "tuner": {"name": "GridSearch"},
        "trainingService": {"platform": "local"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            eventually(lambda: client.profile()["state"] == "DONE", 120)
            yield entry, client
            client.stop()


class Running:
    """One experiment of a test, and how to wait for it."""

    def __init__(self, entry: RegistryEntry, certificate: Path | None = None) -> None:
        self.entry = entry
        self._certificate = certificate
        self.client = self.connect()

    def connect(self) -> Client:
        return Client(self.entry.url or "", launch.token(self.entry), certificate=self._certificate)

    @property
    def directory(self) -> Path:
        return self.entry.directory

    def state(self) -> str:
        return str(self.client.profile()["state"])

    def trials(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.client.trials(**query))

    def wait(self, *states: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """The profile once the experiment is in one of the states."""
        try:
            wait_for(lambda: self.state() in (states or ENDED), timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self._describe()}") from error
        return self.client.profile()

    def _describe(self) -> str:
        """What may say why it does not end: its trials, and what they and the manager have written last."""
        lines = [f"{one['id']} {one['state']} {one['reason']}" for one in self.trials()]
        for file in [*self.directory.glob("log/manager.log"), *self.directory.glob("trials/*/*/trial.std*")]:
            text = file.read_bytes()[-_LAST_BYTES:].decode(errors="replace")
            lines.append(f"--- {file.relative_to(self.directory)}\n{text}")
        return "\n".join(lines)

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        wait_for(condition, timeout_s)

    def kill_manager(self) -> None:
        """kill -9, and wait until it is gone."""
        send_signal(self.entry.pid)
        self.client.close()
        wait_for(lambda: not registry.is_alive(self.directory), 10.0)

    def resume(self) -> Running:
        again = launch.resume(self.entry, options=launch.ManagerOptions(port=0), detach=False)
        return Running(again, self._certificate)

    def stop(self) -> None:
        if registry.is_alive(self.directory):
            self.client.close()
            self.entry = registry.find(self.entry.id)
            self.client = self.connect()
            self.client.stop()
            wait_for(lambda: not registry.is_alive(self.directory), 60.0)
        self.client.close()


def wait_for(condition: Callable[[], object], timeout_s: float) -> None:
    """Wait until the condition holds; fail at the deadline."""
    eventually(condition, timeout_s)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start an experiment whose trials run the given Python code, in a folder with a hostile name."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    with starting(tmp_path) as begin:
        yield begin


@contextlib.contextmanager
def starting(tmp_path: Path) -> Iterator[Start]:
    """What the fixture `start` gives, for others that last longer than a test. NNILITE_HOME is theirs to set."""
    begun: list[Running] = []

    def begin(code: str = ECHO, port: int | None = None, certificate: Path | None = None, **config: Any) -> Running:
        folder = tmp_path / "it's $HOME; a\nfolder"
        folder.mkdir(exist_ok=True)
        (folder / "trial.py").write_text(code)
        full: dict[str, Any] = {
            "searchSpace": SPACE,
            "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
            "trialCodeDirectory": str(folder),
            "trialConcurrency": 2,
            "maxTrialNumber": 4,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "local"},
            **config,
        }
        full = {key: value for key, value in full.items() if value is not None}
        # A port that the system chooses may be another program's when a test wants it again for a later manager.
        options = launch.ManagerOptions(port=free_port() if port is None else port)
        entry = launch.create(from_dict(full, folder), options=options, detach=False)
        begun.append(Running(entry, certificate))
        return begun[-1]

    try:
        yield begin
    finally:
        for running in begun:
            with contextlib.suppress(FileNotFoundError):
                running.stop()
