"""Converts NNI's older config format (before 2.0, with `trainingServicePlatform` at the top), field by field.

Each platform has a table from old places to new places in its section. A field that is in no table is misspelt; a
field without meaning today is left out with a warning. `origins` has the old place of each new field, for errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nnilite._plugins import lookup
from nnilite._plugins.name_synonyms import find_meant
from nnilite.config._fields import did_you_mean, normalize_name
from nnilite.config._source import ConfigSource
from nnilite.config._v1_leftovers import Leftovers, find_wrong_shape, list_leaves
from nnilite.config._v1_tables import (
    DROPPED,
    DROPPED_BELOW,
    FOR_PEOPLE,
    INSTEAD,
    MACHINE,
    NO_MEANING,
    NO_MORE,
    PLATFORMS,
    ROLE,
    ROLE_PLATFORMS,
    TASK,
    TOP,
    tables,
)
from nnilite.config.secrets import masked, masked_text
from nnilite.errors import ConfigError
from nnilite.records import Json
from nnilite.space.space_checks import dotted

Where = tuple[str | int, ...]
_SECTIONS = frozenset(("machinelist", *(f"{platform}config" for platform in (*PLATFORMS, "hybrid", "heterogeneous"))))


@dataclass
class Converted:
    """A config in today's format, the old places of its fields, and the fields that were left out."""

    config: dict[str, Json] = field(default_factory=dict)
    origins: dict[Where, Where] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def recognised(data: Mapping[Any, Any]) -> bool:
    """Return whether a file is in the older format."""
    return any(isinstance(key, str) and normalize_name(key) == "trainingserviceplatform" for key in data)


def convert(data: Mapping[str, Any], source: ConfigSource, present: Iterable[str] = ()) -> Converted:
    """Convert a config. `present`: the fields of the present format, which may stand among the older ones.

    Raises: ConfigError for unknown fields, and for those that cannot be converted.
    """
    return _V1Converter(data, source).all(present)


class _V1Converter:
    """One conversion. `taken` has the old places that were read; fields that remain at the end are misspelt."""

    def __init__(self, data: Mapping[str, Any], source: ConfigSource) -> None:
        self.old = data
        self.source = source
        self.new = Converted()
        self.taken: set[Where] = set()

    def all(self, present: Iterable[str]) -> Converted:
        wrong = find_wrong_shape(self.old)
        if wrong:
            self._fault(wrong.path, wrong.message)
        platform = self._platform()
        for name in FOR_PEOPLE:
            self._get((name,))
        self._drop(*DROPPED)
        for old, new in TOP.items():
            self._move(_split(old), _split(new))
        for name in present:
            self._take_present(name)
        for word in ("tuner", "assessor", "advisor"):
            self._algorithm(word)
        platforms = [platform]
        if platform == "hybrid":
            platforms = self._convert_hybrid()
        else:
            self._service(platform, ("trainingService",))
        self._report_leftovers(platforms)
        return self.new

    def _platform(self) -> str:
        given = self._get(("trainingServicePlatform",))
        if given is None:
            self._fault(("trainingServicePlatform",), f"is empty; write {', '.join(PLATFORMS)} or hybrid")
        platform = str(masked(given)).lower()
        platform = "hybrid" if platform == "heterogeneous" else platform  # its name in NNI 2.0
        if platform in ("hybrid", *PLATFORMS):
            return platform
        self._fault(("trainingServicePlatform",), _unknown(platform, (*PLATFORMS, "hybrid")))
        return platform

    def _fault(self, path: Where, message: str) -> None:
        raise ConfigError(message, self.source.place(path))

    def _get(self, path: Where) -> Any:
        """Return a value of the old config, None if it is missing. Its place counts as read."""
        node: Any = self.old
        written: Where = ()
        for part in path:
            key = _key(node, part)
            if key is None:
                return None
            node, written = node[key], (*written, key)
        self.taken.add(written)
        return node

    def _put(self, new: Where, value: Any, old: Where) -> None:
        node: Any = self.new.config
        for part, following in pairwise(new):
            empty: Any = [] if isinstance(following, int) else {}
            node = _child(node, part, empty)
        if isinstance(node, dict):
            node[new[-1]] = value
        # So that a fault of the new value names the line of the old one.
        self.new.origins[new] = old

    def _move(self, old: Where, new: Where) -> None:
        value = self._get(old)
        if value is not None:
            self._put(new, value, old)

    def _take_present(self, name: str) -> None:
        """Take a field of the present format: people add such fields to files that they have had for long."""
        if name in ("tuner", "assessor", "advisor") or self._get((name,)) is None:
            return
        if name == "trainingService":
            self._fault((name,), "goes without trainingServicePlatform: keep one of the two")
        before = self.new.origins.get((name,))
        if before is None:
            self._move((name,), (name,))
        elif normalize_name(str(before[-1])) != normalize_name(name):
            self._fault((name,), f"is the newer name of {dotted(before)}: keep one of the two")

    def _drop(self, *paths: str) -> None:
        for path in paths:
            value = self._get(_split(path))
            # `false` said no more than a file without the field.
            if value is not None and value is not False:
                self._warn_dropped(path)
        if self._get(("multiPhase",)) is True:
            self._fault(("multiPhase",), "is not supported; a trial gets its parameters once: make each phase a trial")

    def _warn_dropped(self, path: str) -> None:
        cure = INSTEAD.get(path.rpartition(".")[2])
        self.new.warnings.append(f"{path} no longer has an effect and was left out" + (f"; {cure}" if cure else ""))

    def _algorithm(self, word: str) -> None:
        if self._get((word,)) is None:
            return
        # Only its fields count as read, so that unknown ones are reported.
        self.taken.discard((word,))
        self.new.origins[(word,)] = (word,)
        self._move((word, f"builtin{word.capitalize()}Name"), (word, "name"))
        self._move((word, "classArgs"), (word, "classArgs"))
        self._move((word, "codeDir"), (word, "codeDirectory"))
        self._move((word, "name"), (word, "name"))
        self._move((word, "codeDirectory"), (word, "codeDirectory"))
        file, name = self._get((word, "classFileName")), self._get((word, "className"))
        if file is None and isinstance(name, str) and "." in name:
            self._move((word, "className"), (word, "className"))
        elif name is not None:
            if not isinstance(file, str) or not file.endswith(".py"):
                self._fault((word, "classFileName"), "must name the Python file of className, such as tuner.py")
            # NNI 1 took a path, too, such as tuners/mine.py.
            module = file[:-3].removeprefix("./").replace("/", ".")
            self._put((word, "className"), f"{module}.{name}", (word, "className"))

    def _convert_hybrid(self) -> list[str]:
        older = self._get(("heterogeneousConfig", "trainingServicePlatforms"))
        section = "hybridConfig" if older is None else "heterogeneousConfig"
        names = self._get((section, "trainingServicePlatforms"))
        if not isinstance(names, list) or not names:
            self._fault((section,), "needs trainingServicePlatforms, a list such as [local, remote]")
        for k, name in enumerate(names):
            place = (section, "trainingServicePlatforms", k)
            if not isinstance(name, str) or name.lower() not in PLATFORMS:
                self._fault(place, _unknown(str(masked(name)), PLATFORMS))
            self._service(name.lower(), ("trainingService", k))
        return [name.lower() for name in names]

    def _service(self, old_name: str, to: Where) -> None:
        name, table = PLATFORMS[old_name]
        self._put((*to, "platform"), name, ("trainingServicePlatform",))
        self.new.origins[to] = ("trainingServicePlatform",)
        has_volumes = old_name == "frameworkcontroller" and self._has_volumes_of_a_template()
        for old, new in table.items():
            if not (has_volumes and new.startswith("storage.")):
                self._move(_split(old), (*to, *_split(new)))
        self._drop(*NO_MEANING.get(old_name, ()))
        if old_name == "remote":
            self._convert_list(("machineList",), (*to, "machineList"), MACHINE)
        if old_name == "frameworkcontroller":
            self._convert_list(("trial", "taskRoles"), (*to, "taskRoles"), TASK)
        # NNI's older format did not require this field, but a local service whose trials get GPUs does.
        if old_name == "local" and self._get(("trial", "gpuNum")):
            self._default((*to, "useActiveGpu"), False)
        for role in ROLE_PLATFORMS.get(old_name, ()):
            self._role(role, (*to, role))
        # NNI did not require `storage`.
        for known, kind in (("server", "nfs"), ("azureShare", "azureStorage"), ("path", "pvc")):
            if (*to, "storage", known) in self.new.origins:
                self._default((*to, "storage", "storageType"), kind)
                self.new.origins[(*to, "storage")] = self.new.origins[(*to, "storage", known)][:-1]

    def _has_volumes_of_a_template(self) -> bool:
        """Return whether trials get the volumes of `configPath`, as in NNI with a claim that has no name here."""
        section = "frameworkcontrollerConfig"
        named = self._get((section, "pvc", "claim"))
        if self._get((section, "storage")) != "pvc" or named or not self._get((section, "configPath")):
            return False
        self._get((section, "pvc"))
        why = "the volumes of configPath count; to have a claim mounted by nnilite, write its name as pvc.claim"
        self.new.warnings.append(f"{section}.pvc has no effect and was left out; {why}")
        return True

    def _convert_list(self, old: Where, new: Where, table: Mapping[str, str]) -> None:
        items = self._get(old)
        if not isinstance(items, list):
            return
        self.taken.discard(old)
        self.new.origins[new] = old
        for k in range(len(items)):
            for old_name, new_name in table.items():
                self._move((*old, k, *_split(old_name)), (*new, k, *_split(new_name)))

    def _role(self, role: str, new: Where) -> None:
        if not isinstance(self._get(("trial", role)), Mapping):
            return
        self.taken.discard(("trial", role))
        self.new.origins[new] = ("trial", role)
        for old_name, new_name in {"replicas": "replicas", **ROLE}.items():
            self._move(("trial", role, old_name), (*new, new_name))

    def _default(self, new: Where, value: Json) -> None:
        if new not in self.new.origins:
            self._put(new, value, ("trainingServicePlatform",))

    def _report_leftovers(self, platforms: Sequence[str]) -> None:
        """Report fields that were not read; those known to have no meaning today only get a warning."""
        tables = [TOP, *(PLATFORMS[name][1] for name in platforms)]
        places = [*(old for table in tables for old in table)]
        if "remote" in platforms:
            places += [f"machineList[0].{old}" for old in MACHINE]
        known = (str(part) for old in self._known() for part in old)
        leftovers = Leftovers(places, known, platforms)
        found: dict[str, None] = {}  # fields without effect, each once, even if it is in each item of a list
        for path in list_leaves(self.old):
            if any(path[: len(taken)] == taken for taken in self.taken) or self._is_empty_section(path):
                continue
            dropped = next((k for k, part in enumerate(path) if _is_dropped(part)), None)
            if dropped is not None:
                found.setdefault(masked_text(dotted(path[: dropped + 1])), None)
                continue
            verdict = leftovers.judge(path)
            if isinstance(verdict, str):
                self.new.warnings.append(verdict)
            else:
                self._fault(verdict.path, verdict.message)
        for place in found:
            self._warn_dropped(place)

    def _is_empty_section(self, path: Where) -> bool:
        """Return whether a section of a platform was left without fields, as in files made of an example for others."""
        return len(path) == 1 and normalize_name(str(path[0])) in _SECTIONS and not self.old.get(str(path[0]))

    @staticmethod
    def _known() -> list[Where]:
        roles = tuple(role for names in ROLE_PLATFORMS.values() for role in names)
        words = "trainingServicePlatform builtinTunerName builtinAssessorName builtinAdvisorName classArgs codeDir"
        more = (
            *FOR_PEOPLE,
            *DROPPED,
            *words.split(),
            "classFileName",
            "className",
            "machineList",
            "replicas",
            "taskRoles",
            *roles,
        )
        return [(name,) for name in more] + [_split(old) for table in tables() for old in table]


def _unknown(platform: str, known: Iterable[str]) -> str:
    """Return why a platform cannot be carried over."""
    if platform.lower() in NO_MORE:
        return NO_MORE[platform.lower()]
    why = lookup.explain_missing(lookup.SERVICES, platform)
    elsewhere = find_meant("training service", platform)
    if elsewhere is not None:
        return f"there is no {platform!r}; did you mean {elsewhere[1]}?"
    meant = did_you_mean(platform, known).replace("the fields here", "the platforms")
    return f"there is no {platform!r}" + (f": {why}" if why else meant)


def _is_dropped(part: str | int) -> bool:
    return normalize_name(str(part)) in map(normalize_name, DROPPED_BELOW)


def _split(path: str) -> Where:
    return tuple(path.split("."))


def _key(node: Any, part: str | int) -> Any:
    if isinstance(node, list) and isinstance(part, int):
        return part if part < len(node) else None
    if isinstance(node, Mapping):
        return next((key for key in node if normalize_name(str(key)) == normalize_name(str(part))), None)
    return None


def _child(node: Any, part: str | int, empty: Any) -> Any:
    if isinstance(node, list) and isinstance(part, int):
        while len(node) <= part:
            node.append({})
        return node[part]
    return node.setdefault(part, empty)
