"""The experiment's config: from YAML and Python to checked values."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from fake_platforms import CloudConfig, Machine, Size
from nnilite.config import ConfigErrors, ExperimentConfig, ServiceConfig, from_dict, load
from nnilite.config._fields import camel
from nnilite.errors import ConfigError, SpaceError

pytestmark = pytest.mark.usefixtures("platforms")

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
MINIMAL = {
    "searchSpace": SPACE,
    "trialCommand": "python3 trial.py",
    "trialConcurrency": 2,
    "tuner": {"name": "TPE"},
    "trainingService": {"platform": "local"},
}


def checked(**changes):
    return from_dict({**MINIMAL, **changes}).checked()


def message(**changes):
    with pytest.raises(ConfigError) as caught:
        checked(**changes)
    return str(caught.value)


def cloud(**fields):
    return {"platform": "cloud", "machineList": [{"host": "h", "user": "u"}], **fields}


def test_a_minimal_config_gets_the_documented_defaults():
    config = checked()
    assert (config.max_trial_number, config.max_trial_retries, config.worker_silence) == (None, 1, 1200)
    assert (config.tuner_timeout, config.stop_on_same_error, config.retry_on) == (3600, 5, [])
    assert (config.code_limits.max_files, config.code_limits.max_size) == (2000, 300 * 1024**2)
    assert (config.log_level, config.checkpoint.keep, config.callback) == ("info", "all", "rest")
    assert config.trial_code_directory == Path.cwd().resolve()
    assert config.assessor is None


def test_units_are_plain_numbers_after_the_check():
    config = checked(maxExperimentDuration="0.5h", maxTrialDuration=90, maxOutputSize="1mb", tunerGpuIndices="0,1")
    assert (config.max_experiment_duration, config.max_trial_duration) == (1800, 90)
    assert (config.max_output_size, config.tuner_gpu_indices) == (1024**2, [0, 1])


@pytest.mark.parametrize("key", ["trialConcurrency", "trial_concurrency", "TRIALCONCURRENCY", "trial_Concurrency"])
def test_case_and_underscores_of_keys_do_not_matter(key):
    given = {name: value for name, value in MINIMAL.items() if name != "trialConcurrency"}
    assert from_dict({**given, key: 7}).checked().trial_concurrency == 7


def test_keys_of_plugins_are_matched_in_the_same_way():
    config = checked(trainingService={"PLATFORM": "Cloud", "machine_list": [{"HOST": "h", "user": "u"}]})
    assert config.services == [("cloud", "cloud", CloudConfig([Machine("h", "u")], MINIMAL["trialCommand"]))]


def test_a_plugin_gets_values_of_its_own_types(tmp_path):
    section = cloud(memory="4gb", size="LARGE", mode="cheap", mounts=[str(tmp_path)], labels={"a": "b"}, fraction=1)
    config = checked(trainingService=section).services[0].config
    assert (config.memory, config.size, config.mode, config.fraction) == (4096, Size.LARGE, "cheap", 1.0)
    assert (config.mounts, config.labels) == ((tmp_path.resolve(),), {"a": "b"})


def test_null_means_not_set():
    assert checked(maxTrialNumber=None, tunerTimeout=None).tuner_timeout == 3600


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    folder = tmp_path / 'it\'s $HOME "x"'
    (folder / "code").mkdir(parents=True)
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump({**MINIMAL, "trialCodeDirectory": "code"}), "utf-8")
    monkeypatch.chdir(tmp_path)
    assert load(file).checked().trial_code_directory == (folder / "code").resolve()
    assert load(file.relative_to(tmp_path)).checked().trial_code_directory == (folder / "code").resolve()


def test_a_search_space_file_is_json_or_yaml(tmp_path):
    (tmp_path / "tabs.json").write_text('{\n\t"x": {"_type": "loguniform", "_value": [1e-7, 1]}}', "utf-8")
    (tmp_path / "comma.json").write_text('{"x": {"_type": "loguniform", "_value": [1e-7, 1,]}}', "utf-8")
    (tmp_path / "s.yaml").write_text("x:\n  _type: loguniform\n  _value: [1e-7, 1]\n", "utf-8")
    given = {name: value for name, value in MINIMAL.items() if name != "searchSpace"}
    found = [
        from_dict({**given, "searchSpaceFile": name}, tmp_path).checked().search_space
        for name in ("tabs.json", "comma.json", "s.yaml")
    ]
    assert found == [{"x": {"_type": "loguniform", "_value": [1e-7, 1]}}] * 3


def test_top_level_shortcuts_count_for_services_unless_they_say_otherwise():
    services = [{"platform": "local", "useActiveGpu": True}, cloud(trialCommand="other", trialGpuNumber=0)]
    config = checked(trainingService=services, trialGpuNumber=2, nniManagerIp="1.2.3.4")
    assert config.services[0].config.trial_gpu_number == 2
    assert config.services[1].config.trial_command == "other"
    local, remote = config.settings("local"), config.settings("cloud")
    assert (local.trial_command, local.trial_gpu_number, local.nni_manager_ip) == ("python3 trial.py", 2, "1.2.3.4")
    assert (remote.trial_command, remote.trial_gpu_number) == ("other", 0)


def test_shortcuts_may_be_set_in_the_only_service():
    given = {name: value for name, value in MINIMAL.items() if name != "trialCommand"}
    section = {"platform": "local", "trialCommand": "run", "trialGpuNumber": 0}
    config = from_dict({**given, "trainingService": section}).checked()
    assert (config.trial_command, config.trial_gpu_number) == ("run", 0)


def test_a_plugin_may_do_without_a_trial_command():
    given = {name: value for name, value in MINIMAL.items() if name != "trialCommand"}
    assert from_dict({**given, "trainingService": cloud()}).checked().trial_command == ""
    with pytest.raises(ConfigError, match="trialCommand is not set"):
        from_dict(given).checked()


def test_several_services_of_one_platform_have_different_names():
    config = checked(trainingService=[cloud(), {"platform": "local"}, cloud()])
    assert [service.name for service in config.services] == ["cloud", "local", "cloud-2"]


def test_a_hybrid_experiment_needs_no_manager_ip():
    assert checked(trainingService=[{"platform": "local"}, cloud()]).nni_manager_ip is None


@pytest.mark.parametrize("level", ["fatal", "critical", "FATAL"])
def test_log_level_fatal_is_usable(level):
    assert checked(logLevel=level).log_level == "fatal"


def test_debug_sets_the_default_of_log_level():
    assert checked(debug=True).log_level == "debug"
    assert checked(debug=True, logLevel="error").log_level == "error"


def test_advisor_is_an_older_name_of_tuner():
    given = {name: value for name, value in MINIMAL.items() if name != "tuner"}
    config = from_dict({**given, "advisor": {"name": "Random"}}).checked()
    assert (config.tuner.name, config.advisor) == ("Random", None)
    assert "only one of the two" in message(advisor={"name": "Random"})


def test_a_tuner_of_ones_own_may_have_any_search_space(tmp_path):
    (tmp_path / "mine.py").write_text("class Tuner: pass\n")
    tuner = {"className": "mine.Tuner", "codeDirectory": str(tmp_path)}
    config = checked(tuner=tuner, searchSpace={"anything": [1, 2]})
    assert (config.tuner.class_name, config.tuner.code_directory) == ("mine.Tuner", tmp_path.resolve())


def test_the_folder_of_ones_own_tuner_defaults_to_that_of_the_config(tmp_path):
    (tmp_path / "mine.py").write_text("class Tuner: pass\n")
    config = from_dict({**MINIMAL, "tuner": {"className": "mine.Tuner"}}, tmp_path).checked()
    assert config.tuner.code_directory == tmp_path


def test_a_checked_config_is_the_same_when_checked_again_or_read_from_its_json():
    config = checked(
        maxOutputSize="1mb",
        maxTrialDuration="1h",
        codeLimits={"maxSize": "1gb"},
        checkpoint={"keep": "best", "maxSize": "2gb"},
        trainingService=[cloud(memory="4gb", token="t", size="large", extra={"a": [1]}), {"platform": "local"}],
        assessor={"name": "Medianstop", "classArgs": {"start_step": 3}},
    )
    assert config.checked() == config
    assert from_dict(json.loads(json.dumps(config.json(secrets=True)))).checked() == config
    assert copy.deepcopy(config).json() == pickle.loads(pickle.dumps(config)).json() == config.json()


def test_json_is_camel_case_without_what_is_not_set():
    found = checked().json()
    assert found["trainingService"] == {"platform": "local", "maxTrialNumberPerGpu": 1}
    assert found["trialConcurrency"] == 2
    assert "maxTrialNumber" not in found
    assert found["experimentWorkingDirectory"].startswith("/")


def test_python_fills_in_a_config_as_in_nni():
    config = ExperimentConfig("local")
    config.search_space = SPACE
    config.trial_command = "run"
    config.trial_concurrency = 3
    config.max_experiment_duration = "1h"
    config.tuner.name = "TPE"
    config.tuner.class_args["optimize_mode"] = "maximize"
    config.training_service.use_active_gpu = False
    found = config.checked()
    assert (found.max_experiment_duration, found.services[0].config.use_active_gpu) == (3600, False)
    assert found.tuner.class_args == {"optimize_mode": "maximize"}


def test_a_checked_config_has_numbers_and_paths_where_people_may_write_text():
    hints = get_type_hints(ExperimentConfig, include_extras=True)
    given = {name for name, hint in hints.items() if "int | str" in str(hint) or "Path | str" in str(hint)}
    assert len(given) == 10
    found = checked(**{camel(name): "2h" for name in given if "duration" in str(hints[name])}, maxOutputSize="1gb")
    assert {type(getattr(found, name)) for name in given} == {int, type(Path())}


def test_a_checked_config_does_not_change():
    found = checked()
    with pytest.raises(AttributeError, match="trial_concurrency cannot be set in a checked config"):
        found.trial_concurrency = 5
    assert found.checked() is found


def test_python_may_give_several_platforms_objects_and_keyword_arguments():
    config = ExperimentConfig(["local", "cloud"], searchSpace=SPACE, trial_command="run", trial_concurrency=1)
    config.tuner = {"name": "TPE"}
    config.training_service[1].machine_list = [Machine("h", "u", port=2222)]
    assert config.checked().services[1].config.machine_list[0].port == 2222


def test_a_mapping_that_python_sets_is_an_object_whose_fields_can_be_set() -> None:
    config = ExperimentConfig("local", searchSpace=SPACE, trial_command="run", trial_concurrency=1)
    config.tuner = {"name": "TPE"}
    config.tuner.class_args["seed"] = 3
    config.training_service = {"platform": "local"}
    config.training_service.use_active_gpu = True
    found = config.checked()
    assert (found.tuner.name, found.tuner.class_args) == ("TPE", {"seed": 3})
    assert found.services[0].config.use_active_gpu


def test_configs_made_from_python_share_nothing():
    ExperimentConfig("local").tuner.class_args["x"] = 1
    assert ExperimentConfig("local").tuner.class_args == {}


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda c: setattr(c, "trial_comand", 1), "did you mean trial_command"),
        (lambda c: setattr(c, "trialCommand", 1), "did you mean trial_command"),
        (lambda c: setattr(c.tuner, "nam", 1), "did you mean name"),
        (lambda c: setattr(c.training_service, "use_activ_gpu", 1), "did you mean use_active_gpu"),
        (lambda c: setattr(c.code_limits, "max_file", 1), "did you mean max_files"),
        (lambda _: ExperimentConfig("local", trialComand="x"), "did you mean trial_command"),
        (lambda _: ServiceConfig("local", zzz=1), "has no field 'zzz'"),
        (lambda c: c.training_service.zzz, "has no field 'zzz'"),
    ],
)
def test_an_unknown_attribute_is_refused(change, hint):
    with pytest.raises(AttributeError, match=hint):
        change(ExperimentConfig("local"))


STORAGE = {"storageType": "NFS", "localMountPoint": "/mnt/here", "remoteMountPoint": "/mnt/there"}


def test_the_kind_of_a_shared_storage_may_be_in_any_case():
    assert checked(sharedStorage={**STORAGE, "storageType": "nfs"}).shared_storage.storage_type == "NFS"


def test_shared_storage_in_nni_s_own_fields_says_that_nobody_mounts_it():
    storage = {**STORAGE, "nfsServer": "files", "exportedDirectory": "/export"}
    assert checked(trialCommand="true", sharedStorage=storage).warnings == []
    said = checked(sharedStorage={**storage, "localMounted": "nnimount"}).warnings
    assert "sudo mount -t nfs files:/export /mnt/here" in said[0]


@pytest.mark.parametrize(
    ("storage", "says"),
    [
        ({"storageType": "NFS", "localMountPoint": "/mnt"}, "remoteMountPoint is not set; storageType NFS needs it"),
        ({**STORAGE, "remoteMountPoint": "there"}, "must be an absolute path"),
        ({"storageType": "S3"}, "bucket is not set"),
        ({"storageType": "S3", "bucket": "b", "accessKey": "a"}, "accessKey and secretKey go together"),
        ({"storageType": "S3", "bucket": "b", "endpoint": "minio:9000"}, "must be a URL"),
        ({"storageType": "S3", "bucket": "b", "contents": ["logs"]}, "contents"),
        ({"storageType": "AzureBlob", "containerName": "c"}, "storageAccountName is not set"),
    ],
)
def test_a_shared_storage_that_cannot_work_is_refused(storage, says):
    with pytest.raises(ConfigError, match=says) as error:
        checked(sharedStorage=storage)
    assert "sharedStorage" in str(error.value)


def test_a_rule_for_checkpoints_that_no_manager_reaches_is_refused():
    away = {**STORAGE, "localMounted": "nomount"}
    for rule, field in (({"keep": "last"}, "keep"), ({"keep": "best"}, "keep"), ({"maxSize": "1gb"}, "maxSize")):
        with pytest.raises(ConfigError, match="requires that this machine mounts the storage") as error:
            checked(sharedStorage=away, checkpoint=rule)
        assert f"checkpoint.{field}" in str(error.value)
        assert (
            checked(trialCommand="true", sharedStorage={**away, "contents": ["outputs"]}, checkpoint=rule).warnings
            == []
        )
        assert checked(trialCommand="true", sharedStorage=STORAGE, checkpoint=rule).warnings == []
    assert checked(trialCommand="true", sharedStorage=away, checkpoint={"keep": "none"}).warnings == []


def test_the_default_folder_is_that_of_the_moment(tmp_path, monkeypatch):
    for name in ("first", "second"):
        monkeypatch.setenv("NNILITE_HOME", str(tmp_path / name))
        assert checked().experiment_working_directory == tmp_path / name


def test_an_unknown_platform_is_refused_at_once():
    with pytest.raises(ConfigError, match="Installed: cloud, local"):
        ExperimentConfig("locl")


def test_services_of_an_unchecked_config_are_refused():
    with pytest.raises(ConfigError, match=r"call checked\(\)"):
        from_dict(MINIMAL).services  # noqa: B018


def test_a_service_shows_the_defaults_of_its_plugin():
    assert ServiceConfig("local").max_trial_number_per_gpu == 1


def test_a_saved_config_can_be_loaded_and_read_only_by_its_owner(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    config = from_dict({**MINIMAL, "trainingService": cloud(token="${env:TOKEN}"), "maxTrialDuration": "5m"})
    (tmp_path / "c.yaml").touch(0o644)
    config.save(tmp_path / "c.yaml")
    assert (tmp_path / "c.yaml").stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in (tmp_path / "c.yaml").read_text("utf-8")
    assert ExperimentConfig.load(tmp_path / "c.yaml").checked() == config.checked()


@pytest.mark.process
def test_importing_the_config_imports_nothing_heavy():
    code = "import nnilite.config, sys; print([m for m in ('optuna', 'numpy', 'tornado') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_several_faults_are_one_error_with_all_of_them():
    with pytest.raises(ConfigErrors) as caught:
        checked(trialConcurrency=0, maxTrialNumber="3", searchSpace={})
    assert len(caught.value.errors) == 3
    assert isinstance(caught.value.errors[-1], SpaceError)
    assert len(str(caught.value).splitlines()) == 3


def test_an_experiment_can_be_looked_at_although_its_code_is_gone(tmp_path):
    config = from_dict({**MINIMAL, "trialCodeDirectory": "gone"}, tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        config.checked()
    assert config.checked(paths=False).trial_code_directory == tmp_path.resolve() / "gone"


def test_the_arguments_of_an_installed_tuner_are_checked_on_request(tmp_path, monkeypatch):
    class Picky:
        def __init__(self, seed=None):
            self.seed = seed

    monkeypatch.setattr("nnilite._plugins.lookup.tuner_class", lambda _: Picky)
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({**MINIMAL, "tuner": {"name": "TPE", "classArgs": {"sed": 1}}}), "utf-8")
    with pytest.raises(ConfigError, match=r"c.yaml:13: tuner.classArgs.sed: .*did you mean seed\?"):
        load(file).checked().check_algorithms()
