"""The parts of the service of DLTS that need no jobs: its section, what it makes of a job's state, logs, addresses."""

from __future__ import annotations

import asyncio

import pytest

from nnilite.config import from_dict
from nnilite.errors import ConfigError, NniliteError, ServiceError
from nnilite.platform_http import HttpRequest
from nnilite.records import EndCause, Exited, Output
from nnilite.service import JobState
from nnilite_dlts import DltsConfig
from nnilite_dlts import _convert as convert
from nnilite_dlts._api import DltsApi
from nnilite_dlts._endpoint import open_address
from nnilite_dlts._log import DltsLog
from platforms.dlts.bench import config_of
from platforms.dlts.contract import STATES
from platforms.dlts.dashboard import Dashboard

SECTION = {"dashboard": "https://d", "team": "t", "email": "e@x", "password": "secret-key", "image": "i"}
EXIT = 'NNILITE_EVENT {"type": "exit", "time": 5.0, "code": 3, "message": "m"}\n'


def section(**fields):
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    config = {"searchSpace": space, "trialCommand": "true", "tuner": {"name": "Random"}, "trialConcurrency": 1}
    return from_dict({**config, "trainingService": {"platform": "dlts", **SECTION, **fields}}).checked()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": " "}, "image: must not be empty"),
        ({"gpuNumber": -1}, "gpuNumber"),
        ({"workPath": "../other"}, "workPath: '../other' must be relative"),
        ({"dataPath": "/data"}, "dataPath: '/data' must be relative"),
        ({"codeFrom": "mars"}, "codeFrom"),
        ({"dockerImage": "x"}, "dockerImage: there is no such field"),
    ],
)
def test_a_bad_field_is_told_by_its_name(fields, words):
    assert section().experiment_name is None
    with pytest.raises(ConfigError, match=words) as caught:
        section(**fields)
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize("field", ["team", "email", "password"])
def test_what_is_not_set_comes_from_the_variables_of_dlts(monkeypatch, field):
    names = {"team": "DLWS_VC_NAME", "email": "DLTS_USER_EMAIL", "password": "DLTS_JOB_TOKEN"}
    fields = {key: value for key, value in SECTION.items() if key != field}
    with pytest.raises(ConfigError, match="is not set, and neither is the environment variable DLTS_") as caught:
        DltsConfig(**fields)
    assert caught.value.place.field == field
    monkeypatch.setenv(names[field], "from there")
    config = DltsConfig(**fields)
    assert getattr(config, field) == "from there"
    assert "from there" not in repr(config) or field != "password"


def test_every_state_of_dlts_has_a_meaning():
    known = {*convert.WAITING, *convert.ENDED, "running", "pausing", "paused", "killing"}
    assert known == set(STATES["transitions"])
    assert set(convert.ENDED) == set(STATES["final"])
    assert set(convert.KILLABLE) == set(STATES["operations"]["kill"]["from"])


def test_a_state_that_nobody_knows_is_unknown():
    seen = convert.seen({"jobStatus": "dreaming"})
    assert seen.state is JobState.UNKNOWN
    assert "dreaming" in seen.reason


@pytest.mark.parametrize(
    ("code", "cause", "state"),
    [
        (0, EndCause.ITSELF, JobState.SUCCEEDED),
        (-9, EndCause.ITSELF, JobState.FAILED),
        (None, EndCause.ITSELF, JobState.FAILED),
        (1, EndCause.DURATION, JobState.FAILED),
        (-15, EndCause.CANCELED, JobState.CANCELED),
        (-15, EndCause.INTERRUPTED, JobState.CANCELED),
    ],
)
def test_the_end_is_as_the_keeper_tells_it(code, cause, state):
    assert convert.judge_end({"jobStatus": "failed"}, Exited(5.0, code, "m", cause), "").state is state


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("OOMKilled", JobState.FAILED),
        ("The node was low on resource: Evicted", JobState.LOST),
        ("NodeLost", JobState.LOST),
    ],
)
def test_a_failure_by_the_node_is_a_loss(message, state):
    assert convert.judge_end({"jobStatus": "failed"}, None, message).state is state


def test_a_time_that_is_none_is_left_out():
    assert convert.moment({"jobStatusDetail": [{"startedAt": "soon"}]}, "startedAt") is None
    assert convert.moment({"jobStatusDetail": "x"}, "startedAt") is None
    assert convert.moment({"jobStatusDetail": [{"startedAt": "1970-01-01T00:00:07Z"}]}, "startedAt") == 7


class Pages:
    """A log that comes as the list of answers says."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.cursors = []

    async def log(self, job_id, cursor):
        self.cursors.append(cursor)
        return self.answers.pop(0) if self.answers else ({}, None)


def read(*answers):
    """The log after it was fetched as often as there are answers."""
    log = DltsLog(Pages(*answers), "j")
    for _ in answers:
        asyncio.run(log.follow())
    return log


def test_a_log_that_is_cut_at_its_beginning_is_continued():
    long = "".join(f"line {n}\n" for n in range(2000))
    log = read(({"p": long}, None), ({"p": long[5000:] + "next\n"}, None))
    assert log.output == (long + "next\n").encode()


def test_a_line_counts_when_it_is_whole():
    log = read(({"p": EXIT[:30]}, None), ({"p": EXIT}, None))
    assert log.exited is not None
    assert [type(event) for event in log.events(True)] == [Exited]


def test_pages_are_followed_to_the_last_and_asked_for_from_there():
    pages = Pages(({"p": "a\n"}, "1"), ({"p": "b\n"}, "2"), ({}, None), ({"p": "c\n" + EXIT}, "3"))
    log = DltsLog(pages, "j")
    asyncio.run(log.follow())
    asyncio.run(log.follow())
    assert pages.cursors == [None, "1", "2", "2", "3"]
    assert log.output == b"a\nb\nc\n"


def test_a_log_is_read_from_its_beginning_again_when_it_is_rewound():
    pages = Pages(({"p": "a\n"}, "1"), ({}, None), ({"p": "a\n" + EXIT}, "1"))
    log = DltsLog(pages, "j")
    asyncio.run(log.follow())
    log.rewind()
    asyncio.run(log.follow())
    assert pages.cursors == [None, "1", None, "1"]
    assert [type(event) for event in log.events(True)] == [Output, Exited]


def test_a_manager_within_dlts_gets_a_port_opened(dashboard):
    dashboard.opens_after = 2
    url = asyncio.run(opened(dashboard, "http://127.0.0.1:40001/x"))
    assert url == "http://node7.dlts.example.com:40001/x"
    assert dashboard.asked("POST /api/clusters/.default/jobs/j-1/endpoints") == 1


def test_a_port_that_is_never_opened_is_waited_for_with_an_end(dashboard):
    dashboard.opens_after = 10**6
    with pytest.raises(ServiceError, match=r"did not open port 40001 .* within 0.2 s"):
        asyncio.run(opened(dashboard, "http://127.0.0.1:40001", patience_s=0.2))


def test_a_port_that_dlts_does_not_open_is_refused_with_the_cure(dashboard):
    with pytest.raises(ConfigError, match="--port 40000"):
        asyncio.run(opened(dashboard, "http://127.0.0.1:8080"))
    assert dashboard.seen == []


async def opened(dashboard, url, **more):
    api = DltsApi(config_of(dashboard), 20.0)
    try:
        return await open_address(api, url, "j-1", **more)
    finally:
        await api.close()


def test_the_stand_in_notices_what_is_outside_of_the_contract(tmp_path):
    async def ask(dashboard):
        api = DltsApi(config_of(dashboard), 1.0)
        for call in (
            api.submit({"jobName": "no team", "resourcegpu": -1}),
            api._get("no/such/path"),
            api._call(HttpRequest("PUT", "clusters/c/jobs/j/status", body={"status": "dead"})),
        ):
            with pytest.raises(NniliteError):
                await call
        await api.close()

    with Dashboard(tmp_path / "other") as dashboard:
        asyncio.run(ask(dashboard))
    assert len(dashboard.broken) == 3
