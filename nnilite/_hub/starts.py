"""Checks a configuration that was typed into the page, and starts an experiment from it, as `nnictl create` does.

It may be that of an earlier experiment, or an example that comes with nnilite.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from nnilite._experiments import registry
from nnilite._experiments.documents import may_be_path
from nnilite._experiments.new_folders import make_own_folder
from nnilite._running import launch
from nnilite._running.launch import ManagerOptions
from nnilite.config import CheckedConfig, ConfigErrors, from_dict, load_stored, parse
from nnilite.errors import ConfigError, NniliteError, Place
from nnilite.records import Json
from nnilite.units.path_rules import expand_home

FILE = "this configuration"


@dataclass(frozen=True)
class Draft:
    """The text of a configuration. Its paths are relative to `folder`, an absolute path."""

    text: str
    folder: str

    def read(self) -> CheckedConfig:
        """Return the checked config. Raises: NniliteError, ConfigErrors if several things are wrong."""
        config = parse(self.text, self._base()).checked()
        config.check_algorithms()
        return config

    def _base(self) -> Path:
        folder = expand_home(self.folder)
        if not folder.is_absolute():
            raise ConfigError("must be an absolute path, such as /home/me/project", Place(field="folder"))
        if not may_be_path(self.folder) or not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}", Place(field="folder"))
        return folder


def faults(draft: Draft) -> dict[str, Json]:
    """Return what is wrong with a draft, each fault with its line and field where these are known, and warnings."""
    try:
        config = draft.read()
    except ConfigErrors as error:
        return {"faults": [_fault(one) for one in error.errors], "warnings": []}
    except (NniliteError, OSError) as error:
        return {"faults": [_fault(error)], "warnings": []}
    return {"faults": [], "warnings": list(config.warnings)}


def _fault(error: Exception) -> dict[str, Json]:
    if not isinstance(error, ConfigError):
        return {"line": None, "field": None, "file": None, "message": str(error)}
    place = error.place
    return {"line": place.line, "field": place.field, "file": place.file, "message": error.message}


def start(draft: Draft, options: ManagerOptions) -> str:
    """Start the experiment, which runs without the page. Return its id. Raises: NniliteError if it cannot start."""
    return launch.create(draft.read(), options=options).id


def draft_of(directory: Path) -> Draft:
    """Return the configuration in an experiment's folder, without its secrets. Raises: NniliteError."""
    fields = load_stored(directory, paths=False).json()
    folder = str(fields.get("trialCodeDirectory") or directory)
    return Draft(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), folder)


EXAMPLE_TRIAL = """# Fits a line to points by gradient descent: what a trial does for its parameters.
import nnilite

parameters = nnilite.get_next_parameter()
points = [(n / 50 - 1, 2.5 * (n / 50 - 1) - 1) for n in range(101)]
slope = intercept = 0.0
for step in range(20):
    errors = [(slope * x + intercept - y, x) for x, y in points]
    slope -= parameters["rate"] * sum(2 * error * x for error, x in errors) / len(points)
    intercept -= parameters["rate"] * sum(2 * error for error, _ in errors) / len(points)
    loss = sum((slope * x + intercept - y) ** 2 for x, y in points) / len(points)
    nnilite.report_intermediate_result(loss)
nnilite.set_attribute("slope", slope)
nnilite.report_final_result(loss)
"""


def start_example(options: ManagerOptions) -> str:
    """Start an example on this machine. Return its id. Raises: NniliteError if it cannot start, OSError."""
    folder = registry.root() / ".nnilite" / "example"
    make_own_folder(folder)
    # Written each time: an earlier version may have left its own.
    (folder / "trial.py").write_text(EXAMPLE_TRIAL, encoding="utf-8")
    config = {
        "experimentName": "example",
        "searchSpace": {"rate": {"_type": "loguniform", "_value": [0.001, 1]}},
        "trialCommand": f"{shlex.quote(sys.executable)} trial.py",
        "trialCodeDirectory": str(folder),
        "trialConcurrency": 2,
        "maxTrialNumber": 20,
        "tuner": {"classArgs": {"optimize_mode": "minimize"}},
        "trainingService": {"platform": "local"},
    }
    return launch.create(from_dict(config, folder).checked(), options=options).id
