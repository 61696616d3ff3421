"""Fields of other formats, and names that people take for fields: the answer says what became of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from nnilite.config import ExperimentConfig, _former_fields, _section_synonyms, _v1_tables, from_dict
from nnilite.errors import ConfigError, Place
from nnilite.records.shapes import camel

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
PRESENT: dict[str, Any] = {
    "searchSpace": SPACE,
    "trialCommand": "python3 trial.py",
    "trialConcurrency": 1,
    "tuner": {"name": "TPE"},
    "trainingService": {"platform": "local"},
}
OLDER: dict[str, Any] = {
    "trainingServicePlatform": "local",
    "trialConcurrency": 1,
    "trial": {"command": "python3 trial.py", "codeDir": "."},
    "tuner": {"builtinTunerName": "TPE"},
}


def faults(config: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_dict(config).checked()
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("authorName", "it no longer has an effect: remove it"),
        ("versionCheck", "it no longer has an effect: remove it"),
        ("maxExecDuration", "did you mean maxExperimentDuration?"),
        ("maxTrialNum", "did you mean maxTrialNumber?"),
        ("objectives", "write tuner: {name: Auto, classArgs: {objectives: {accuracy: maximize, size: minimize}}}"),
        ("run_cap", "did you mean maxTrialNumber?"),
        ("early_terminate", "write assessor: {name: Medianstop}"),
        ("hydra", "write its sweeper's params as searchSpace, and n_trials as maxTrialNumber"),
        ("apiVersion", "a Kubernetes manifest is not a config; write searchSpace, trialCommand and trainingService"),
        ("spec", "it belongs to a manifest of Kubernetes"),
        ("name", "there is no such field; did you mean experimentName?"),
        ("hosts", "trainingService: {platform: remote, machineList: [...]}"),
        ("maxDuration", "write maxExperimentDuration for the experiment, or maxTrialDuration for each trial"),
        ("mode", "classArgs: {optimize_mode: maximize}"),
        ("wandb", "write trackers: [{name: wandb}]"),
        ("searchSpacePath", "did you mean searchSpaceFile?"),
        ("logDir", "did you mean experimentWorkingDirectory?"),
        ("trial", "write trialCommand for its command"),
        ("machineList", "write it in trainingService"),
        ("localConfig", "trainingService: {platform: local, ...}"),
        ("paiConfig", "trainingService: {platform: openpai, ...}"),
        ("platform", "trainingService: {platform: local}"),
        ("searchAlgorithmSettings", "write tuner: {name: TPE"),
        ("optimize_mode", "classArgs: {optimize_mode: maximize}"),
        ("hyperParameters", "write searchSpace"),
        ("earlyStopping", "write assessor: {name: Medianstop}"),
        ("colour", "`nnictl config schema` shows all fields"),
    ],
)
def test_at_the_top(name: str, answer: str) -> None:
    (said,) = faults({**PRESENT, name: 1})
    assert said.startswith(f"{name}: there is no such field; ")
    assert answer in said


def test_a_field_of_the_top_level_that_is_indented_too_far_is_sent_back() -> None:
    top = {camel(field.name) for field in fields(ExperimentConfig)}
    assert {name.lower() for name in top} == _section_synonyms._TOP_LEVEL
    config = {**PRESENT, "trainingService": {"platform": "local", "maxTrialRetries": 2, "grace_period": 3}}
    assert [said.partition("; ")[2] for said in faults({**config, "tuner": {"name": "TPE", "maxTrialNumber": 4}})] == [
        f"it is a field of the top level: write it outside of {section}"
        for section in ("tuner", "trainingService", "trainingService")
    ]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("builtinTunerName", "did you mean name?"),
        ("builtinOperatorName", "did you mean name?"),
        ("tunerName", "did you mean name?"),
        ("classFileName", "write className: FILE.CLASS"),
        ("codeDir", "did you mean codeDirectory?"),
        ("gpuIndices", "write tunerGpuIndices at the top level"),
        ("optimize_mode", "write it in classArgs"),
        ("optimizationMode", "write it in classArgs"),
        ("includeIntermediateResults", "it no longer has an effect"),
    ],
)
def test_in_the_tuner(name: str, answer: str) -> None:
    said = faults({**PRESENT, "tuner": {"name": "TPE", name: "x"}})
    assert said[0].startswith(f"tuner.{name}: there is no such field; ")
    assert answer in said[0]


@pytest.mark.parametrize(("name", "new"), [("maxTrialNumPerGpu", "maxTrialNumberPerGpu"), ("gpuNum", "trialGpuNumber")])
def test_in_the_training_service(name: str, new: str) -> None:
    said = faults({**PRESENT, "trainingService": {"platform": "local", name: 1}})
    assert said[0].endswith(f"; did you mean {new}?")


@pytest.mark.parametrize(
    ("platform", "name", "answer"),
    [
        ("slurm", "gpus", "; write trialGpuNumber for their number"),
        ("slurm", "cpusPerTask", "; did you mean cpus?"),
        ("slurm", "extraArgs", "; did you mean sbatchLines?"),
        ("slurm", "queue", "; did you mean partition?"),
        ("slurm", "conda_env", "; did you mean pythonPath?"),
        ("slurm", "image", "; did you mean container?"),
        ("slurm", "output", "`nnictl trial show ID` has its files"),
        ("remote", "hosts", "; did you mean machineList?"),
        ("remote", "venv", "; write pythonPath in machineList, at each machine"),
        ("local", "gpus", "; write trialGpuNumber for their number or gpuIndices for those that trials may use"),
        ("local", "workingDirectory", "; write trialCodeDirectory at the top level"),
        ("local", "concurrency", "; write trialConcurrency at the top level"),
        ("local", "conda", "as in trialCommand: /path/to/venv/bin/python3 trial.py"),
    ],
)
def test_words_of_other_schedulers_and_libraries_in_the_training_service(platform: str, name: str, answer: str) -> None:
    [said, *_] = faults({**PRESENT, "trainingService": {"platform": platform, name: "1"}})
    assert said.startswith(f"trainingService.{name}: there is no such field; ")
    assert said.endswith(answer)


@pytest.mark.parametrize(
    ("name", "new"), [("ip", "host"), ("username", "user"), ("passwd", "password"), ("sshKeyPath", "sshKeyFile")]
)
def test_in_the_list_of_machines(name: str, new: str) -> None:
    machine = {"user": "me", "password": "x", **({} if name == "ip" else {"host": "h"})}
    service = {"platform": "remote", "machineList": [{**machine, name: "h"}]}
    said = faults({**PRESENT, "trainingService": service})
    assert said == [f"trainingService.machineList[0].{name}: there is no such field; did you mean {new}?"]


PARTS = {part for table in _v1_tables.tables() for old in table for part in old.split(".")}


@pytest.mark.parametrize("place", ["", "tuner", "assessor", "trainingService"])
def test_no_field_of_the_older_format_is_answered_with_a_wall_of_names(place: str) -> None:
    config = {**PRESENT, "assessor": {"name": "Medianstop"}}
    for name in sorted(PARTS | set(_v1_tables.list_without_meaning())):
        section = {**(config[place] if place else config), name: {"no": "such"}}
        said = faults({**config, place: section} if place else section)
        assert max(map(len, said)) < 300, name


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("searchSpace", SPACE, SPACE),
        ("maxTrialNumber", 3, 3),
        ("maxExperimentDuration", "1h", 3600),
        ("maxFailedTrials", 2, 2),
        ("experimentWorkingDirectory", "/tmp", "/tmp"),
    ],
)
def test_a_file_in_the_older_format_may_have_fields_of_the_present_one(name: str, value: Any, found: Any) -> None:
    assert from_dict({**OLDER, "searchSpace": SPACE, name: value}).checked().json()[name] == found


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"maxTrialNum": 1, "maxTrialNumber": 2}, "maxTrialNumber: is the newer name of maxTrialNum"),
        ({"trialCommand": "x"}, "trialCommand: is the newer name of trial.command"),
        ({"trainingService": {}}, "trainingService: goes without trainingServicePlatform"),
    ],
)
def test_both_names_of_one_field_are_a_fault(more: dict[str, Any], sentence: str) -> None:
    assert faults({**OLDER, **more}) == [f"{sentence}: keep one of the two"]


@pytest.mark.parametrize("tuner", [{"name": "TPE"}, {"className": "tuner.Mine", "codeDirectory": "."}])
def test_the_tuner_of_an_older_file_may_be_written_as_today(tuner: dict[str, Any]) -> None:
    written = from_dict({**OLDER, "tuner": tuner, "searchSpace": SPACE}).tuner
    assert (written.name, written.class_name) == (tuner.get("name"), tuner.get("className"))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("gpuIndices", "write it in trainingService, for the GPUs of trials"),
        ("port", "nnictl create --port 8080"),
        ("seed", "write it in classArgs of the tuner"),
        ("maximizationMetric", "classArgs: {optimize_mode: maximize}"),
    ],
)
def test_at_the_top_of_a_file_by_a_stranger(name: str, answer: str) -> None:
    [said] = faults({**PRESENT, name: 1})
    assert answer in said


def test_a_field_of_another_platform_is_answered_with_that() -> None:
    [said] = faults({**PRESENT, "trainingService": {"platform": "local", "host": "h"}})
    assert said.endswith("host: there is no such field; another platform has host (remote, openpai)")


@pytest.mark.parametrize(
    ("section", "name", "meant"),
    [
        (("trackers", 0), "type", "did you mean name?"),
        (("trackers", 0), "trackingUri", "did you mean uri?"),
        (("webhooks", 0), "endpoint", "did you mean url?"),
        (("webhooks", 0), "platform", "the fields here are name, uri, url, storageType"),
        (("sharedStorage",), "type", "did you mean storageType?"),
    ],
)
def test_a_tracker_is_not_taken_for_a_platform(section: tuple[str | int, ...], name: str, meant: str) -> None:
    assert _former_fields.answer(section, name, ["name", "uri", "url", "storageType"]) == f"; {meant}"


FLAT = {
    "searchSpace": SPACE,
    "trialCommand": "x",
    "trialConcurrency": 1,
    "tuner": None,
    "name": "TPE",
    "classArgs": {"optimize_mode": "maximize"},
    "trainingService": None,
    "platform": "local",
    "useActiveGpu": False,
}


def test_a_slip_of_the_pen_imports_no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_former_fields.lookup, "training_service_class", lambda name: pytest.fail(f"imports {name}"))
    names = ["trialCommand", "trialConcurrency", "maxTrialNumber"]
    assert _former_fields.answer((), "trialComand", names) == "; did you mean trialCommand?"
    assert _former_fields.answer(("tuner",), "clasArgs", ["name", "classArgs"]) == "; did you mean classArgs?"


def test_fields_that_have_lost_their_indentation_are_answered_with_their_section() -> None:
    end = "which is empty; indent it below that"
    assert faults(FLAT) == [
        f"name: is a field of tuner, {end}",
        f"classArgs: is a field of tuner, {end}",
        f"platform: is a field of trainingService, {end}",
        f"useActiveGpu: is a field of trainingService, {end}",
    ]


def test_only_what_follows_an_empty_section_is_taken_for_a_field_of_it() -> None:
    said = faults({**PRESENT, "assessor": None, "maxTrialNumber": 1, "name": "x", "colour": 2})
    assert [line.partition(";")[0] for line in said] == [
        f"{name}: there is no such field" for name in ("name", "colour")
    ]


@pytest.mark.parametrize("name", ["gpuIndices", "useActiveGpu", "host", "password", "passwd", "sshKeyPath"])
def test_a_field_of_a_machine_is_sent_to_the_list_of_machines(name: str) -> None:
    machines = [{"host": "h", "user": "me", "password": "x"}]
    [said] = faults({**PRESENT, "trainingService": {"platform": "remote", "machineList": machines, name: 1}})
    assert said.endswith("; write it in machineList, at each machine")


@pytest.mark.parametrize(
    ("machines", "cure"),
    [
        ({"host": "h", "user": "me", "password": "x"}, "; begin it with a dash"),
        ([{"host": "me@10.0.0.1:2222"}], "; write user: me, host: 10.0.0.1, port: 2222"),
        ([{"host": "10.0.0.1:22"}], "; write host: 10.0.0.1, port: 22"),
        ([{"host": "http://10.0.0.1:8080/x"}], "is neither a name nor an address; write 10.0.0.1"),
        ([{"host": "10.0.0.**"}], "; write its name or address, and list several machines one by one"),
        ([{"host": "one, two"}], "; write its name or address, and list several machines one by one"),
    ],
)
def test_one_machine_in_another_form_is_answered_with_ours(machines: Any, cure: str) -> None:
    [said] = faults({**PRESENT, "trainingService": {"platform": "remote", "machineList": machines}})
    assert said.endswith(cure)


@pytest.mark.parametrize("host", ["h", "10.0.0.1", "fe80::1", "2001:db8::1:22", "h.example.org"])
def test_addresses_of_machines_are_taken_as_they_are(host: str) -> None:
    config = {**PRESENT, "trainingService": {"platform": "remote", "machineList": [{"host": host, "user": "me"}]}}
    assert from_dict(config).checked().services[0].config.machine_list[0].host == host


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("n_trials", "did you mean maxTrialNumber?"),
        ("num_samples", "did you mean maxTrialNumber?"),
        ("n_jobs", "did you mean trialConcurrency?"),
        ("program", "did you mean trialCommand?"),
        ("study_name", "did you mean experimentName?"),
        ("timeout", "did you mean maxExperimentDuration?"),
        ("sampler", "write tuner: {name: TPE"),
        ("optimize", "write tuner: {name: TPE"),
        ("total", "did you mean maxTrialNumber?"),
        ("num_gpus", "did you mean trialGpuNumber?"),
    ],
)
def test_at_the_top_of_a_file_for_another_program(name: str, answer: str) -> None:
    [said] = faults({**PRESENT, name: 1})
    assert answer in said


@pytest.mark.parametrize("name", ["name", "builtinAdvisorName"])
def test_arguments_of_an_advisor_are_named_in_its_section(name: str) -> None:
    base = PRESENT if name == "name" else {**OLDER, "searchSpace": SPACE}
    config = {key: value for key, value in base.items() if key != "tuner"}
    checked = from_dict({**config, "advisor": {name: "Hyperband", "classArgs": {"STEPS": 1}}}).checked()
    with pytest.raises(ConfigError, match=r"^advisor.classArgs.STEPS: HyperbandTuner has no such argument"):
        checked.check_algorithms()


UNSET = [
    (
        "dlts",
        {"dltsConfig": {"dashboard": "http://d", "cluster": "c", "email": "a@b", "password": "p"}},
        "dltsConfig.team",
    ),
    (
        "kubeflow",
        {"kubeflowConfig": {"operator": "tf-operator", "storage": "nfs", "nfs": {"server": "s", "path": "/"}}},
        "trial.worker",
    ),
]


@pytest.mark.parametrize(("platform", "sections", "field"), UNSET)
def test_a_field_that_an_older_file_lacks_has_its_older_name(
    monkeypatch: pytest.MonkeyPatch, platform: str, sections: dict[str, Any], field: str
) -> None:
    for name in ("DLTS_VC_NAME", "DLWS_VC_NAME"):
        monkeypatch.delenv(name, raising=False)
    trial = {"command": "true", "codeDir": ".", "image": "i"}
    config = {**OLDER, "trainingServicePlatform": platform, "searchSpace": SPACE, "trial": trial, **sections}
    with pytest.raises(ConfigError) as error:
        from_dict(config).checked()
    assert str(error.value).startswith(f"{field}: ")


def test_a_platform_s_own_error_has_the_place_of_the_field_in_its_section() -> None:
    error = from_dict(PRESENT).checked().located(ConfigError("is odd", Place(field="useActiveGpu")))
    assert error.place.field == "trainingService.useActiveGpu"
    assert (
        from_dict(PRESENT).checked().located(ConfigError("is odd", Place(field="trialCommand"))).place.field
        == "trialCommand"
    )


def test_arguments_next_to_an_empty_classargs_of_an_older_file_are_named() -> None:
    [said] = faults(
        {**OLDER, "searchSpace": SPACE, "assessor": {"builtinAssessorName": "Curvefitting", "epoch_num": 20}}
    )
    assert said.endswith("it is an argument of the algorithm: indent it below classArgs")
