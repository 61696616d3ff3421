"""The pure rules of nnilite_ray, and the fields of its section."""

from __future__ import annotations

import pytest

from nnilite.config import from_dict
from nnilite.errors import ConfigError
from nnilite.records import EndCause, Exited
from nnilite_ray import _convert as convert
from nnilite_ray._convert import LoggedEnd, end_of, parse_version, sentence
from nnilite_ray._log import RayLog
from nnilite_ray._resources import waiting

HEAD = "2026-11-22\tINFO job_manager.py:581 -- Runtime env is setting up.\nRunning entrypoint for job nni-x: sh\n"


def section(**fields):
    """The section, read as from a file."""
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "true",
        "trialConcurrency": 1,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "ray", "address": "http://head:8265", **fields},
    }
    return from_dict(config).checked()


def test_all_fields_can_be_given():
    read = section(
        token="a-token",
        headers={"X-Gate": "sesame"},
        entrypointNumCpus=0.5,
        entrypointNumGpus=2,
        entrypointMemory="2gb",
        entrypointResources={"special": 1},
        runtimeEnv={"pip": ["torch"], "env_vars": {"A": "b"}},
        workDirectory="/scratch",
        checkpointDirectory="/shared",
    )
    assert "sesame" not in repr(read)
    assert "a-token" not in str(read.json())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"address": "ray://head:10001"}, r"is not the address of Ray's dashboard.*it is usually http://head:8265"),
        ({"address": "head:6379"}, r"it is usually http://head:8265"),
        ({"address": "http://me:secret@head:8265"}, "must not hold a login"),
        ({"tokenFile": "/etc/passwd", "token": "x"}, "tokenFile: cannot be combined with token"),
        ({"tokenFile": "/nowhere"}, "does not exist"),
        ({"headers": {"a b": "c"}}, "'a b' is not a valid HTTP header"),
        ({"headers": {"a": "c\nd"}}, "'a' is not a valid HTTP header"),
        ({"entrypointNumCpus": -1}, "from 0 up"),
        ({"entrypointNumGpus": 1.5}, "use a fraction below 1"),
        ({"entrypointResources": {"GPU": 1}}, "it is the field entrypointNumGpus"),
        ({"entrypointResources": {"x": float("nan")}}, "from 0 up"),
        ({"runtimeEnv": ["pip"]}, "must be an object"),
        ({"runtimeEnv": {"working_dir": "."}}, "trialCodeDirectory is what is sent"),
        ({"runtimeEnv": {"py_modules": ["./mine"]}}, "the cluster cannot see it"),
        ({"runtimeEnv": {"env_vars": {"A": 1}}}, "Ray accepts names and texts"),
        ({"workDirectory": "here"}, "workDirectory: must be an absolute path"),
        ({"addres": "x"}, "addres"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(fields, words):
    with pytest.raises(ConfigError, match=words) as caught:
        section(**fields)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"CPU": 1}, "Ray is preparing the job's runtime environment"),
        ({"GPU": 3}, "no node of the cluster has 3 GPU (the largest has 2); the job waits until one joins"),
        (
            {"CPU": 1, "GPU": 2},
            "the job is waiting for 1 CPU and 2 GPU on one node: 5 of 8 CPU are in use, 1 of 2 GPU are in use",
        ),
        ({"memory": 2.0**30}, "no node of the cluster has 1 GB of memory (the largest has 512 MB); the job waits"),
        ({"my_fpga": 1}, "the job is waiting for 1 my_fpga on one node: 1 of 1 my_fpga are in use"),
        ({}, "said"),
    ],
)
def test_what_a_job_waits_for_is_told_in_words(asked, words):
    usage = {
        "a": {"CPU": [4, 4], "GPU": [1, 2], "memory": [0, 2.0**29], "myFpga": [1, 1]},
        "b": {"CPU": [1, 4], "strange": "x"},
    }
    assert waiting(asked, usage, "said").startswith(words)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Job supervisor actor died: X\n\tclass_name: Y\nThe node was killed.", "The node was killed."),
        ("Unexpected error occurred: failed", "Unexpected error occurred: failed"),
        ("a\n  File x\nValueError: no pip\n", "ValueError: no pip"),
        ("Failed to start: 'bad'. Full traceback:\nTraceback", "Failed to start: 'bad'"),
        ("", ""),
    ],
)
def test_of_rays_messages_the_part_that_tells_something_is_shown(message, told):
    assert sentence(message) == told


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ({"status": "SUCCEEDED"}, "SUCCEEDED"),
        ({"status": "STOPPED"}, "CANCELED"),
        ({"status": "FAILED", "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": 3}, "LOST"),
        ({"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_DIED"}, "LOST"),
        ({"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"}, "LOST"),
        ({"status": "FAILED", "error_type": None, "message": 7, "end_time": "x"}, "LOST"),
        ({"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_START_FAILURE", "message": "x"}, "LOST"),
    ],
)
def test_an_end_of_which_only_ray_tells_is_what_it_means(found, state):
    assert end_of(found, LoggedEnd(), asked=False).state.value == state


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [("STOPPED", -15, "CANCELED"), ("STOPPED", 0, "SUCCEEDED"), ("FAILED", -15, "FAILED"), ("FAILED", 3, "FAILED")],
)
def test_a_trial_that_dies_of_rays_own_signal_is_canceled(status, code, state):
    word = LoggedEnd(Exited(1.0, code, "", EndCause.ITSELF))
    assert end_of({"status": status}, word, asked=True).state.value == state


def test_versions_are_compared_as_numbers():
    assert parse_version("2.9.3") == (2, 9)
    assert parse_version("2.10.0") > parse_version("2.9.3")
    assert parse_version("nightly") is None


def taken(log: RayLog, content: str):
    log.add_all(content)
    return log.events(True)


def test_a_log_is_read_on_where_it_was_left_and_anew_if_it_was_begun_anew():
    log = RayLog(None, "job")
    [first] = taken(log, HEAD + "one\ntw")
    [second] = taken(log, HEAD + "one\ntwo\n")
    assert (first.data, second.offset, second.data) == (b"one\n", 4, b"two\n")
    assert taken(log, HEAD + "one\ntwo\n") == []
    [anew] = taken(log, HEAD + "x\n")
    assert (anew.offset, anew.data) == (0, b"x\n")


def test_rays_own_lines_are_no_output_and_its_begin_is_a_time():
    log = RayLog(None, "job")
    assert taken(log, HEAD + "NNILITE_BEGIN 1795345087.500\n") == []
    assert log.started == 1795345087.5


@pytest.mark.parametrize("odd", [True, 5, "x", ["x"], "http://["])
def test_fields_of_an_answer_that_make_no_sense_are_left_out(odd):
    found = {"metadata": odd, "runtime_env": odd, "driver_agent_http_address": odd}
    assert convert.find_nodes(found) == convert.find_nodes({"metadata": {"nnilite_nodes": odd}}) == (0, {})
    assert (convert.find_host(found), convert.find_package(found)) == ("", "")
