"""Tuners and assessors that the user registered under a name (`nnictl algo register`).

They are kept in `algorithms.json` of the user's configuration folder, apart from the installed plugins:
$NNI_CONFIG_DIR, or `nnilite` in $XDG_CONFIG_HOME. A package for others is better a plugin with an entry point; this is
for code that is not packaged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from nnilite._experiments.documents import may_be_path, read_json_file, write_json
from nnilite._experiments.new_folders import make_own_folder
from nnilite._keeper import SHIM
from nnilite.errors import ConfigError, DamagedFile, NotFound, Place
from nnilite.units.path_rules import find_home


@dataclass(frozen=True)
class Registered:
    """One registration. `kind` is "tuner" or "assessor"; `class_name` is `module.Class`."""

    name: str
    kind: str
    class_name: str
    code_directory: str = ""  # where its module lies, "" if it can be imported anyway

    def entry_point(self, group: str) -> EntryPoint:
        """Return an entry point, as if it were installed.

        Its folder becomes importable, and `from nni.tuner import Tuner` works in it.
        """
        for folder in (self.code_directory, str(SHIM)):
            if folder and folder not in sys.path:
                sys.path.append(folder)
        module, _, name = self.class_name.rpartition(".")
        return EntryPoint(self.name, f"{module}:{name}", group)


def registered(kind: str | None = None) -> list[Registered]:
    """Return what is registered, by name. Raises: DamagedFile, UnreadableFile."""
    path, cure = _path(), "mend it or remove it"
    try:
        entries = read_json_file(path, cure)
    except FileNotFoundError:
        return []
    if not isinstance(entries, list):
        raise DamagedFile(path, "it is not a list", cure)
    found = [_read(entry, path, cure) for entry in entries]
    return [entry for entry in found if kind in (None, entry.kind)]


def _read(entry: Any, path: Path, cure: str) -> Registered:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise DamagedFile(path, "an entry is not an object of strings", cure)
    try:
        registered = Registered(**entry)
    except TypeError as error:
        raise DamagedFile(path, f"an entry has other fields: {error}", cure) from None
    if registered.kind not in ("tuner", "assessor") or not may_be_path(registered.code_directory):
        raise DamagedFile(path, f"the entry {registered.name!r:.60} has a wrong kind or code_directory", cure)
    return registered


def read_meta(meta: Any, file: Path) -> list[Registered]:
    """Return the registrations of one of NNI's meta files: one, or a list under `algorithms`. Raises: ConfigError."""
    entries = meta.get("algorithms", [meta]) if isinstance(meta, Mapping) else meta
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ConfigError("must be a mapping, or have a list of them under `algorithms`", Place(str(file)))
    return [_one(entry, file) for entry in entries]


_WITHOUT_EFFECT = ("classArgsValidator", "acceptClassArgs", "isAdvisor")  # NNI's fields; the constructor says it all


def _one(entry: Mapping[str, Any], file: Path) -> Registered:
    kind = str(entry.get("algoType", ""))
    if kind not in ("tuner", "assessor", "advisor"):
        raise ConfigError(f"must be tuner or assessor, not {kind!r}", Place(str(file), field="algoType"))
    for key in ("builtinName", "className"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise ConfigError("is missing", Place(str(file), field=key))
    for key in entry:
        if key not in ("algoType", "builtinName", "className", "codeDirectory", *_WITHOUT_EFFECT):
            hint = "; give it in the experiment's configuration" if key == "classArgs" else ""
            raise ConfigError(f"is nothing that can be registered{hint}", Place(str(file), field=str(key)))
    if "." not in entry["className"]:
        raise ConfigError("must be module.Class", Place(str(file), field="className"))
    code = entry.get("codeDirectory")
    folder = str((file.resolve().parent / str(code)).resolve()) if code else ""
    return Registered(entry["builtinName"], "tuner" if kind == "advisor" else kind, entry["className"], folder)


def register(entry: Registered) -> None:
    """Keep a registration; one of the same name and kind is replaced."""
    others = [e for e in registered() if (e.name.lower(), e.kind) != (entry.name.lower(), entry.kind)]
    _write([*others, entry])


def unregister(name: str) -> Registered:
    """Forget a registration. Raises: NotFound."""
    known = registered()
    for entry in known:
        if entry.name.lower() == name.lower():
            _write([e for e in known if e is not entry])
            return entry
    names = ", ".join(e.name for e in known) or "none"
    raise NotFound(f"There is no registered algorithm {name!r}; registered are: {names}.")


def _write(entries: list[Registered]) -> None:
    path = _path()
    make_own_folder(path.parent)
    write_json(path, [asdict(entry) for entry in entries])


def _path() -> Path:
    own, config = os.environ.get("NNI_CONFIG_DIR"), os.environ.get("XDG_CONFIG_HOME")
    if own:
        return Path(own, "algorithms.json")
    # Who has no home folder names a folder for all experiments.
    home = find_home() or Path(os.environ.get("NNILITE_HOME") or "/")
    return Path(config or home / ".config", "nnilite", "algorithms.json")
