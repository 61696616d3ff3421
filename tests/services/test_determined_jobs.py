"""What jobs on Determined are made of: requests, files, and logs by which they report; and what is left of them."""

from __future__ import annotations

import json

import pytest

from nnilite.errors import ConfigError
from nnilite.records import UNSTARTED, EndCause, Exited
from nnilite.service import JobState
from nnilite_determined import DeterminedConfig
from nnilite_determined._config import DeterminedStorage
from nnilite_determined._status import ContainerFacts, judge_end

pytestmark = pytest.mark.process


@pytest.fixture
def bench(open_determined):
    return open_determined()


def test_one_list_shows_all_jobs(bench, master):
    names = [bench.run("sleep 60") for _ in range(5)]
    for name in names:
        bench.wait(name, JobState.RUNNING)
    master.seen.clear()
    statuses = bench.call(bench.service.poll([bench.handles[name] for name in names]))
    assert [status.state for status in statuses] == [JobState.RUNNING] * 5
    assert len([call for call in master.seen if "/allocations/" not in call]) == 1  # those are the containers' own


def test_all_fields_reach_determined(open_determined, master):
    bench = open_determined(
        workspace="Research", project="nni", resource_pool="gpu", slots=1, image="python:3.11", priority=7,
        shm_size=2048, labels=["mine"], environment={"A": "it's $x"},
        expconf={"environment": {"force_pull_image": True}},
        bind_mounts=[], checkpoint_storage=None,
    )  # fmt: skip
    name = bench.run("true", parameters={"lr": 0.1})
    bench.finish(name)
    config = master.cluster.named(name).config
    assert config["resources"] == {"slots_per_trial": 1, "resource_pool": "gpu", "priority": 7, "shm_size": "2048 MiB"}
    assert config["environment"]["environment_variables"] == ["A=it's $x"]
    assert config["environment"]["force_pull_image"] is True
    assert (config["workspace"], config["project"], config["labels"][0]) == ("Research", "nni", "mine")
    assert config["hyperparameters"] == {"lr": {"type": "const", "val": 0.1}}


def test_the_code_may_come_from_the_manager(open_determined, master):
    bench = open_determined(code_from="manager")
    bench.put_code(**{"mod.py": "print('found')"})
    name = bench.run("python3 mod.py")
    assert bench.finish(name).exits[0]["code"] == 0
    assert [entry["path"] for entry in master.cluster.named(name).files] == [
        "nnilite",
        "nnilite/spec",
        "nnilite/bucket.py",
        "nnilite/keeper",
    ]


def test_trials_that_cannot_reach_the_manager_report_by_their_log(open_determined):
    bench = open_determined({"report": "stdout", "callback": None})
    name = bench.python("import nnilite; print('hi'); nnilite.report_final_result(5)")
    received = bench.finish(name)
    assert received.values == [5]
    assert received.output["stdout"] == b"hi\n"
    assert bench.call(bench.service.logs(bench.handles[name], "stdout", 1, 9)) == b"i\n"


def test_a_dry_run_shows_no_secret(open_determined):
    storage = DeterminedStorage(type="s3", bucket="b", access_key="k", secret_key="very secret")
    bench = open_determined(checkpoint_storage=storage)
    text = json.dumps(bench.service.describe(bench.job("true")))
    assert "very secret" not in text
    assert '"bucket": "b"' in text


@pytest.mark.parametrize("wish", ["archive", "keep", "delete"])
def test_an_ended_experiment_is_left_as_the_section_says(open_determined, master, wish):
    bench = open_determined(when_finished=wish)
    name = bench.run("true")
    bench.finish(name)
    for _ in range(2):
        bench.call(bench.service.remove(bench.handles[name]))
    left = [one.archived for one in master.cluster.experiments.values()]
    assert left == {"archive": [True], "keep": [False], "delete": []}[wish]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "token"),
        ({"token": "x", "workspace": "w"}, "project"),
        ({"token": "x", "priority": 100}, "priority"),
        ({"token": "x", "environment": {"a b": "1"}}, "environment"),
        ({"token": "x", "expconf": {"searcher": {}}}, "expconf"),
        ({"token": "x", "expconf": {"labels": []}}, "expconf"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, place):
    with pytest.raises(ConfigError) as refused:
        DeterminedConfig(master="http://x", **fields)
    assert refused.value.place.field == place


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        (Exited(1.0, None, "no space", EndCause.MACHINE), JobState.LOST, f"{UNSTARTED}: no space"),
        (Exited(1.0, None, "another run", EndCause.FENCED), JobState.LOST, "another run"),
        (Exited(1.0, 3, "it failed"), JobState.FAILED, "it failed"),
        (None, JobState.LOST, "its keeper reported no end"),
    ],
)
def test_the_keepers_word_on_an_end_comes_first(word, state, reason):
    status = judge_end("STATE_COMPLETED", word, ContainerFacts())
    assert status.state is state
    assert reason in status.reason


def test_a_job_whose_experiment_was_deleted_is_lost():
    assert judge_end("STATE_DELETING", None, ContainerFacts()).state is JobState.LOST
