"""Makes a config with a program with calls of one whose program has NNI's annotations (`useAnnotation: true`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnilite._nni.annotations import expand_folder
from nnilite.config.text import read_yaml
from nnilite.errors import ConfigError, Conflict, Place
from nnilite.records import Json
from nnilite.units.path_rules import expand_home

_SPACE = "search_space.json"


@dataclass(frozen=True)
class ExpandedConfig:
    """What was written."""

    config: Path
    code: Path
    space: Mapping[str, Json]


def expand(file: Path, output: Path | None = None) -> ExpandedConfig:
    """Write the program with calls to a new folder, its search space into that, and a config next to the old one.

    Raises: ConfigError if there are no annotations or one cannot be expanded, Conflict if something is there already.
    """
    import yaml

    if file.suffix == ".py":
        raise ConfigError("is a program; give the config whose trialCommand runs it", Place(str(file)))
    document, source = read_yaml(file)
    if not isinstance(document, Mapping):
        raise ConfigError("is not a mapping of fields", Place(str(file)))
    names = {_plain(name): name for name in document}
    old = "trainingserviceplatform" in names
    trial = document.get(names.get("trial")) or {} if old else {}
    if not isinstance(trial, Mapping):
        raise ConfigError("must be a mapping of fields, such as command and codeDir", source.place((names["trial"],)))
    given = trial.get("codeDir") if old else document.get(names.get("trialcodedirectory"))
    code = Path(os.path.normpath(file.absolute().parent / expand_home(str(given or "."))))
    if not code.is_dir():
        raise ConfigError(f"the folder {str(code)!r} of the code does not exist", source.place(()))
    target = (output or code.with_name(f"{code.name}-expanded")).absolute()
    config = file.absolute().with_name(f"{file.stem}-expanded{file.suffix}")
    for path, cure in ((target, "remove it, or choose another folder with --output"), (config, "rename or remove it")):
        if os.path.lexists(path):  # a link that leads to nothing would have its file made elsewhere
            raise Conflict(f"{path} exists already; {cure}.")
    space = expand_folder(code, target)
    if (target / _SPACE).is_symlink():  # its target is not part of the copy
        (target / _SPACE).unlink()
    (target / _SPACE).write_text(json.dumps(space, indent=2) + "\n", encoding="utf-8")
    place = Path(os.path.relpath(target, config.parent))
    left_out = ("useannotation", "searchspace", "searchspacefile", "searchspacepath", "trialcodedirectory")
    changed: dict[str, Any] = {name: value for name, value in document.items() if _plain(name) not in left_out}
    if old:
        changed[names.get("trial", "trial")] = {**trial, "codeDir": str(place)}
        changed["searchSpacePath"] = str(place / _SPACE)
    else:
        changed["trialCodeDirectory"], changed["searchSpaceFile"] = str(place), str(place / _SPACE)
    config.write_text(yaml.safe_dump(changed, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return ExpandedConfig(config, target, space)


def _plain(name: object) -> str:
    return str(name).replace("_", "").lower()
