"""What became of fields of NNI's other formats, and of names that people and chat bots take for fields of this one.

A name in the wrong format is not a misspelling: the answer says which field of the present format has its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from nnilite.config._fields import did_you_mean, normalize_name

_MOST_NAMED = 15
"""So many fields are listed at most where nothing resembles a wrong one."""

_NO_MEANING = "has no meaning any more: remove it"
_SERVICE = "write its fields in trainingService, as in trainingService: {platform: %s, ...}"
_COMMAND = "write it in front of trialCommand, as in trialCommand: PRECOMMAND && python3 trial.py"
_TUNER = "write tuner: {name: TPE, classArgs: {optimize_mode: maximize}}"
_ARGUMENT = "is an argument of the algorithm: write it in classArgs"

_TOP = {
    **dict.fromkeys(
        ("author", "description", "deprecated", "multithread", "multiphase", "versioncheck", "logcollection"),
        _NO_MEANING,
    ),
    "authorname": _NO_MEANING,
    "trial": "write trialCommand for its command, trialCodeDirectory for its codeDir, trialGpuNumber for its gpuNum",
    "machinelist": "write it in trainingService, as in trainingService: {platform: remote, machineList: [...]}",
    "localconfig": _SERVICE % "local",
    "remoteconfig": _SERVICE % "remote",
    "paiconfig": _SERVICE % "openpai",
    "amlconfig": _SERVICE % "aml",
    "dlcconfig": _SERVICE % "dlc",
    "dltsconfig": _SERVICE % "dlts",
    "adlconfig": _SERVICE % "adl",
    "kubeflowconfig": _SERVICE % "kubeflow",
    "frameworkcontrollerconfig": _SERVICE % "frameworkcontroller",
    "hybridconfig": "write a section for each platform in trainingService: [{platform: local}, {platform: aml, ...}]",
    "platform": "write it in trainingService, as in trainingService: {platform: local}",
    "clustermetadata": "write its fields in trainingService",
    **dict.fromkeys(
        ("searchalgorithm", "searchalgorithmsettings", "algorithm", "optimizer", "hpo", "tuners"),
        _TUNER,
    ),
    **dict.fromkeys(("optimizemode", "optimizationmode", "objective", "metric", "goal", "direction"), _TUNER),
    **dict.fromkeys(("maximizationmetric", "minimizationmetric", "objectivemetric", "metricname"), _TUNER),
    "seed": "write it in classArgs of the tuner",
    "port": "write it in the command, as in `nnictl create --port 8080 --config FILE`",
    "gpuindices": "write it in trainingService, for the GPUs of trials; tunerGpuIndices is for tuners of your own",
    **dict.fromkeys(
        ("hyperparameters", "parameters", "parameterspace", "params", "space"),
        "write searchSpace, or searchSpaceFile for a file of its own",
    ),
    **dict.fromkeys(("earlystopping", "earlystop", "stopper"), "write assessor: {name: Medianstop}"),
}
_ALGORITHM = {
    **dict.fromkeys(
        ("builtinoperatorname", "builtinname", "algorithmname", "tunername", "assessorname", "advisorname", "type"),
        "did you mean name?",
    ),
    "classfilename": "write className: FILE.CLASS, such as tuner.MyTuner for tuner.py",
    "codedir": "did you mean codeDirectory?",
    "gpuindices": "write tunerGpuIndices at the top level",
    **dict.fromkeys(
        ("gpunum", "tunergpunum", "assessorgpunum", "advisorgpunum"),
        "write tunerGpuIndices at the top level, with the numbers of the GPUs",
    ),
    **dict.fromkeys(
        ("tunercommand", "assessorcommand"),
        "write className: FILE.CLASS, such as tuner.MyTuner for tuner.py, which derives from nni's Tuner or Assessor",
    ),
    **dict.fromkeys(("tunercwd", "assessorcwd"), "did you mean codeDirectory?"),
    **dict.fromkeys(("includeintermediateresults", "checkpointdir"), _NO_MEANING),
    **dict.fromkeys(
        (
            *("optimizemode", "optimizationmode", "algorithmname", "seed", "startstep", "populationsize", "epochnum"),
            *("r", "eta", "minbudget", "maxbudget", "coldstartnum", "threshold", "gap", "tpeargs", "parameters"),
            *("args", "settings", "arguments", "kwargs"),
        ),
        _ARGUMENT,
    ),
}


def answer(path: Sequence[str | int], name: str, known: Iterable[str], value: Any = None) -> str:
    """Return the end of a sentence on an unknown field `name` of the section at `path`: what became of it, or a hint.

    `value` is what the field has; a parameter of a search space is known by it.

    >>> answer((), "authorName", ["trialCommand"])
    '; it has no meaning any more: remove it'
    """
    names = list(known)
    if isinstance(value, Mapping) and "_type" in value:
        return "; it is a parameter: indent it below searchSpace"
    word = normalize_name(name)
    said = _TOP.get(word, "") if not path else _ALGORITHM.get(word, "") if _is_algorithm(path) else ""
    said = _COMMAND if word == "precommand" else said
    if said:
        return f"; {'it ' if said.startswith(('has', 'is')) else ''}{said}"
    if "machineList" in names and "remote" in _list_platforms(word):
        return "; write it in machineList, at each machine"
    successor = next((new for new in _list_successors().get(word, ()) if new in names), "")
    if successor:
        return f"; did you mean {successor}?"
    if word in _list_dropped():
        return f"; it {_NO_MEANING}"
    if not _is_algorithm(path) and word in _find_elsewhere():
        found = [f"{new} ({', '.join(platforms)})" for new, platforms in _find_elsewhere()[word].items()]
        if path[:1] == ("trainingService",):
            return f"; another platform has {' or '.join(found)}"
        return f"; in trainingService it is {' or '.join(found)}"
    if len(names) <= _MOST_NAMED:
        return did_you_mean(name, names)
    return _shorten(did_you_mean(name, names))


def _shorten(hint: str) -> str:
    return hint if hint.endswith("?") else "; `nnictl config schema` shows all fields"


def _is_algorithm(path: Sequence[str | int]) -> bool:
    return len(path) == 1 and path[0] in ("tuner", "assessor", "advisor")


@cache
def _list_successors() -> dict[str, list[str]]:
    """Return the present names of the older format's fields, by the last part of the older name."""
    from nnilite.config import _v1

    found: dict[str, list[str]] = {}
    for table in _v1.tables():
        for old, new in table.items():
            found.setdefault(normalize_name(old.rpartition(".")[2]), []).append(new.rpartition(".")[2])
    return found


def _list_platforms(word: str) -> set[str]:
    """Return the platforms whose sections have a field."""
    return {platform for platforms in _find_elsewhere().get(word, {}).values() for platform in platforms}


@cache
def _find_elsewhere() -> dict[str, dict[str, list[str]]]:
    """Return the fields of platforms' sections by their older and present names: the present name, and platforms."""
    from nnilite.config import _v1

    found: dict[str, dict[str, list[str]]] = {}
    for platform, table in _v1.list_by_platform():
        for old, new in table.items():
            if "." in new:  # a name in a part of the section says little alone
                continue
            for word in {normalize_name(old.rpartition(".")[2]), normalize_name(new)}:
                platforms = found.setdefault(word, {}).setdefault(new, [])
                platforms += [platform] if platform not in platforms else []
    return found


@cache
def _list_dropped() -> frozenset[str]:
    from nnilite.config import _v1

    return frozenset(map(normalize_name, _v1.list_without_meaning()))
