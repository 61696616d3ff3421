"""What to write for a name that a config in Python has not: the end of a sentence.

`_former_fields` answers the same for YAML, in which fields have other names.
"""

from __future__ import annotations

from collections.abc import Iterable

from nnilite.config._fields import did_you_mean, normalize_name
from nnilite.config._former_fields import is_argument, is_field_of_a_platform

_TOP = {
    **dict.fromkeys(("tunerkwargs", "tunerargs", "classargs", "tunerconfig", "tunerparams"), "set tuner.class_args"),
    **dict.fromkeys(("tunername", "algorithm", "searchalgorithm", "searcher", "optimizer"), "set tuner.name"),
    **dict.fromkeys(("assessorname", "earlystopping", "pruner"), "set assessor.name"),
    "assessorkwargs": "set assessor.class_args",
    **dict.fromkeys(
        ("mode", "objective", "direction", "metric", "goal", "optimize"), "set tuner.class_args['optimize_mode']"
    ),
    **dict.fromkeys(("machines", "machinelist"), "set training_service.machine_list"),
    "trainingserviceplatform": "write ExperimentConfig('local'), with the name of the platform",
    "platform": "write ExperimentConfig('local'), with the name of the platform",
    "port": "give it to run or start, as in experiment.run(8080)",
}


def hint(section: str, name: str, known: Iterable[str]) -> str:
    """Return what to write for `name` in a section, which is "ExperimentConfig", "AlgorithmConfig" or another class.

    >>> hint("ExperimentConfig", "tuner_kwargs", ["tuner"])
    '; set tuner.class_args'
    """
    word = normalize_name(name)
    if section == "ExperimentConfig" and word in _TOP:
        return f"; {_TOP[word]}"
    near = did_you_mean(name, known)
    if near.endswith("?"):
        return near
    if is_argument(word) and section in ("ExperimentConfig", "AlgorithmConfig"):
        return f"; set {'' if section == 'AlgorithmConfig' else 'tuner.'}class_args[{name!r}]"
    if section == "ExperimentConfig" and is_field_of_a_platform(word):
        return "; it is a field of training_service"
    return near if len(near) < _LONGEST_LIST else "; `nnictl config schema` shows all fields, in camelCase"


_LONGEST_LIST = 300
