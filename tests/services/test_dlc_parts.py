"""The parts of the service of PAI-DLC: its section, its requests, its log windows, and the stand-in's own checks."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from alibabacloud_pai_dlc20201203 import models
from hypothesis import given
from hypothesis import strategies as st

from nnilite.errors import ConfigError
from nnilite.platform_http import Outage
from nnilite.records import EndCause, Exited
from nnilite.service import Job, JobState
from nnilite_dlc import DlcConfig, _status
from nnilite_dlc._api import DlcApi, DlcJob, DlcPod, address
from nnilite_dlc._job_fields import check_size, request
from nnilite_dlc._log import find_reporting_pod
from nnilite_dlc._windows import fresh
from platforms.dlc import shapes, signature

KEYS = {"access_key_id": "id", "access_key_secret": "secret"}
PLACE = {**KEYS, "image": "i", "ecs_spec": "e", "region": "cn-hangzhou"}
JOB = Job(name="nni-Xy-ab-0", experiment="Xy", trial="ab", attempt=0, sequence=0, spec={"grace_s": 10})


# ------------------------------------------------------------ the section


@pytest.mark.parametrize(
    ("fields", "where", "words"),
    [
        ({"image": " "}, "image", "must not be empty"),
        ({"region": "Hang Zhou"}, "region", "is not a region"),
        ({"pod_count": 2}, "podCount", "set jobType: PyTorchJob"),
        ({"priority": 10}, "priority", "1 to 9"),
        ({"ecs_spec": ""}, "ecsSpec", "an instance type"),
        ({"ecs_spec": "{'cpu': "}, "ecsSpec", "not a description of resources"),
        ({"ecs_spec": {"cpus": 4}}, "ecsSpec", "'cpus' is not one of resource_id, cpu"),
        ({"ecs_spec": {"cpu": True}}, "ecsSpec", "cpu must be a number or a text"),
        ({"container_storage_mount_point": "mnt"}, "containerStorageMountPoint", "must begin with /"),
        ({"local_storage_mount_point": "/mnt"}, "nasDataSourceId", "is needed with localStorageMountPoint"),
        ({"code_from": "storage"}, "localStorageMountPoint", "is needed for codeFrom: storage"),
        ({"vpc_id": "v"}, "switchId", "go together"),
        ({"endpoint": "ftp://x"}, "endpoint", "is not an address"),
        ({"environment_variables": {"NNILITE_X": "1"}}, "environmentVariables", "is not a valid name"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, where, words):
    with pytest.raises(ConfigError, match=words) as refused:
        DlcConfig(**{**PLACE, **fields})
    assert refused.value.place.field == where


def test_the_key_comes_from_the_environment_and_is_never_shown(monkeypatch):
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "s3cret")
    monkeypatch.setenv("ALIBABA_CLOUD_SECURITY_TOKEN", "t0ken")
    found = DlcConfig(image="i", ecs_spec="e", region="cn-hangzhou")
    key = found.key()
    assert (key.id, key.secret, key.token) == ("LTAI", "s3cret", "t0ken")
    assert "s3cret" not in repr(found) + repr(key)
    assert "t0ken" not in repr(found) + repr(key)
    assert (found.access_key_secret, found.security_token) == ("", None)  # what is not there is not kept
    assert DlcConfig(**PLACE).key().token == ""  # it belongs to another key


def test_without_a_key_it_is_told_where_one_may_stand(monkeypatch):
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", raising=False)
    with pytest.raises(ConfigError, match="neither is ALIBABA_CLOUD_ACCESS_KEY_SECRET in the environment") as refused:
        DlcApi(DlcConfig(**{**PLACE, "access_key_secret": ""}), 1.0)
    assert refused.value.place.field == "accessKeySecret"


def test_nnis_description_of_resources_is_taken_as_nni_takes_it():
    text = "{'resource_id': 'quota1', 'cpu': 4, 'memory': 16, 'gpu': 1, 'gputype': 'V100'}"
    fields = request(JOB, DlcConfig(**{**PLACE, "ecs_spec": text}), {})
    assert fields["ResourceId"] == "quota1"
    assert fields["JobSpecs"][0]["ResourceConfig"] == {"CPU": "4", "Memory": "16Gi", "GPU": "1", "GPUType": "V100"}
    assert "EcsSpec" not in fields["JobSpecs"][0]


def test_a_job_with_all_fields_is_one_of_dlcs():
    network = {"vpc_id": "v", "switch_id": "s", "security_group_id": "g"}
    more = {"resource_id": "q", "priority": 3, "use_spot_instance": True, "workspace_id": "1", "type": "Master"}
    storage = {"nas_data_source_id": "d-1", "oss_data_source_id": "d-2", "container_storage_mount_point": "/mnt/nas/"}
    fields = request(JOB, DlcConfig(**PLACE, **network, **more, **storage), {"NNILITE_START": "x"})
    assert shapes.broken(models.CreateJobRequest, fields) == ""
    assert fields["DataSources"] == [{"DataSourceId": "d-1", "MountPath": "/mnt/nas"}, {"DataSourceId": "d-2"}]
    assert fields["Settings"]["TerminationGracePeriodSeconds"] == 30
    assert fields["UserCommand"].startswith("mkdir -p /mnt/nas/nni/Xy/ab/checkpoints; exec /bin/sh -c ")


@pytest.mark.parametrize(
    ("own", "where", "cure"),
    [
        (
            {"NNILITE_CODE": "x" * 70_000},
            "codeFrom",
            "the packed code has 70000 of them: exclude files with .nniignore",
        ),
        ({"NNILITE_START": "x" * 70_000}, None, "set localStorageMountPoint"),
    ],
)
def test_a_job_that_is_larger_than_dlc_takes_is_refused_with_the_cure(own, where, cure):
    fields = request(JOB, DlcConfig(**PLACE), own)
    with pytest.raises(ConfigError, match=r"the job nni-Xy-ab-0 has 7\d{4} bytes, and DLC takes 65536") as refused:
        check_size(fields)
    assert cure in str(refused.value)
    assert (refused.value.place and refused.value.place.field) == where


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"region": "share"}, {"endpoint": "pai-dlc-share.aliyuncs.com"}),
        (
            {"endpoint": "pai-dlc-vpc.cn-beijing.aliyuncs.com"},
            {"endpoint": "pai-dlc-vpc.cn-beijing.aliyuncs.com", "protocol": "https"},
        ),
        ({"endpoint": "http://127.0.0.1:80/"}, {"endpoint": "127.0.0.1:80", "protocol": "http"}),
    ],
)
def test_where_dlc_is(fields, expected):
    assert address(DlcConfig(**{**PLACE, **fields})) == expected


@pytest.mark.process
def test_importing_the_service_does_not_import_alibabas_library():
    program = (
        "import sys, nnilite_dlc; print([name for name in sys.modules if name.startswith(('alibabacloud', 'Tea'))])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60).strip() == "[]"


# ------------------------------------------------------------ logs


@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8),
    st.booleans(),
)
def test_windows_that_overlap_give_each_line_once(kinds, cuts, numbered):
    """However a growing log is cut into overlapping windows: with lines that differ, nothing is doubled or lost."""
    lines = [f"{n} {kind}" if numbered else f"{kind}{n}" for n, kind in enumerate(kinds)]
    known, found, begin, end = [], [], 0, 0
    for back, forth in [*cuts, (0, len(lines))]:
        begin, end = max(begin, end - back), min(len(lines), end + forth)
        window = lines[begin:end]
        found += fresh(known, window)
        known = window
    assert found == lines


@given(st.lists(st.text("ab", max_size=1), max_size=12), st.lists(st.text("ab", max_size=1), max_size=12))
def test_what_is_left_out_is_known(known, window):
    new = fresh(known, window)
    assert len(new) <= len(window)
    assert not known or set(window) - set(new) <= set(known)


def test_lines_that_came_late_are_not_lost_and_others_not_doubled():
    assert fresh(["1", "2", "5"], ["1", "2", "3", "5", "6"]) == ["3", "6"]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], None),
        ([DlcPod("j-worker-10", "u"), DlcPod("j-worker-2", "u")], "j-worker-2"),
        ([DlcPod("j-worker-0", "u", "Worker"), DlcPod("j-master-0", "u", "Master")], "j-master-0"),
    ],
)
def test_which_pod_reports(pods, expected):
    found = find_reporting_pod(pods)
    assert (found.id if found else None) == expected


# ------------------------------------------------------------ how a job has ended


@pytest.mark.parametrize(
    ("status", "code", "reason", "ran", "state", "exit_code"),
    [
        ("Succeeded", "", "", True, JobState.SUCCEEDED, 0),
        ("SUCCEEDED", "", "", True, JobState.SUCCEEDED, 0),
        ("Failed", "JobPreempted", "", True, JobState.LOST, None),
        ("Failed", "", "container exited with code 137", True, JobState.FAILED, 137),
        ("Failed", "PodFailed", "", True, JobState.LOST, None),
        ("Failed", "InvalidImage", "no such image", False, JobState.FAILED, None),
        ("Failed", "", "", False, JobState.LOST, None),
        ("Stopped", "", "", True, JobState.CANCELED, None),
        ("Stopped", "SpotInstanceReclaimed", "", True, JobState.LOST, None),
    ],
)
def test_an_end_without_the_keepers_word(status, code, reason, ran, state, exit_code):
    found = _status.judge_end(DlcJob("j", "n", status, reason, code), None, ran)
    assert (found.state, found.exit_code) == (state, exit_code)


@pytest.mark.parametrize(
    ("status", "code", "cause", "exit_code", "state"),
    [
        ("Failed", "", EndCause.ITSELF, 3, JobState.FAILED),
        ("Failed", "JobPreempted", EndCause.ITSELF, 3, JobState.LOST),
        ("Failed", "", EndCause.INTERRUPTED, None, JobState.LOST),
        ("Stopped", "", EndCause.INTERRUPTED, None, JobState.CANCELED),
        ("Failed", "", EndCause.ITSELF, 0, JobState.SUCCEEDED),
    ],
)
def test_the_keepers_word_comes_first(status, code, cause, exit_code, state):
    word = Exited(time=5.0, code=exit_code, message="", cause=cause)
    assert _status.judge_end(DlcJob("j", "n", status, "", code), word, True).state is state


def test_all_states_that_the_library_names_are_known():
    names = "Creating Queuing Bidding EnvPreparing SanityChecking Running Restarting Stopping SucceededReserving"
    for name in [*names.split(), "FailedReserving", "Succeeded", "Failed", "Stopped"]:
        state = name.lower()
        assert state in {*_status.WAITING, *_status.RUNNING, *_status.ENDED, _status.RESTARTING}


# ------------------------------------------------------------ the stand-in


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"DisplayNam": "x"}, "has no field DisplayNam"),
        ({"JobSpecs": [{"Imag": "x"}]}, r"JobSpecs\[0\] has no field Imag"),
        ({"JobSpecs": [{"PodCount": "2"}]}, "pod_count must be int"),
        ({"Envs": {"A": 1}}, "must have texts only"),
        ({"Priority": 1.5}, "priority must be int"),
    ],
)
def test_the_stand_in_refuses_what_dlcs_models_do_not_have(body, words):
    assert re.search(words, shapes.broken(models.CreateJobRequest, body))


def test_the_stand_in_refuses_what_is_signed_wrongly():
    assert signature.broken("GET", "/", {}, b"", ("id", "secret"))[0] == "MissingAuthorization"


# ------------------------------------------------------------ answers that make no sense


def _listing(monkeypatch, *jobs):
    """An API whose lists have these jobs, all on the first page."""

    def answer(request, *_):
        page = list(jobs) if request.page_number == 1 else []
        return SimpleNamespace(body=models.ListJobsResponseBody(jobs=page, total_count=len(jobs)))

    client = SimpleNamespace(list_jobs_with_options=answer)
    api = DlcApi(DlcConfig(**PLACE), 1.0)
    monkeypatch.setattr(api, "_client", lambda: client)
    return api


@pytest.mark.parametrize("odd", [{"job_id": None}, {"job_id": "o", "status": 7}, {"job_id": "o", "pods": 3}])
async def test_a_job_that_makes_no_sense_hides_no_other_one_of_a_list(monkeypatch, odd):
    whole = models.JobItem(job_id="dlc1", display_name="nni-Xy-ab-0", status="Running")
    broken = models.JobItem(**{"status": "Running", **odd})
    api = _listing(monkeypatch, broken, whole)
    assert [one.id for one in await api.jobs("nni-", frozenset({"dlc1", "o"}))] == ["dlc1"]


async def test_a_list_with_a_job_that_makes_no_sense_does_not_say_that_a_job_was_never_made(monkeypatch):
    api = _listing(monkeypatch, models.JobItem(job_id=None, display_name="nni-Xy-ab-0", status="Running"))
    with pytest.raises(Outage, match="does not hold a job's id"):
        await api.jobs("nni-Xy-ab-0")
