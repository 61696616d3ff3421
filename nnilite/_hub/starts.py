"""Checks a configuration that was typed into the page, and starts an experiment from it, as `nnictl create` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnilite._running import launch
from nnilite._running.launch import ManagerOptions
from nnilite.config import CheckedConfig, ConfigErrors, parse
from nnilite.errors import ConfigError, NniliteError, Place
from nnilite.records import Json

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
        folder = Path(self.folder).expanduser()
        if not self.folder or "\0" in self.folder or not folder.is_absolute():
            raise ConfigError("must be an absolute path, such as /home/me/project", Place(field="folder"))
        if not folder.is_dir():
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
