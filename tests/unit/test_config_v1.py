"""NNI's older files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite._running import launch
from nnilite.config import from_dict, load
from nnilite.config._source import ConfigSource
from nnilite.config._v1 import convert
from nnilite.errors import ConfigError, NniliteError

pytestmark = pytest.mark.usefixtures("platforms")

LOCAL = """\
authorName: me
experimentName: digits
trialConcurrency: 2
maxExecDuration: 1h
maxTrialNum: 10
maxTrialDuration: 5m
trainingServicePlatform: local
searchSpacePath: space.json
logDir: logs
useAnnotation: false
tuner:
  builtinTunerName: TPE
  classArgs:
    optimize_mode: maximize
  gpuIndices: "0"
assessor:
  builtinAssessorName: Medianstop
trial:
  command: python3 trial.py
  codeDir: .
  gpuNum: 1
localConfig:
  gpuIndices: 0,1
  maxTrialNumPerGpu: 2
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}', "utf-8")
    return tmp_path


def file(folder, text):
    path = folder / "v1.yml"
    path.write_text(text, "utf-8")
    return path


def converted(text):
    return convert(yaml.safe_load(text), ConfigSource()).config


def test_an_older_local_file_is_carried_over_completely(folder):
    config = load(file(folder, LOCAL)).checked()
    assert (config.max_experiment_duration, config.max_trial_number, config.max_trial_duration) == (3600, 10, 300)
    assert (config.tuner.name, config.assessor.name) == ("TPE", "Medianstop")
    assert config.tuner.class_args == {"optimize_mode": "maximize"}
    assert (config.tuner_gpu_indices, config.trial_gpu_number) == ([0], 1)
    assert (config.trial_code_directory, config.experiment_working_directory) == (folder, folder / "logs")
    local = config.services[0].config
    assert (local.gpu_indices, local.max_trial_number_per_gpu, local.use_active_gpu) == ([0, 1], 2, False)


def test_what_has_no_meaning_any_more_is_left_out_with_a_warning(folder):
    config = load(file(folder, LOCAL + "versionCheck: true\n"))
    assert config.warnings == ["versionCheck no longer has an effect and was left out"]


def test_the_authors_name_and_the_description_are_no_reason_for_a_warning(folder):
    assert load(file(folder, LOCAL + "description: the first of three\n")).warnings == []


def test_a_fault_is_told_with_the_older_field_and_its_line(folder):
    with pytest.raises(ConfigError, match=r"v1.yml:20: trial.codeDir: the folder '.*gone' does not exist"):
        load(file(folder, LOCAL.replace("codeDir: .", "codeDir: gone"))).checked()


def test_a_misspelt_older_field_is_found(folder):
    with pytest.raises(ConfigError, match=r"v1.yml:5: maxTrialNumm: .*did you mean maxTrialNum\?"):
        load(file(folder, LOCAL.replace("maxTrialNum:", "maxTrialNumm:")))
    with pytest.raises(ConfigError, match=r"trial.comand: .*did you mean command\?"):
        load(file(folder, LOCAL.replace("  command:", "  comand:")))


def test_the_passphrase_of_a_machine_survives():
    text = """
trainingServicePlatform: remote
machineList:
  - {ip: a, username: u, passwd: p, port: 23}
  - {ip: b, username: u, sshKeyPath: k, passphrase: q, maxTrialNumPerGpu: 2, useActiveGpu: true, gpuIndices: "1"}
remoteConfig: {reuse: true}
"""
    assert converted(text)["trainingService"] == {
        "platform": "remote",
        "reuseMode": True,
        "machineList": [
            {"host": "a", "port": 23, "user": "u", "password": "p"},
            {
                "host": "b",
                "user": "u",
                "sshKeyFile": "k",
                "sshPassphrase": "q",
                "gpuIndices": "1",
                "maxTrialNumberPerGpu": 2,
                "useActiveGpu": True,
            },
        ],
    }


def test_one_s_own_tuner_is_named_by_module_and_class():
    text = """
trainingServicePlatform: local
tuner: {codeDir: t, classFileName: mine.py, className: Tuner, classArgs: {a: 1}, includeIntermediateResults: true}
"""
    assert converted(text)["tuner"] == {"className": "mine.Tuner", "codeDirectory": "t", "classArgs": {"a": 1}}


def test_openpai_takes_its_fields_from_two_places():
    text = """
trainingServicePlatform: pai
trial: {command: c, codeDir: d, gpuNum: 1, cpuNum: 2, memoryMB: 512, image: i, virtualCluster: v,
  nniManagerNFSMountPath: /m, containerNFSMountPath: /c, paiStorageConfigName: s}
paiConfig: {userName: u, token: t, host: h, reuse: true}
"""
    assert converted(text)["trainingService"] == {
        "platform": "openpai",
        "localStorageMountPoint": "/m",
        "containerStorageMountPoint": "/c",
        "trialCpuNumber": 2,
        "trialMemorySize": 512,
        "dockerImage": "i",
        "virtualCluster": "v",
        "storageConfigName": "s",
        "username": "u",
        "token": "t",
        "host": "h",
        "reuseMode": True,
    }


def test_kubeflow_roles_and_storage_are_carried_over():
    text = """
trainingServicePlatform: kubeflow
trial:
  codeDir: d
  worker: {replicas: 2, command: w, gpuNum: 1, cpuNum: 1, memoryMB: 10, image: i, privateRegistryAuthPath: x}
kubeflowConfig:
  operator: tf-operator
  apiVersion: v1
  storage: azureStorage
  keyVault: {vaultName: kv, name: kk}
  azureStorage: {accountName: a, azureShare: s}
"""
    service = converted(text)["trainingService"]
    assert service["storage"] == {
        "storageType": "azureStorage",
        "keyVaultName": "kv",
        "keyVaultKey": "kk",
        "azureAccount": "a",
        "azureShare": "s",
    }
    assert service["worker"]["gpuNumber"] == 1
    assert "codeDirectory" not in service["worker"]
    assert (service["operator"], service["apiVersion"]) == ("tf-operator", "v1")


@pytest.mark.parametrize(
    ("claim", "storage"),
    [({}, None), ({"claim": "work"}, {"storageType": "pvc", "path": "/work", "claim": "work"})],
)
def test_a_template_has_volumes_of_its_own_where_a_claim_has_no_name(claim: dict[str, str], storage: object) -> None:
    section = {"storage": "pvc", "configPath": "framework.yaml", "pvc": {"path": "/work", **claim}}
    config = {"trainingServicePlatform": "frameworkcontroller", "frameworkcontrollerConfig": section}
    found = convert(config, ConfigSource())
    assert found.config["trainingService"].get("storage") == storage
    assert [one for one in found.warnings if "pvc" in one] == (
        []
        if storage
        else [
            "frameworkcontrollerConfig.pvc has no effect and was left out; the volumes of configPath count; to have a "
            "claim mounted by nnilite, write its name as pvc.claim"
        ]
    )


@pytest.mark.parametrize(
    ("given", "kind"),
    [("nfs: {server: s, path: /p}", "nfs"), ("azureStorage: {accountName: a, azureShare: s}", "azureStorage")],
)
def test_the_kind_of_storage_need_not_be_said(given, kind):
    text = f"trainingServicePlatform: kubeflow\ntrial: {{codeDir: d}}\nkubeflowConfig: {{operator: x, {given}}}"
    assert converted(text)["trainingService"]["storage"]["storageType"] == kind


def test_a_registrys_password_file_names_what_takes_its_place():
    text = """
trainingServicePlatform: kubeflow
trial: {codeDir: d, worker: {replicas: 1, command: w, image: i, privateRegistryAuthPath: x}}
kubeflowConfig: {operator: tf-operator}
"""
    [warning] = convert(yaml.safe_load(text), ConfigSource()).warnings
    assert warning.endswith("was left out; name a Secret of the cluster by imagePullSecrets instead")


def test_frameworkcontroller_roles_are_carried_over():
    text = """
trainingServicePlatform: frameworkcontroller
trial:
  codeDir: d
  taskRoles:
    - {name: w, taskNum: 1, command: run, gpuNum: 0, cpuNum: 1, memoryMB: 10, image: i,
       frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceededTaskCount: 2}}
frameworkcontrollerConfig: {storage: nfs, nfs: {server: s, path: /p}, serviceAccountName: a}
"""
    config = converted(text)
    role = config["trainingService"]["taskRoles"][0]
    assert "trialCommand" not in config  # which would be without effect, as each role has its command
    assert role["command"] == "run"
    assert role["frameworkAttemptCompletionPolicy"] == {"minFailedTaskCount": 1, "minSucceedTaskCount": 2}
    assert (role["taskNumber"], role["memorySize"]) == (1, 10)
    assert config["trainingService"]["storage"] == {"storageType": "nfs", "server": "s", "path": "/p"}


def test_a_hybrid_file_becomes_a_list():
    text = """
trainingServicePlatform: hybrid
hybridConfig: {trainingServicePlatforms: [local, aml]}
trial: {command: c, codeDir: ., image: i}
amlConfig: {subscriptionId: s, resourceGroup: r, workspaceName: w, computeTarget: t, useActiveGpu: true}
"""
    services = converted(text)["trainingService"]
    assert [service["platform"] for service in services] == ["local", "aml"]
    assert services[1]["dockerImage"] == "i"


@pytest.mark.parametrize(
    ("platform", "more", "field", "value"),
    [
        ("dlts", "dltsConfig: {dashboard: d, email: e, password: p}\ntrial: {image: i}", "image", "i"),
        ("dlts", "dltsConfig: {dashboard: d, cluster: c, team: t}\ntrial: {image: i}", "cluster", "c"),
        ("adl", "trial: {image: i, adaptive: true, checkpoint: {storageSize: 1Gi}, memorySize: 1Gi}", "adaptive", True),
        ("adl", "trial: {image: i}", "dockerImage", "i"),
    ],
)
def test_platforms_that_nni_dropped_are_carried_over(platform, more, field, value):
    service = converted(f"trainingServicePlatform: {platform}\n{more}")["trainingService"]
    assert (service["platform"], service[field]) == (platform, value)


def test_a_tuner_of_several_threads_is_told_that_it_has_one():
    [warning] = convert({"trainingServicePlatform": "local", "multiThread": True}, ConfigSource()).warnings
    assert warning.endswith("was left out; one thread makes all calls of a tuner, one after the other")
    without = {"trainingServicePlatform": "local", "multiThread": False, "multiPhase": False}
    assert convert(without, ConfigSource()).warnings == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"base": {"optimize_mode": "maximize"}}, "base: there is no such field in NNI's older format"),
        ({"multiPhase": True}, "multiPhase: is not supported; a trial gets its parameters once"),
        ({"trainingServicePlatform": "locl"}, "did you mean local"),
        ({"trainingServicePlatform": "hybrid"}, "needs trainingServicePlatforms"),
        ({"tuner": {"className": "A", "classFileName": "a"}}, "must name the Python file"),
    ],
)
def test_what_cannot_be_carried_over_gets_a_sentence(given, reason):
    with pytest.raises(ConfigError, match=reason):
        from_dict({"trainingServicePlatform": "local", **given})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("paiYarn", "is OpenPAI before 1.0"),
        ("dlc", "is supported only in configs of version 2"),
        ("locl", "there is no 'locl'; did you mean local"),
    ],
)
def test_what_cannot_be_carried_over_in_a_list_of_platforms_gets_the_same_sentence(name: str, reason: str) -> None:
    old = {"trainingServicePlatform": "hybrid", "hybridConfig": {"trainingServicePlatforms": ["local", name]}}
    with pytest.raises(ConfigError, match=rf"hybridConfig.trainingServicePlatforms\[1\]: {reason}"):
        from_dict(old)


def test_openpai_keeps_its_password():
    text = "trainingServicePlatform: pai\npaiConfig: {userName: u, passWord: p, host: h}\ntrial: {command: c}\n"
    assert converted(text)["trainingService"]["password"] == "p"


@pytest.mark.parametrize(("platform", "words"), [("paiYarn", "on YARN"), ("paiK8S", "called `pai` here")])
def test_what_became_of_openpais_older_names_is_told(platform, words):
    with pytest.raises(ConfigError, match=f"trainingServicePlatform: is .*{words}"):
        converted(f"trainingServicePlatform: {platform}\npaiYarnConfig: {{userName: u, host: h}}\n")


def test_a_file_is_converted_for_people_with_what_was_changed(folder, capsys):
    file = folder / "old.yml"
    file.write_text(LOCAL)
    assert run(["config", "convert", str(file), "--from", "nni"]) == 0
    text = capsys.readouterr().out
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert "# maxTrialNumber was maxTrialNum" in comments
    assert "# trialCommand was trial.command" in comments
    assert not any("authorName" in line for line in comments)
    assert not any(line.startswith("# trialConcurrency") for line in comments)
    converted = from_dict(yaml.safe_load(text), folder).checked()
    assert converted.json() == load(file).checked().json()


def test_a_file_in_the_present_format_needs_no_conversion(tmp_path, capsys):
    (tmp_path / "new.yml").write_text("trainingService: {platform: local}")
    assert run(["config", "convert", str(tmp_path / "new.yml"), "--from", "nni"]) == 1
    assert "is in the present format already" in capsys.readouterr().err


OWN = {"codeDir": ".", "classFileName": "own.py", "className": "Own"}
PLAIN = {
    "trainingServicePlatform": "local",
    "trialConcurrency": 1,
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trial": {"command": "true", "codeDir": "."},
    "tuner": {"builtinTunerName": "Random"},
}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"searchSpace": None}, "there is no search space; give searchSpace or searchSpacePath"),
        ({"trial": {"codeDir": "."}}, "trial.command is not set"),
    ],
)
def test_sentences_name_fields_as_the_older_format_does(more: dict[str, Any], sentence: str) -> None:
    config = {name: value for name, value in {**PLAIN, **more}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        from_dict(config).checked(paths=False)
    assert sentence in str(caught.value)


def test_so_do_sentences_of_a_platform_that_refuses_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows "set sshKeyFile" in such a file would be told that there is no such field."""
    config = from_dict({**PLAIN, "logDir": str(tmp_path)}, tmp_path).checked()
    said: list[NniliteError] = [NniliteError("only publickey: set sshKeyFile"), ConfigError("trialGpuNumber is 1")]

    def refuse(*_: object) -> None:
        raise said.pop(0)

    monkeypatch.setattr(launch, "_start", refuse)
    with pytest.raises(NniliteError, match="only publickey: set sshKeyPath"):
        launch.create(config)
    with pytest.raises(ConfigError, match=r"trial\.gpuNum is 1"):
        launch.create(config)
    assert config.spell("sshKeyFile") == "sshKeyPath"


def test_a_tuner_of_ones_own_needs_no_search_space() -> None:
    config = {name: value for name, value in {**PLAIN, "tuner": OWN}.items() if name != "searchSpace"}
    found = from_dict(config).checked(paths=False)
    assert (found.search_space, found.warnings) == ({}, ["there is no search space, so your tuner gets an empty one"])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"useActiveGpu": True}, "useActiveGpu has no effect there and was left out; write it as localConfig.useAct"),
        ({"gpuIndices": 1}, "gpuIndices has no effect there and was left out; write it as localConfig.gpuIndices"),
        ({"trial": {**PLAIN["trial"], "maxTrialNumPerGpu": 2}}, "write it as localConfig.maxTrialNumPerGpu"),
        ({"trial": {**PLAIN["trial"], "cpuNum": 2}}, "trial.cpuNum has no effect on this platform and was left out"),
        ({"paiConfig": {"host": "h"}}, "paiConfig.host has no effect on this platform and was left out"),
        (
            {"tuner": {**PLAIN["tuner"], "gpuNum": 0}},
            "tuner.gpuNum no longer has an effect and was left out; gpuIndices names the GPUs of a tuner",
        ),
    ],
)
def test_a_field_in_the_wrong_place_is_answered_with_the_right_one(more: dict[str, Any], sentence: str) -> None:
    [warning] = from_dict({**PLAIN, **more}).checked(paths=False).warnings
    assert sentence in warning


@pytest.mark.parametrize(
    ("name", "empty"),
    [("localConfig", None), ("localConfig", {}), ("machineList", None), ("paiConfig", None), ("hybridConfig", None)],
)
def test_a_section_that_was_left_empty_says_nothing(name: str, empty: object) -> None:
    assert from_dict({**PLAIN, name: empty}).checked(paths=False).warnings == []


def test_a_field_that_was_left_empty_and_does_not_exist_is_misspelt() -> None:
    with pytest.raises(ConfigError, match=r"maxTrialNumm: .*did you mean maxTrialNum\?"):
        from_dict({**PLAIN, "maxTrialNumm": None}).checked(paths=False)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"localConfig": {"maxTrialPerGpu": 1}}, r"localConfig.maxTrialPerGpu: .*did you mean maxTrialNumPerGpu\?"),
        ({"localConfig": "maxTrialNumPerGpu:20 useActiveGpu:True"}, r"localConfig: .*write a space after each colon"),
        ({"trial": [PLAIN["trial"]]}, r"trial: must have its fields below it, .*; remove the dash in front of them"),
        ({"tuner": "TPE"}, r"tuner: .*; did you mean \{builtinTunerName: TPE\}\?"),
        ({"machineList": {"ip": "h"}}, r"machineList: must be a list of machines, .*begin each machine with a dash"),
        (
            {"trial": {**PLAIN["trial"], "assessor": "Medianstop"}},
            r"trial.assessor: .*of its own: do not indent",
        ),
    ],
)
def test_what_is_read_nowhere_is_a_fault_that_says_why(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        from_dict({**PLAIN, **more}).checked(paths=False)


def test_hybrid_is_known_by_the_name_that_nni_gave_it_first() -> None:
    older = {"heterogeneousConfig": {"trainingServicePlatforms": ["local", "pai"]}}
    new = convert({"trainingServicePlatform": "heterogeneous", **older}, ConfigSource())
    assert [service["platform"] for service in new.config["trainingService"]] == ["local", "openpai"]
    assert new.warnings == []


def test_options_without_effect_are_named_as_the_older_format_does() -> None:
    checked = from_dict({**PLAIN, "tuner": {**PLAIN["tuner"], "gpuIndices": "0"}}).checked(paths=False)
    [one] = checked.without_effect
    assert one.option == "tuner.gpuIndices"
    assert "write trial.gpuNum" in one.why
    assert one.sentence in checked.warnings


@pytest.mark.parametrize("file", ["tuners/mine.py", "./tuners/mine.py"])
def test_the_file_of_a_class_may_be_in_a_folder(file: str) -> None:
    tuner = {"codeDir": ".", "classFileName": file, "className": "Mine"}
    new = convert({"trainingServicePlatform": "local", "tuner": tuner}, ConfigSource()).config
    assert new["tuner"]["className"] == "tuners.mine.Mine"


def test_the_field_that_an_error_asks_for_can_be_added_where_it_says() -> None:
    storage = {"storage": "azureStorage", "azureStorage": {"accountName": "a", "azureShare": "s", "azureKey": "k"}}
    old = {"trainingServicePlatform": "kubeflow", "kubeflowConfig": {"operator": "tf-operator", **storage}}
    new = convert({**old, "keyVault": {"vaultName": "v", "name": "n"}}, ConfigSource())
    assert new.config["trainingService"]["storage"]["azureKey"] == "k"
    assert new.origins["trainingService", "storage"] == ("kubeflowConfig", "azureStorage")
    assert ConfigSource(origins=new.origins).has_section_of(("trainingService", "storage", "other"))
    assert not ConfigSource(origins=new.origins).has_section_of(("trainingService", "other"))
