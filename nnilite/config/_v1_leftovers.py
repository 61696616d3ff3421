"""What of a file in NNI's older format no table takes: fields in a wrong place, of another platform, or misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nnilite.config._fields import did_you_mean, normalize_name
from nnilite.config._former_fields import find_platforms_of, find_top_level_place, is_argument
from nnilite.config.secrets import masked, masked_text
from nnilite.space.space_checks import dotted

Where = tuple[str | int, ...]

_BECAME = {
    "tunername": "builtinTunerName has its meaning",
    "assessorname": "builtinAssessorName has its meaning",
    "advisorname": "builtinAdvisorName has its meaning",
    **dict.fromkeys(
        ("optimizemode", "optimizationmode"), "write it in classArgs, as in classArgs: {optimize_mode: maximize}"
    ),
    **dict.fromkeys(
        ("tunercommand", "assessorcommand"),
        "write codeDir, classFileName and className of a class that derives from nni's Tuner or Assessor",
    ),
    **dict.fromkeys(("tunercwd", "assessorcwd"), "codeDir has its meaning"),
    **dict.fromkeys(("tunergpunum", "assessorgpunum", "advisorgpunum"), "gpuIndices names the GPUs of a tuner"),
    "trialcommand": "command has its meaning",
    "trialcodedir": "codeDir has its meaning",
    "trialgpunum": "gpuNum has its meaning",
    "precommand": "write it in front of trial.command, as in command: PRECOMMAND && python3 trial.py",
    "codedirectory": "codeDir has its meaning",
    "trainingserviceplatforms": "it is a field of hybridConfig",
    **dict.fromkeys(
        ("tuner", "assessor", "advisor", "trial", "hybridconfig"), "it is a section of its own: do not indent it"
    ),
}
"""What became of fields of NNI 0.x, and of some that NNI 1 and 2 had for a while."""
_ALGORITHMS = ("tuner", "assessor", "advisor")
_SECTIONS = (*_ALGORITHMS, "trial", "sharedStorage")


@dataclass(frozen=True)
class Fault:
    """A fault of the file: at the field `path`, with a sentence."""

    path: Where
    message: str


def find_wrong_shape(config: Mapping[str, Any]) -> Fault | None:
    """Return the fault of the first section that has another shape than its fields need; None if all are right."""
    for name, value in config.items():
        plain = normalize_name(str(name))
        is_section = plain in map(normalize_name, _SECTIONS) or plain.endswith("config")
        if value is None or (is_section and isinstance(value, Mapping)):
            continue
        if is_section:
            return Fault((name,), f"must have its fields below it, not {masked(value)!r}{_cure_shape(plain, value)}")
        if plain == "machinelist" and not isinstance(value, list):
            cure = "; begin each machine with a dash, as in `- ip: 10.0.0.1`"
            return Fault((name,), f"must be a list of machines, not {masked(value)!r}{cure}")
    return None


def _cure_shape(name: str, value: Any) -> str:
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        return "; remove the dash in front of them"
    if not isinstance(value, str):
        return ""
    if ":" in value:
        return "; write a space after each colon, as in `name: value`"
    if name in _ALGORITHMS:
        return f"; did you mean {{builtin{name.capitalize()}Name: {masked_text(value)}}}?"
    return ""


class Leftovers:
    """Says of each field that was not read what is wrong with it.

    `places` has the places of all fields that the platforms of this file have, and `known` the names of all platforms'
    fields.
    """

    def __init__(self, places: Iterable[str], known: Iterable[str], platforms: Iterable[str]) -> None:
        self._places = list(places)
        self._known = {normalize_name(name): name for name in known}
        self._own_sections = {f"{platform}config" for platform in platforms}

    def judge(self, path: Where) -> str | Fault:
        """Return a warning on a field without effect, or the fault of one that does not exist."""
        where, name = masked_text(dotted(path)), normalize_name(str(path[-1]))
        section = normalize_name(str(path[0]))
        right = [place for place in self._places if normalize_name(place.rpartition(".")[2]) == name]
        # A field outside a tuner's section is unlikely to be meant for the tuner.
        right = [place for place in right if not place.startswith(("tuner.", "advisor."))] or right
        own = section in self._own_sections and len(path) > 1
        if name == "gpunum" and section in _ALGORITHMS:
            return f"{where} no longer has an effect and was left out; {_BECAME['tunergpunum']}"
        if own and not right and name not in self._known:
            names = [place.rpartition(".")[2] for place in self._places if normalize_name(place).startswith(section)]
            return self._unknown(path, names)
        if right and (own or not section.endswith("config")):
            return f"{where} has no effect there and was left out; write it as {' or '.join(right)}"
        # A field of another platform, as in files that were made of an example for that.
        if name in self._known or (section.endswith("config") and not own):
            return f"{where} has no effect on this platform and was left out"
        return self._unknown(path, self._known.values())

    def _unknown(self, path: Where, names: Iterable[str]) -> Fault:
        sections = {*self._known, *map(normalize_name, _SECTIONS)}
        if len(path) > 1 and normalize_name(str(path[0])) not in sections:
            path = path[:1]  # such as one that only holds an anchor: it is the fault, not what is in it
        word = normalize_name(str(path[-1]))
        became, hint = _BECAME.get(word) or find_top_level_place(word), did_you_mean(str(path[-1]), names)
        if len(path) > 1 and path[0] in _ALGORITHMS and is_argument(word):
            became = "it is an argument of the algorithm: indent it below classArgs"
        hint = f"; {became}" if became else hint if hint.endswith("?") else _find_in_present(path[-1])
        return Fault(path, f"there is no such field in NNI's older format{hint}")


def _find_in_present(name: str | int) -> str:
    """Return where the present format has a field, for files that mix the two: the end of a sentence."""
    found = find_platforms_of(normalize_name(str(name)))
    shown = " or ".join(f"{new} ({', '.join(platforms)})" for new, platforms in found.items())
    return f"; in trainingService it is {shown}, in a file of version 2" if shown else ""


def list_leaves(value: Any, path: Where = ()) -> list[Where]:
    """Return the places of all values that have none below them."""
    if isinstance(value, Mapping) and value:
        return [leaf for key, item in value.items() for leaf in list_leaves(item, (*path, str(key)))]
    if isinstance(value, list) and value:
        return [leaf for k, item in enumerate(value) for leaf in list_leaves(item, (*path, k))]
    return [path]
