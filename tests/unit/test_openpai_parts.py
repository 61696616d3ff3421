"""OpenPAI, without a cluster: fields, classic job files, and what answers say."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from nnilite.config import ServiceConfig, from_dict
from nnilite.errors import ConfigError
from nnilite.platform_http import HttpAnswer, Outage, PlatformHttp
from nnilite.records import Exited
from nnilite.service import JobState
from nnilite_openpai import OpenPaiConfig, _api, convert
from nnilite_openpai._api import Pai
from nnilite_openpai._config import PaiRoleConfig
from nnilite_openpai._status import judge_end, retried, seen, waiting
from platforms.pai.job import PaiJob

GIVEN = {"host": "pai.example.com", "username": "mei", "token": "t"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"host": "ftp://x"}, "host: is not the address of a cluster"),
        ({"username": "a b"}, "username: 'a b' is not a valid user name"),
        ({"password": "p"}, "token: and password are two ways to log in: keep one"),
        ({"token": None}, "token: is needed, or password"),
        ({"container_storage_mount_point": "/x"}, "containerStorageMountPoint: needs storageConfigName too"),
        ({"storage_config_name": "s", "container_storage_mount_point": "x"}, "must be an absolute path"),
        ({"code_from": "storage"}, "codeFrom: storage needs storageConfigName, and localStorageMountPoint"),
        ({"task_roles": [PaiRoleConfig(name="a")] * 2}, "taskRoles: must not have the same name twice"),
        ({"reporting_role": "b", "task_roles": [PaiRoleConfig(name="a")]}, "no task role 'b'; there are a"),
        ({"openpai_config": {}, "task_roles": [PaiRoleConfig(name="a")]}, "openpaiConfig: set only one of"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        OpenPaiConfig(**{**GIVEN, **fields})


@pytest.mark.parametrize("name", ["Worker", "my_worker", "1st", "", "w" * 32])
def test_names_that_the_platform_writes_in_two_ways_are_refused(name):
    with pytest.raises(ConfigError, match=r"name: .*small letters and digits"):
        PaiRoleConfig(name=name)


@pytest.mark.parametrize("ports", [{"a b": 1}, {"a": 0}, {"a": True}])
def test_ports_need_labels_and_numbers(ports):
    with pytest.raises(ConfigError, match="ports: must have labels"):
        PaiRoleConfig(name="a", ports=ports)


def test_https_is_the_way_to_a_host_that_names_none():
    assert OpenPaiConfig(**GIVEN).host == "https://pai.example.com"


# ------------------------------------------------------------ classic jobs


def classic(**changes):
    role = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 10, "command": "python a.py"}
    return {"jobName": "j", "image": "i", "taskRoles": [role], **changes}


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"protocolVersion": 2}, "protocolVersion", "set openpaiConfigFile to the file"),
        (classic(imagee=1), "imagee", "is not a field"),
        (classic(image=None), "image", "is missing"),
        (classic(taskRoles={}), "taskRoles", "must be a list"),
        (classic(taskRoles=[1]), "taskRoles.0", "must be a mapping"),
        (classic(taskRoles=[{"name": "a", "cpus": 1}]), "taskRoles.0.cpus", "is not a field"),
        (classic(taskRoles=[{"name": "_", "command": "x"}]), "taskRoles.0.name", "must begin with a letter"),
        (classic(taskRoles=[{"name": "a"}]), "taskRoles.0.command", "is missing"),
        (classic(taskRoles=[{"name": "a", "command": "x", "taskNumber": 0}]), "taskRoles.0.taskNumber", "at least 1"),
        (classic(taskRoles=[{"name": "a", "command": "x", "portList": 1}]), "taskRoles.0.portList", "list of ports"),
        (classic(retryCount="2"), "retryCount", "must be a whole number"),
    ],
)
def test_what_is_no_classic_job_is_refused_at_its_place(document, field, words):
    with pytest.raises(ConfigError, match=words) as raised:
        convert(document)
    assert raised.value.place.field == field


def test_what_a_classic_job_loses_is_told():
    found = convert(classic(dataDir="hdfs://x", retryCount=-2, killAllOnCompletedTaskNumber=2, extras={"a": 1}))
    notes = "\n".join(found.notes)
    assert "dataDir: HDFS no longer exists; copy the data to a storage" in notes
    assert "retryCount: -2 has no meaning here" in notes
    assert "extras was left out" in notes
    assert "maxTrialRetries" not in found.config


def make_roles(*given):
    """Convert roles of these names, GPUs and commands; the section."""
    made = [{"name": name, "gpuNumber": gpus, "command": command} for name, gpus, command in given]
    return convert(classic(taskRoles=made)).config["trainingService"]


def test_variables_have_the_new_names_of_the_roles_and_of_no_others():
    command = "a ${PAI_HOST_IP_ps_server_0} $PAI_TASK_ROLE_PS_HOST_LIST $PAI_PORT_LIST_ps_server_$I_http $PS"
    found = make_roles(("PS", 0, "x"), ("ps_server", 0, "y"), ("ps", 0, command))["taskRoles"]
    assert [role["name"] for role in found] == ["ps", "psserver", "ps2"]
    renamed = "a ${PAI_HOST_IP_psserver_0} $PAI_TASK_ROLE_ps_HOST_LIST $PAI_PORT_LIST_psserver_$I_http $PS"
    assert found[2]["command"] == renamed


@pytest.mark.parametrize(
    ("roles", "speaker"),
    [
        ([("ps", 0, "x"), ("worker", 1, "x"), ("Master0", 0, "x")], "master0"),
        ([("server", 0, "x"), ("trainer", 1, "x"), ("eval", 0, "x")], "trainer"),
        ([("server", 0, "x"), ("client", 0, "x")], "client"),
    ],
)
def test_the_role_that_ends_with_the_training_reports(roles, speaker):
    assert make_roles(*roles)["reportingRole"] == speaker


# ------------------------------------------------------------ answers


def test_why_a_job_waits_has_the_latest_warning_and_what_was_tried():
    summary = {"subState": "AttemptPreparing", "virtualCluster": "v", "retries": 2, "retryDetails": {"platform": 2}}
    events = [
        {"reason": "New", "message": "no GPU", "lastTimestamp": "2020-09-29T09:55:53.000Z"},
        {"reason": "Old", "message": "no CPU", "lastTimestamp": "2020-09-29T09:46:42.000Z"},
    ]
    assert waiting(summary, events) == (
        "the job is waiting for resources, or for its image, in the virtual cluster v; New: no GPU; "
        "PAI started the job again 2 times (2 for platform)"
    )
    assert retried({"retries": 1, "retryDelayTime": 30}).endswith("1 time; the next start is in 30 s")


@pytest.mark.parametrize("detail", [{}, {"jobStatus": None}, {"jobStatus": {"state": "FAILED"}, "taskRoles": []}])
def test_answers_with_holes_are_read_as_far_as_they_go(detail):
    assert judge_end(detail, None, "main").state is JobState.FAILED


@pytest.mark.parametrize("time", [pytest.param(10**400, id="huge"), float("inf"), float("nan"), -1, True])
def test_a_time_that_no_clock_shows_is_left_out(time):
    end = judge_end({"jobStatus": {"state": "FAILED", "appLaunchedTime": time}}, None, "main")
    assert (end.state, end.started) == (JobState.FAILED, None)


@pytest.mark.parametrize(
    ("code", "state", "words", "exit_code"),
    [
        (-1001, JobState.LOST, "PodNodeLost", None),
        (-1003, JobState.LOST, "PodPreemptedForCriticalPod (the job was preempted", None),
        (-200, JobState.FAILED, "PAI advises: Check diagnostics and revise your job config", None),
        (-1200, JobState.FAILED, "UserContainerDockerOOMKilled: User Container killed by docker", None),
        (-300, JobState.LOST, "PodFailedWithoutFailedContainer", None),
        (251, JobState.LOST, "JobGangAllocationTimeout", None),
        (137, JobState.LOST, "ContainerSigKillReceived", None),
        (3, JobState.FAILED, "exit code 255", 3),
        (0, JobState.SUCCEEDED, "", 0),
    ],
)
def test_without_the_keepers_word_pais_own_table_explains_the_end(tmp_path, code, state, words, exit_code):
    role = {"resourcePerInstance": {"gpu": 0}, "dockerImage": "i", "commands": ["true"]}
    job = PaiJob({"name": "j", "taskRoles": {"main": role}}, "mei", tmp_path, "\n")
    job.end(code)
    found = judge_end(job.detail(), None, "main")
    assert (found.state, found.exit_code) == (state, exit_code)
    assert words in found.reason


def test_a_state_that_pai_does_not_know_itself_is_no_end():
    found = seen({"jobStatus": {"state": "UNKNOWN"}}, "main", [])
    assert found.state is JobState.UNKNOWN
    assert "UNKNOWN" in found.reason


def test_the_word_of_a_stopped_job_is_a_cancellation():
    detail = {"jobStatus": {"state": "STOPPED", "appExitCode": -210}}
    assert judge_end(detail, Exited(1.0, 0), "main").state is JobState.CANCELED


# ------------------------------------------------------------ NNI's files

SEARCH = {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialConcurrency": 1}


def test_a_file_of_nni_1_is_a_config_of_this_platform(tmp_path):
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    old = {
        "trialConcurrency": 1,
        "trainingServicePlatform": "pai",
        "searchSpacePath": "space.json",
        "tuner": {"builtinTunerName": "Random"},
        "trial": {
            "command": "python3 t.py",
            "codeDir": ".",
            "gpuNum": 1,
            "cpuNum": 2,
            "memoryMB": 8196,
            "image": "i",
            "virtualCluster": "v",
            "nniManagerNFSMountPath": str(tmp_path),
            "containerNFSMountPath": "/mnt/nfs",
            "paiStorageConfigName": "data",
        },
        "paiConfig": {"userName": "mei", "token": "t", "host": "10.0.0.1", "reuse": True},
    }
    [service] = from_dict(old, tmp_path).checked().services
    assert service.platform == "openpai"
    assert (service.config.host, service.config.username) == ("https://10.0.0.1", "mei")
    assert (service.config.trial_gpu_number, service.config.trial_memory_size) == (1, 8196)
    assert service.config.container_mount == "/mnt/nfs"


@pytest.mark.parametrize("platform", ["openpai", "pai"])
def test_a_file_of_nni_2_is_a_config_of_this_platform(tmp_path, platform):
    section = {"platform": platform, **GIVEN, "trialCpuNumber": 1, "trialMemorySize": "1GB", "reuseMode": True}
    new = {**SEARCH, "trialCommand": "c", "trialCodeDirectory": ".", "tuner": {"name": "Random"}}
    [service] = from_dict({**new, "trainingService": section}, tmp_path).checked().services
    assert service.config.trial_memory_size == 1024


def test_programs_that_fill_in_nnis_class_find_its_fields():
    section = ServiceConfig("openpai", host="h", storage_config_name="data")
    section.container_storage_mount_point = "/mnt/x"
    assert section.as_mapping() == {
        "platform": "openpai",
        "host": "h",
        "storageConfigName": "data",
        "containerStorageMountPoint": "/mnt/x",
    }


@pytest.mark.parametrize("place", ["http://[::1/log", "ftp://host/log", "https://host:99999/log"])
async def test_a_place_of_a_log_that_is_none_is_an_outage_and_not_the_users_mistake(place):
    api = Pai(OpenPaiConfig(**GIVEN), 5)
    with pytest.raises(Outage, match=r"log|address"):
        await api._content(place)
    await api.close()


async def test_connections_to_log_servers_have_an_end(monkeypatch):
    monkeypatch.setattr(_api, "_MOST_LOG_SERVERS", 2)
    monkeypatch.setattr(PlatformHttp, "call", AsyncMock(return_value=HttpAnswer(200, {}, b"words", "log")))
    api = Pai(OpenPaiConfig(**GIVEN), 5)
    assert {await api._content(f"http://node{number}/log") for number in (1, 2, 3)} == {b"words"}
    assert list(api._log_servers) == ["http://node2", "http://node3"]
    await api.close()
