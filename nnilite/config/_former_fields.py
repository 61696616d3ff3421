"""What became of fields of NNI's other formats, and of names that people and chat bots take for fields of this one.

A name in the wrong format is not a misspelling: the answer says which field of the present format has its meaning.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from nnilite._plugins import lookup
from nnilite.config import _v1_tables
from nnilite.config._fields import did_you_mean, normalize_name
from nnilite.config._section_synonyms import answer_in_section, is_top_level
from nnilite.errors import PluginError
from nnilite.records.shapes import camel

_MOST_NAMED = 15
"""So many fields are listed at most where nothing resembles a wrong one."""

_SLIP = 0.91
"""How similar, by `difflib`, a misspelt name is to the field: one letter of eleven is wrong at most."""

_NO_EFFECT = "no longer has an effect: remove it"
_SERVICE = "write its fields in trainingService, as in trainingService: {platform: %s, ...}"
_COMMAND = "write it in front of trialCommand, as in trialCommand: PRECOMMAND && python3 trial.py"
_TUNER = "write tuner: {name: TPE, classArgs: {optimize_mode: maximize}}, or minimize"
_ARGUMENT = "is an argument of the algorithm: write it in classArgs"

_TOP = {
    **dict.fromkeys(
        ("author", "description", "deprecated", "multithread", "multiphase", "versioncheck", "logcollection"),
        _NO_EFFECT,
    ),
    "authorname": _NO_EFFECT,
    "trial": "write trialCommand for its command, trialCodeDirectory for its codeDir, trialGpuNumber for its gpuNum",
    **dict.fromkeys(
        ("machinelist", "machines", "hosts"),
        "write it in trainingService, as in trainingService: {platform: remote, machineList: [...]}",
    ),
    "localconfig": _SERVICE % "local",
    "remoteconfig": _SERVICE % "remote",
    "paiconfig": _SERVICE % "openpai",
    "amlconfig": _SERVICE % "aml",
    "dlcconfig": _SERVICE % "dlc",
    "dltsconfig": _SERVICE % "dlts",
    "adlconfig": _SERVICE % "adl",
    "kubeflowconfig": _SERVICE % "kubeflow",
    "frameworkcontrollerconfig": _SERVICE % "frameworkcontroller",
    **dict.fromkeys(
        ("hybridconfig", "heterogeneousconfig", "trainingserviceplatforms"),
        "write a section for each platform in trainingService: [{platform: local}, {platform: aml, ...}]",
    ),
    "platform": "write it in trainingService, as in trainingService: {platform: local}",
    "clustermetadata": "write its fields in trainingService",
    **dict.fromkeys(
        ("searchalgorithm", "searchalgorithmsettings", "algorithm", "optimizer", "hpo", "tuners"),
        _TUNER,
    ),
    **dict.fromkeys(
        ("optimize", "optimizemode", "optimizationmode", "objective", "metric", "goal", "direction"), _TUNER
    ),
    **dict.fromkeys(("maximizationmetric", "minimizationmetric", "objectivemetric", "metricname"), _TUNER),
    **dict.fromkeys(
        ("targetvalue", "target", "lossthreshold", "stopvalue", "stopat", "threshold", "maxmetricvalue"),
        "did you mean stopAtValue?",
    ),
    "seed": "write it in classArgs of the tuner",
    "objectives": "write tuner: {name: Auto, classArgs: {objectives: {accuracy: maximize, size: minimize}}}",
    "port": "write it in the command, as in `nnictl create --port 8080 --config FILE`",
    "gpuindices": "write it in trainingService, for the GPUs of trials; tunerGpuIndices is for tuners of your own",
    **dict.fromkeys(
        ("hyperparameters", "parameters", "parameterspace", "params", "space"),
        "write searchSpace, or searchSpaceFile for a file of its own",
    ),
    **dict.fromkeys(
        ("ntrials", "numtrials", "numsamples", "maxtrials", "maxevals", "trials", "total", "runcap"),
        "did you mean maxTrialNumber?",
    ),
    **dict.fromkeys(
        ("njobs", "nworkers", "concurrency", "maxconcurrenttrials", "maxconcurrent", "parallelism"),
        "did you mean trialConcurrency?",
    ),
    **dict.fromkeys(("program", "script", "entrypoint", "runorexperiment", "cmd"), "did you mean trialCommand?"),
    **dict.fromkeys(("studyname", "expname", "jobname", "name", "title"), "did you mean experimentName?"),
    **dict.fromkeys(("timeout", "timebudget", "timebudgets", "maxtime"), "did you mean maxExperimentDuration?"),
    **dict.fromkeys(
        ("duration", "maxduration"),
        "write maxExperimentDuration for the experiment, or maxTrialDuration for each trial",
    ),
    **dict.fromkeys(("logger", "loggers", "tracker", "tracking"), "write trackers: [{name: tensorboard}]"),
    **{name: f"write trackers: [{{name: {name}}}]" for name in ("tensorboard", "mlflow", "wandb")},
    **dict.fromkeys(("mode", "sampler", "method", "searcher", "searchalg", "scheduler"), _TUNER),
    **dict.fromkeys(("numgpus", "ngpus", "gpus"), "did you mean trialGpuNumber?"),
    **dict.fromkeys(("workingdir", "workdir", "cwd"), "did you mean trialCodeDirectory?"),
    **dict.fromkeys(("earlystopping", "earlystop", "earlyterminate", "stopper"), "write assessor: {name: Medianstop}"),
    "hydra": "write its sweeper's params as searchSpace, and n_trials as maxTrialNumber",
    "apiversion": "a Kubernetes manifest is not a config; write searchSpace, trialCommand and trainingService",
    **dict.fromkeys(("kind", "metadata", "spec"), "it belongs to a manifest of Kubernetes"),
}
_VARIABLES = "write variables in front of trialCommand, as in trialCommand: DATA=/data python3 trial.py"
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
    **dict.fromkeys(
        ("optimize", "direction", "goal", "objective", "mode"), "write it as optimize_mode: minimize in classArgs"
    ),
    **dict.fromkeys(("includeintermediateresults", "checkpointdir"), _NO_EFFECT),
    **dict.fromkeys(
        (
            *("optimizemode", "optimizationmode", "algorithmname", "seed", "startstep", "populationsize", "epochnum"),
            *("r", "eta", "minbudget", "maxbudget", "coldstartnum", "threshold", "gap", "tpeargs", "parameters"),
            *("args", "settings", "arguments", "kwargs"),
        ),
        _ARGUMENT,
    ),
}
_STORAGE = "write it in sharedStorage, as in sharedStorage: {storageType: NFS, nfsServer: ...}"
_OF_STORAGE = (
    *("localmountpoint", "remotemountpoint", "localmounted", "nfsserver", "exporteddirectory"),
    *("storageaccountname", "storageaccountkey", "containername"),
)


_NAMES_OF_VARIABLES = {"env", "envs", "envvars", "environment", "environments", "environmentvariables", "variables"}
_NAMES_OF_VARIABLES |= {"trialenvironment", "trialenv", "trialenvironmentvariables", "environ"}


def answer(path: Sequence[str | int], name: str, known: Iterable[str], value: Any = None) -> str:
    """Return the end of a sentence on an unknown field `name` of the section at `path`: what became of it, or a hint.

    `value` is what the field has; a parameter of a search space is known by it.

    >>> answer((), "authorName", ["trialCommand"])
    '; it no longer has an effect: remove it'
    """
    names = list(known)
    if isinstance(value, Mapping) and "_type" in value:
        return "; it is a parameter: indent it below searchSpace"
    word = normalize_name(name)
    advice = _TOP.get(word, "") if not path else _ALGORITHM.get(word, "") if _is_algorithm(path) else ""
    advice = _find_place_in_command(word, names) or advice or (_TOP.get(word, "") if _is_older_section(word) else "")
    if advice:
        return f"; {'it ' if advice.startswith(('has', 'is', 'no longer')) else ''}{advice}"
    if place := _find_other_place(path, word, names):
        return f"; {place}"
    successor = next((new for new in _list_successors().get(word, ()) if new in names), "")
    if successor:
        return f"; did you mean {successor}?"
    if word in _list_dropped():
        return f"; it {_NO_EFFECT}"
    if path[:1] == ("sharedStorage",) and word == "codedir":
        return "; it has no effect here: remove it"
    if elsewhere := answer_in_section(path, word, names) or find_top_level_place(word):
        return f"; {elsewhere}"
    near = did_you_mean(name, names)
    if found := _find_unless_typo(word, names) if _may_be_of_a_platform(path, near) else {}:
        return _send_elsewhere(found, names, path)
    return near if len(names) <= _MOST_NAMED else _shorten(near)


def _may_be_of_a_platform(path: Sequence[str | int], near: str) -> bool:
    """Return whether a name here may be that of a platform's field: not in a section whose subject is another one."""
    return not (_is_algorithm(path) and near.endswith("?")) and path[:1] not in (("trackers",), ("webhooks",))


def _find_other_place(path: Sequence[str | int], word: str, names: Iterable[str]) -> str:
    """Return where to write a field that a part further out, or further in, has by this name."""
    if path and is_top_level(word):
        return f"it is a field of the top level: write it outside of {path[0]}"
    is_of_machines = "machineList" in names and "remote" in _list_platforms(word)
    return "write it in machineList, at each machine" if is_of_machines else ""


def _find_place_in_command(word: str, names: Iterable[str]) -> str:
    """Return how to write in the trial command what has no field of its own."""
    if word in _NAMES_OF_VARIABLES and not any(normalize_name(one) in _NAMES_OF_VARIABLES for one in names):
        return _VARIABLES
    return _COMMAND if word == "precommand" else ""


def _find_unless_typo(word: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the platforms' fields of a name. One like `trialcomand` is not worth the second to import all of them."""
    is_slip = difflib.get_close_matches(word, map(normalize_name, names), n=1, cutoff=_SLIP)
    return _find_elsewhere().get(word, {}) if is_slip else find_platforms_of(word)


def _is_older_section(word: str) -> bool:
    """Return whether the older format had a section of this name, which means the same wherever it is put."""
    return word.endswith("config") or word in ("trial", "trainingserviceplatforms")


def _send_elsewhere(places: Mapping[str, list[str]], known: Iterable[str], path: Sequence[str | int]) -> str:
    """Return where a field of a platform's section belongs."""
    own = next((new for new in places if "." in new and new.partition(".")[0] in known), "")
    if own:
        return f"; write it in {own.rpartition('.')[0]}"
    shown = " or ".join(f"{new} ({', '.join(platforms)})" for new, platforms in places.items())
    return (
        f"; another platform has {shown}" if path[:1] == ("trainingService",) else f"; in trainingService it is {shown}"
    )


def is_argument(word: str) -> bool:
    """Return whether a name, in lower case without underscores, is mostly an argument of a tuner or assessor."""
    return _ALGORITHM.get(word) == _ARGUMENT or word in ("maximize", "minimize")


def is_field_of_a_platform(word: str) -> bool:
    """Return whether sections of training services have a field of this name, in lower case without underscores."""
    return bool(find_platforms_of(word))


def _shorten(hint: str) -> str:
    return hint if hint.endswith("?") else "; `nnictl config schema` shows all fields"


def _is_algorithm(path: Sequence[str | int]) -> bool:
    return len(path) == 1 and path[0] in ("tuner", "assessor", "advisor")


@cache
def _list_successors() -> dict[str, list[str]]:
    """Return the present names of the older format's fields, by the last part of the older name."""
    found: dict[str, list[str]] = {}
    for table in _v1_tables.tables():
        for old, new in table.items():
            found.setdefault(normalize_name(old.rpartition(".")[2]), []).append(new.rpartition(".")[2])
    return found


def _list_platforms(word: str) -> set[str]:
    """Return the platforms whose sections have a field."""
    return {platform for platforms in _find_elsewhere().get(word, {}).values() for platform in platforms}


@cache
def _find_elsewhere() -> dict[str, dict[str, list[str]]]:
    """Return the fields of platforms' sections by their older and present names: the present name, and platforms."""
    found: dict[str, dict[str, list[str]]] = {}
    for platform, table in _v1_tables.list_by_platform():
        for old, new in table.items():
            for word in {normalize_name(old.rpartition(".")[2]), normalize_name(new.rpartition(".")[2])}:
                platforms = found.setdefault(word, {}).setdefault(new, [])
                platforms += [platform] if platform not in platforms else []
    return found


def _find_in_plugins() -> dict[str, dict[str, list[str]]]:
    """Return the fields of the installed platforms' sections, as `_find_elsewhere` does."""
    found: dict[str, dict[str, list[str]]] = {}
    for platform in lookup.names(lookup.SERVICES):
        try:
            section = lookup.training_service_class(platform).Config
        except PluginError:  # users of that platform get this error anyway
            continue
        for field in dataclasses.fields(section) if dataclasses.is_dataclass(section) else ():
            key = camel(field.name)
            found.setdefault(normalize_name(key), {}).setdefault(key, []).append(platform)
    return found


def find_platforms_of(word: str) -> dict[str, list[str]]:
    """Return the names of a platform's field, in lower case without underscores, today, each with its platforms."""
    return _find_elsewhere().get(word) or _find_in_plugins().get(word) or {}


def find_top_level_place(word: str) -> str:
    """Return where a field belongs that both formats have at the same place; "" if that is not known.

    `word` is the name in lower case without underscores.
    """
    return _STORAGE if word in _OF_STORAGE else ""


@cache
def _list_dropped() -> frozenset[str]:
    return frozenset(map(normalize_name, _v1_tables.list_without_meaning()))
