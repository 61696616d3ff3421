"""The example of a trial on several machines: on each platform it has to find the losses of a single process."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from e2e.running import Running
    from platforms.hosts.hosts import Host

_ROOT = Path(__file__).resolve().parents[1]
_EXAMPLE = _ROOT / "examples" / "ddp"
_NO_COMPILER = Path(__file__).parent / "torch_without_compiler"
PYTHON = "/usr/bin/python3"
_PARAMETERS = {"rate": 0.1, "width": 16}
_LIMIT_S = 240.0
_ROUNDING = 1e-5


class DdpExample:
    """The example with a PyTorch of the tests, and the losses that one process finds."""

    def __init__(self, site: Path, shared: Path) -> None:
        self._site = site
        self._shared = shared
        self._path = without_compiler(site)
        self.losses = self.losses_of(5)

    def losses_of(self, epochs: int) -> list[float]:
        """Return the losses; the first process of a run computes them for all, which takes PyTorch seconds."""
        kept = self._shared / f"ddp-losses-{epochs}.json"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(self._find_losses(epochs)))
        return list(json.loads(kept.read_text()))

    def _find_losses(self, epochs: int) -> list[float]:
        """Return what one process finds in so many epochs."""
        env = {**os.environ, "PYTHONPATH": f"{self._path}{os.pathsep}{_ROOT}", "EPOCHS": str(epochs)}
        command = [PYTHON, str(_EXAMPLE / "train.py")]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        assert ran.returncode == 0, ran.stderr
        return [float(found) for found in re.findall(r"^epoch \d+ loss (\S+)$", ran.stdout, re.MULTILINE)]

    def config(self, **distributed: Any) -> dict[str, Any]:
        """Its config, with one trial of known parameters, and with these fields of `distributed` changed."""
        config = yaml.safe_load((_EXAMPLE / "config.yaml").read_text("utf-8"))
        space = {name: {"_type": "choice", "_value": [value]} for name, value in _PARAMETERS.items()}
        command = config["trialCommand"].replace("python3", f'PYTHONPATH="{self._path}:$PYTHONPATH" {PYTHON}')
        own = {"trialCommand": command, "trialCodeDirectory": str(_EXAMPLE), "maxTrialNumber": 1}
        own["distributed"] = {**config["distributed"], **distributed}
        return {**config, "searchSpace": space, "tuner": {"name": "Random"}, **own}

    def show_to(self, host: Host) -> None:
        """Let the users of a host read the PyTorch of the tests; this machine's files stay as they are."""
        for folder in {*self._site.parents, *_NO_COMPILER.parents}:
            host.run(f"chmod o+x '{folder}'")
        host.run(f"chmod -R o+rX '{_NO_COMPILER}'")

    def check(self, running: Running) -> None:
        """Check the losses of the experiment's trial."""
        running.wait("DONE", timeout_s=_LIMIT_S)
        [trial] = running.trials()
        assert trial["state"] == "SUCCEEDED", trial["reason"]
        assert len(self.losses) == 5
        assert self.reported(running, trial) == pytest.approx(self.losses, abs=_ROUNDING)

    @staticmethod
    def reported(running: Running, trial: dict[str, Any]) -> list[float]:
        """Return the losses that a trial has reported, which have to be those of one epoch after the other."""
        values = [one["value"] for one in running.client.metrics(trial["id"], kind="PERIODICAL")]
        assert [value["step"] for value in values] == list(range(1, len(values) + 1))
        return [value["default"] for value in values]


def find_torch() -> Path:
    """Return the folder of the PyTorch for tests. Skips where there is none."""
    words = [str(_ROOT / "scripts" / "test-torch"), "--where"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode:
        pytest.skip(found.stdout.strip())
    return Path(found.stdout.strip())


def without_compiler(site: Path) -> str:
    """Return a PYTHONPATH for short trainings with this PyTorch."""
    return f"{_NO_COMPILER}{os.pathsep}{site}"


@pytest.fixture(scope="session")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> DdpExample:
    """Skips where there is no PyTorch for tests."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return DdpExample(find_torch(), shared)
