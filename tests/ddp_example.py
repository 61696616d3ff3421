"""The example of a trial on several machines: on each platform it has to find the losses of a single process."""

from __future__ import annotations

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
_PYTHON = "/usr/bin/python3"
_PARAMETERS = {"rate": 0.1, "width": 16}
_LIMIT_S = 240.0
_ROUNDING = 1e-5


class DdpExample:
    """The example with a PyTorch of the tests, and the losses that one process finds."""

    def __init__(self, site: Path) -> None:
        self._site = site
        env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{_ROOT}"}
        command = [_PYTHON, str(_EXAMPLE / "train.py")]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        assert ran.returncode == 0, ran.stderr
        self.losses = [float(found) for found in re.findall(r"^epoch \d+ loss (\S+)$", ran.stdout, re.MULTILINE)]

    def config(self) -> dict[str, Any]:
        """Its config, with one trial of known parameters."""
        config = yaml.safe_load((_EXAMPLE / "config.yaml").read_text("utf-8"))
        space = {name: {"_type": "choice", "_value": [value]} for name, value in _PARAMETERS.items()}
        command = config["trialCommand"].replace("python3", f'PYTHONPATH="{self._site}:$PYTHONPATH" {_PYTHON}')
        own = {"trialCommand": command, "trialCodeDirectory": str(_EXAMPLE), "maxTrialNumber": 1}
        return {**config, "searchSpace": space, "tuner": {"name": "Random"}, **own}

    def show_to(self, host: Host) -> None:
        """Let the users of a host read the PyTorch of the tests; this machine's files stay as they are."""
        for folder in self._site.parents:
            host.run(f"chmod o+x '{folder}'")

    def check(self, running: Running) -> None:
        """Check the losses of the experiment's trial."""
        running.wait("DONE", timeout_s=_LIMIT_S)
        [trial] = running.trials()
        assert trial["state"] == "SUCCEEDED", trial["reason"]
        metrics = running.client.metrics(trial["id"], kind="PERIODICAL")
        assert len(self.losses) == 5
        assert [one["value"] for one in metrics] == pytest.approx(self.losses, abs=_ROUNDING)


@pytest.fixture(scope="session")
def ddp() -> DdpExample:
    """Skips where there is no PyTorch for tests."""
    words = [str(_ROOT / "scripts" / "test-torch"), "--where"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode:
        pytest.skip(found.stdout.strip())
    return DdpExample(Path(found.stdout.strip()))
