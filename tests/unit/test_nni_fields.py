"""Each field that NNI 0.x, 1 and 2 had, in each place where people put it: it is taken, or told what became of it.

The names are those of NNI's references, not of our tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnilite.config import from_dict
from nnilite.errors import ConfigError

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
PRESENT: dict[str, Any] = {
    "searchSpace": SPACE,
    "trialCommand": "true",
    "trialConcurrency": 1,
    "tuner": {"name": "TPE"},
    "assessor": {"name": "Medianstop"},
    "trainingService": {"platform": "local"},
}
OLDER: dict[str, Any] = {
    "trainingServicePlatform": "local",
    "trialConcurrency": 1,
    "searchSpace": SPACE,
    "trial": {"command": "true", "codeDir": "."},
    "tuner": {"builtinTunerName": "TPE"},
    "assessor": {"builtinAssessorName": "Medianstop"},
}
MACHINE = {"host": "h", "user": "me", "password": "x"}
OLDER_MACHINE = {"ip": "h", "username": "me", "passwd": "x"}

VERSION_0 = {
    "tuner": "tunerName optimizationMode tunerCommand tunerCwd tunerGpuNum",
    "assessor": "assessorName optimizationMode assessorCommand assessorCwd assessorGpuNum",
    "trial": "trialCommand trialCodeDir trialGpuNum",
}
VERSION_1 = {
    "": "authorName experimentName maxExecDuration maxTrialNum searchSpacePath useAnnotation multiPhase multiThread "
    "nniManagerIp logDir debug versionCheck logLevel logCollection description maxTrialDuration localConfig "
    "machineList remoteConfig kubeflowConfig paiConfig frameworkcontrollerConfig amlConfig dltsConfig adlConfig "
    "hybridConfig sharedStorage trial advisor",
    "tuner": "builtinTunerName codeDir classFileName className classArgs includeIntermediateResults gpuIndices "
    "checkpointDir gpuNum",
    "assessor": "builtinAssessorName codeDir classFileName className classArgs checkpointDir gpuNum",
    "trial": "command codeDir gpuNum nasMode cpuNum memoryMB image authFile shmMB dataDir outputDir virtualCluster "
    "portList nniManagerNFSMountPath containerNFSMountPath paiConfigPath paiStorageConfigName computeTarget "
    "privateRegistryAuthPath taskRoles ps worker master",
    "machineList": "ip port username passwd sshKeyPath passphrase gpuIndices maxTrialNumPerGpu useActiveGpu "
    "preCommand pythonPath",
    "localConfig": "gpuIndices maxTrialNumPerGpu useActiveGpu",
}
VERSION_2 = {
    "": "experimentName searchSpaceFile searchSpace trialCommand trialCodeDirectory trialConcurrency trialGpuNumber "
    "maxExperimentDuration maxTrialNumber maxTrialDuration nniManagerIp useAnnotation debug logLevel "
    "experimentWorkingDirectory tunerGpuIndices tuner assessor advisor trainingService sharedStorage",
    "tuner": "name className codeDirectory classArgs",
    "assessor": "name className codeDirectory classArgs",
}
CURES = [
    *("did you mean", "write ", "has its meaning", "is an argument", "names the GPUs", "keep one of"),
    *(
        "another platform has",
        "in trainingService it is",
        "is the newer name of",
        "goes without",
        "no longer has an effect",
        "has no effect",
        "it is a field of",
        "it is a section of its own",
    ),
]


def fields(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(place, name) for place, names in table.items() for name in names.split()]


def said_of(config: dict[str, Any], name: str) -> str:
    """What is said of a field: a fault or a warning that names it; "" if it is taken."""
    try:
        warnings = from_dict(config).checked(paths=False).warnings
    except ConfigError as error:
        told = [str(one) for one in getattr(error, "errors", (error,))]
    else:
        told = list(warnings)
    return next((line for line in told if f"{name}: " in line or f"{name} " in line), "")


def is_an_answer(said: str) -> bool:
    """Whether a field that is not known is answered with what to do; other faults are of its value."""
    return "there is no such field" not in said or any(cure in said for cure in CURES)


@pytest.mark.parametrize(("place", "name"), fields(VERSION_1))
def test_fields_of_version_1_in_a_file_of_version_2(place: str, name: str) -> None:
    section = "trainingService" if place in ("trial", "localConfig", "machineList") else place
    config = {**PRESENT, name: 1} if not section else {**PRESENT, section: {**PRESENT[section], name: 1}}
    if place == "machineList":
        config["trainingService"] = {"platform": "remote", "machineList": [{**MACHINE, name: 1}]}
    assert is_an_answer(said_of(config, name))


@pytest.mark.parametrize(("place", "name"), fields({"": VERSION_1["trial"] + " " + VERSION_1["machineList"]}))
def test_fields_of_sections_at_the_top_of_a_file_of_version_2(place: str, name: str) -> None:
    assert is_an_answer(said_of({**PRESENT, name: 1}, name))


@pytest.mark.parametrize(("place", "name"), fields(VERSION_1))
def test_fields_of_version_1_in_a_file_of_version_1(place: str, name: str) -> None:
    config = {**OLDER, name: 1} if not place else {**OLDER, place: {**OLDER.get(place, {}), name: 1}}
    if place == "machineList":
        config = {**OLDER, "trainingServicePlatform": "remote", "machineList": [{**OLDER_MACHINE, name: 1}]}
    said = said_of(config, name)
    assert is_an_answer(said)
    assert "there is no such field" not in said or name == "preCommand"


@pytest.mark.parametrize(("place", "name"), fields(VERSION_0))
@pytest.mark.parametrize("version", [1, 2])
def test_fields_of_version_0(place: str, name: str, version: int) -> None:
    base = OLDER if version == 1 else PRESENT
    section = "" if place == "trial" and version == 2 else place
    config = {**base, section: {**base[section], name: "x"}} if section else {**base, name: "x"}
    said = said_of(config, name)
    assert is_an_answer(said)
    assert said or (name, version) == ("trialCommand", 2)


@pytest.mark.parametrize(("place", "name"), fields(VERSION_2))
def test_fields_of_version_2_in_a_file_of_version_1(place: str, name: str) -> None:
    config = {**OLDER, place: {**OLDER[place], name: 1}} if place else {**OLDER, name: 1}
    assert is_an_answer(said_of(config, name))


@pytest.mark.parametrize("name", ["tuner", "trial", "machineList", "localConfig"])
def test_a_section_of_version_1_that_is_no_mapping_does_no_harm(name: str, tmp_path: Path) -> None:
    values: list[Any] = [None, 1, "x", [1], {}]
    for value in values:
        with pytest.raises(ConfigError):
            from_dict({**OLDER, "trainingServicePlatform": "remote", name: value}, tmp_path).checked()


def test_a_tuner_of_architectures_is_told_before_the_space_that_it_has_not() -> None:
    config = {name: value for name, value in PRESENT.items() if name != "searchSpace"}
    with pytest.raises(ConfigError, match=r"^tuner.name: there is no tuner 'NetworkMorphism': it searches archit"):
        from_dict({**config, "tuner": {"name": "NetworkMorphism"}}).checked()


def test_the_beginning_of_a_tuners_name_is_answered_with_the_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'GridSearch'"):
        from_dict({**PRESENT, "tuner": {"name": "grid"}}).checked()


@pytest.mark.parametrize("word", ["tuner", "assessor"])
def test_the_name_of_ones_own_class_is_answered_with_its_field(word: str) -> None:
    with pytest.raises(ConfigError, match=r"One of your own is named by className\.$"):
        from_dict({**PRESENT, word: {"name": "CUHKPrototype"}}).checked()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("${your_account}", True),
        ("<name>", True),
        ("{name}", True),
        ("x.x.x.x", True),
        ("plain", False),
        ("a${X}", False),
    ],
)
def test_a_placeholder_of_an_example_is_a_warning(value: str, told: bool) -> None:
    service: dict[str, Any] = {"platform": "openpai", "host": "h", "username": "u", "token": "t", "dockerImage": value}
    service |= {"trialCpuNumber": 1, "trialMemorySize": "1gb", "trialCommand": "${X}"}
    warnings = from_dict({**PRESENT, "trainingService": service}).checked().warnings
    assert any("trainingService.dockerImage is" in line and "placeholder" in line for line in warnings) is told
    assert not any("trialCommand is" in line for line in warnings)


def test_names_without_a_meaning_here_are_those_of_one_place() -> None:
    assert "in trainingService it is trialCpuNumber (openpai)" in said_of({**PRESENT, "cpuNum": 1}, "cpuNum")
    assert "in trainingService it is computeTarget (aml)" in said_of({**PRESENT, "computeTarget": "c"}, "computeTarget")
