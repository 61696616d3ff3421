"""From a plugin's name to its class. Only the plugin that is asked for gets imported.

A name is that of an entry point (case does not matter, and `TPETuner` finds `TPE`), or a dotted path `module.Class`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from nnilite._plugins.name_synonyms import find_meant
from nnilite.errors import PluginError

if TYPE_CHECKING:
    import argparse
    from importlib.metadata import EntryPoint

    from nnilite.assessor import Assessor
    from nnilite.conversion import Converter
    from nnilite.records import Host, Json
    from nnilite.service import TrainingService
    from nnilite.tuner import Tuner

SERVICES = "nnilite.training_services"
TUNERS = "nnilite.tuners"
ASSESSORS = "nnilite.assessors"
CONVERTERS = "nnilite.config_converters"

DEFAULT_TUNER = "Auto"
"""The tuner where none is named."""

WORKERS = "nnilite.workers"
"""Programs that let a machine join a platform: see `WorkerProgram`."""

STORAGES = "nnilite.storages"
"""Shared storages that plugins add: see `StorageDescriber`."""

ADDRESSES = "nnilite.addresses"
"""Functions that describe a training service by an address, by the scheme of that: see `AddressReader`."""

_WORD = {
    SERVICES: "training service",
    TUNERS: "tuner",
    ASSESSORS: "assessor",
    CONVERTERS: "converter",
    WORKERS: "worker program",
    STORAGES: "storage",
    ADDRESSES: "scheme of addresses",
}
_BASE = {
    SERVICES: ("nnilite.service", "TrainingService"),
    TUNERS: ("nnilite.tuner", "Tuner"),
    ASSESSORS: ("nnilite.assessor", "Assessor"),
}
_SUFFIX = {
    SERVICES: "service",
    TUNERS: "tuner",
    ASSESSORS: "assessor",
    CONVERTERS: "converter",
    STORAGES: "storage",
    ADDRESSES: "address",
}


class StorageDescriber(Protocol):
    """What a plugin provides by an entry point of the group `nnilite.storages`: a function."""

    def __call__(self, options: Mapping[str, str], folder: str, environment: Mapping[str, str]) -> Mapping[str, Json]:
        """Return what manager and keepers need to open the experiment's part, `folder`: see `nnilite._keeper.storage`.

        `options` are those of the config, `environment` is the manager's. Raises: ConfigError.
        """


class AddressReader(Protocol):
    """What a plugin provides by an entry point of the group `nnilite.addresses`: a function."""

    def __call__(self, address: str) -> Mapping[str, Json]:
        """Return the section of a training service, `platform` included. Raises: ConfigError."""


class WorkerProgram(Protocol):
    """What a plugin provides by an entry point of the group `nnilite.workers` for `nnictl worker`: mostly a module."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments."""

    def work(self, options: argparse.Namespace) -> int:
        """Run trials until the process receives a stop signal. Return the exit code. Raises: NniliteError, OSError."""

    def workers(self, options: argparse.Namespace) -> Sequence[Host]:
        """Return who has joined. Raises: NniliteError."""


def _found(group: str) -> dict[str, EntryPoint]:
    """Return installed plugins and what the user registered; an installed one wins."""
    from nnilite._plugins import user_algorithms

    own = {entry.name.lower(): entry.entry_point(group) for entry in user_algorithms.registered(_WORD[group])}
    return {**own, **installed()[group]}


@cache
def installed() -> Mapping[str, dict[str, EntryPoint]]:
    """Return the installed plugins of each group by name, in one look at the distributions, which may be hundreds."""
    from importlib.metadata import distributions, entry_points

    # Python takes the entry points of all of them apart. Mostly those of nnilite itself are all that there are; of two
    # distributions, one may hide the other.
    found = [one for one in distributions() if "[nnilite." in (one.read_text("entry_points.txt") or "")]
    points = found[0].entry_points if len(found) == 1 else entry_points()
    return {group: {point.name.lower(): point for point in points.select(group=group)} for group in _WORD}


def is_installed(group: str, name: str) -> bool:
    """Return whether a plugin of this name is installed, as opposed to registered by the user."""
    return name.lower() in installed()[group]


def is_own(group: str, name: str) -> bool:
    """Return whether a name stands for code of the user's: it is registered, or the path of a class."""
    point = _find_entry_point(group, name)
    return "." in name if point is None else not is_installed(group, point.name)


def names(group: str) -> list[str]:
    """Return the names of all installed plugins of a group, sorted."""
    return sorted(point.name for point in _found(group).values())


def training_service_class(name: str) -> type[TrainingService]:
    """Return the class of a training service.

    Raises: PluginError if there is no such service, or its extra is not installed.
    """
    return _checked(SERVICES, name)


def tuner_class(name: str) -> type[Tuner]:
    """Return the class of a tuner. Raises: PluginError if there is no such tuner, or its extra is not installed."""
    return _checked(TUNERS, name)


def assessor_class(name: str) -> type[Assessor]:
    """Return the class of an assessor.

    Raises: PluginError if there is no such assessor, or its extra is not installed.
    """
    return _checked(ASSESSORS, name)


def place(group: str, name: str) -> str:
    """Return `module.Class` of an installed plugin, with which `class_at` finds it; "" for any other name."""
    point = installed()[group].get(name.lower())
    return "" if point is None else f"{point.module}.{point.attr}"


def class_at(group: str, name: str, place: str) -> type:
    """Return the class of a plugin whose `place` another process has looked up, which takes longer than its import.

    Raises: PluginError if there is no such plugin, or its extra is not installed.
    """
    if place:
        with suppress(PluginError):
            return _load_of_group(group, name, import_class(place))
    return _checked(group, name)


def converter(name: str) -> Converter:
    """Return a converter. Raises: PluginError if there is no such converter, or its extra is not installed."""
    return cast("Converter", _import_function(CONVERTERS, name))


def storage(name: str) -> StorageDescriber:
    """Return the function of a plugin's storage.

    Raises: PluginError if there is no such storage, or its extra is not installed.
    """
    return cast(StorageDescriber, _import_function(STORAGES, name))


def address(scheme: str) -> AddressReader:
    """Return the function that reads addresses with this scheme.

    Raises: PluginError if there is no such scheme, or its extra is not installed.
    """
    return cast(AddressReader, _import_function(ADDRESSES, scheme))


def find_worker_programs() -> dict[str, WorkerProgram]:
    """Return the installed worker programs by name.

    Raises: PluginError if one of them cannot be imported, because its extra is not installed.
    """
    points = installed()[WORKERS].values()
    return {point.name: cast(WorkerProgram, _loaded(WORKERS, point)) for point in points}


def check_class(group: str, point: EntryPoint) -> None:
    """Check the class of a plugin. Raises: PluginError if it cannot be imported or is not a class of its group."""
    _load_of_group(group, point.name, _loaded(group, point))


def _checked(group: str, name: str) -> type:
    return _load_of_group(group, name, _import(group, name))


def _load_of_group(group: str, name: str, loaded: object) -> type:
    module, name_of_base = _BASE[group]
    base: type = getattr(importlib.import_module(module), name_of_base)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"{_WORD[group]} {name!r} is not a class derived from nnilite's {base.__name__}.")
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        raise PluginError(f"{_WORD[group]} {name!r}: its class {loaded.__qualname__} lacks {', '.join(missing)}.")
    if group == SERVICES and not is_dataclass(getattr(loaded, "Config", None)):
        raise PluginError(f"{_WORD[group]} {name!r}: {loaded.__qualname__}.Config must be a frozen dataclass.")
    return loaded


def _import_function(group: str, name: str) -> object:
    found = _import(group, name)
    if not callable(found):
        raise PluginError(f"{_WORD[group]} {name!r} is not a function.")
    return found


def _import(group: str, name: str) -> object:
    point = _find_entry_point(group, name)
    if point is None and "." in name:
        return import_class(name)
    if point is None:
        raise PluginError(_unknown(group, name))
    return _loaded(group, point)


def _loaded(group: str, point: EntryPoint) -> object:
    try:
        return point.load()
    except AttributeError as error:
        raise PluginError(f"{_WORD[group]} {point.name!r}: there is no {point.value}.") from error
    except ImportError as error:
        extra = f" Install it with: pip install 'nnilite[{point.extras[0]}]'" if point.extras else ""
        missing = getattr(error, "name", None) or str(error)
        raise PluginError(f"{_WORD[group]} {point.name!r} needs the module {missing!r}.{extra}") from error


def _find_entry_point(group: str, name: str) -> EntryPoint | None:
    key = name.lower()
    suffix = _SUFFIX[group]
    found = _found(group)
    return found.get(key) or (found.get(key[: -len(suffix)]) if key.endswith(suffix) else None)


_NO_MORE = {
    TUNERS: {
        "ppo": "it searches architectures, not parameters",
        "regularizedevolution": "it searches architectures; Evolution searches parameters",
        "networkmorphism": "it searches architectures, not parameters",
        "opevo": "OpEvo was an example of NNI 2 for operators of compilers, none of its tuners; write each `factor` as "
        "a choice between its lists of numbers, and take TPE or Evolution",
        "tpe_legacy": "TPE_legacy stood for hyperopt; TPE takes its place",
    },
    SERVICES: {
        "hybrid": "write a list of training services, one for each platform",
    },
}
"""NNI's names that nothing is installed for, and why, or what to write."""


def explain_missing(group: str, name: str) -> str | None:
    """Return why a name that NNI has is missing here, or what to write in its place; None for any other name."""
    return _NO_MORE.get(group, {}).get(name.lower().removesuffix(_SUFFIX[group]))


def _unknown(group: str, name: str) -> str:
    import difflib

    known = names(group)
    if not known:
        # A program of PyInstaller, for example, and a copied folder have the modules only.
        return (
            f"there is no {_WORD[group]} {name!r}, nor any other: this Python finds no metadata of nnilite's plugins. "
            "Install nnilite with pip, and run your program with that Python, not frozen into a file."
        )
    why = explain_missing(group, name)
    if why:
        return f"there is no {_WORD[group]} {name!r}: {why}. Installed: {', '.join(known)}."
    meant = find_meant(_WORD[group], name)
    if meant is not None and meant[0] != _WORD[group]:
        kind, own_name = meant
        return (
            f"there is no {_WORD[group]} {name!r}; {own_name} is a{'n' if kind == 'assessor' else ''} {kind}: "
            f"name it as {kind}. Installed: {', '.join(known)}."
        )
    close = [meant[1].lower()] if meant is not None and meant[1] in known else []
    close = close or difflib.get_close_matches(name.lower(), [n.lower() for n in known], n=1)
    close = close or [n.lower() for n in known if n.lower().startswith(name.lower())][:1]
    hint = f"; did you mean {_found(group)[close[0]].name!r}?" if close else "."
    own = "" if close or group not in (TUNERS, ASSESSORS) else " One of your own is named by className."
    return f"there is no {_WORD[group]} {name!r}{hint} Installed: {', '.join(known)}.{own}"


_OF_NNI = ("json_tricks", "hyperopt", "pandas", "prettytable", "cloudpickle", "colorama", "tqdm")
"""What NNI needed itself, so that tuners for it import these without a word in their own requirements."""


def import_class(path: str) -> object:
    """Return the class at `module.Class`. Raises: PluginError if the module or the class does not exist."""
    module_name, _, class_name = path.rpartition(".")
    if not all(path.split(".")) or "\0" in path:
        raise PluginError(f"{path!r} is not of the form module.Class.")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        cure = f" NNI installed it; do so by `pip install {error.name}`." if error.name in _OF_NNI else ""
        why = str(error).rstrip(".")
        raise PluginError(f"cannot import module {module_name!r} of {path!r}: {why}.{cure}") from error
    if not hasattr(module, class_name):
        raise PluginError(f"module {module_name!r} has no class {class_name!r}.")
    loaded: object = getattr(module, class_name)
    return loaded
