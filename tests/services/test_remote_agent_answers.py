"""What agents say of their machines, also where a program that is none answers in their place."""

from __future__ import annotations

from typing import Any

import pytest

from nnilite.service import JobState, JobStatus
from nnilite.services.gpu import Gpu
from nnilite.ssh.errors import MachineError, OutcomeUnknown
from nnilite_remote._agent_answers import (
    read_facts,
    read_files,
    read_gpus,
    read_piece,
    read_start,
    read_status,
    read_trace,
    read_use,
)

FACTS: dict[str, Any] = {
    **dict.fromkeys(("root", "boot", "host", "python", "interpreter", "system"), "x"),
    "launchers": ["mpirun"],
    "cached": [],
}
GPU: dict[str, Any] = {
    "index": 0,
    "name": "T4",
    "memory_total_mb": 16,
    "memory_used_mb": 1,
    "utilization_percent": None,
    "processes": [7, 8],
    "own": [8],
}


def test_what_an_agent_says_is_taken_and_nothing_else() -> None:
    assert read_facts({**FACTS, "nonce": "n", "slots": 9}) == FACTS
    assert read_gpus([GPU, {"index": 1, "fault": "lost"}]) == (
        [Gpu(0, "T4", 16, 1, None, (7, 8)), Gpu(1, fault="lost")],
        frozenset({8}),
    )
    use = {"cpuPercent": 2.5, "memoryUsed": 1, "memoryTotal": 2}
    assert read_use({"use": {**use, "slots": 3}}) == use


@pytest.mark.parametrize(
    "changed", [{"root": 7}, {"host": "h" * 5000}, {"launchers": 7}, {"cached": None}, {"boot": []}]
)
def test_facts_that_no_agent_gives_set_the_machine_aside(changed: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match="no answer of use about itself"):
        read_facts({**FACTS, **changed})
    with pytest.raises(MachineError, match="no answer of use about itself"):
        read_facts({name: value for name, value in FACTS.items() if name not in changed})


@pytest.mark.parametrize(
    "said", [7, None, [7], ["x"], [{}], *([{**GPU, name: -1}] for name in GPU), [{**GPU, "index": 10**400}]]
)
def test_gpus_that_no_agent_gives_are_the_machines_trouble(said: object) -> None:
    with pytest.raises(MachineError, match="no answer of use about its GPUs"):
        read_gpus(said)


@pytest.mark.parametrize(
    "use", [7, None, [], {"cpuPercent": "1"}, {"memoryUsed": 10**400, "memoryTotal": float("nan")}]
)
def test_a_use_that_no_agent_gives_is_left_out(use: object) -> None:
    assert read_use({"use": use}) == {}
    assert read_use(use) == {}


def test_what_an_agent_says_of_a_start_is_taken() -> None:
    keeper = {"pid": 7, "start": "1", "boot": "b", "server": "s"}
    assert read_start({**keeper, "event": "started"}) == keeper
    assert read_start({"missing": "keeper.pyz"}) == {"missing": "keeper.pyz"}
    assert read_start({"waits": "another"}) == {"waits": "another"}


@pytest.mark.parametrize(
    "said", [7, None, [], {}, {"pid": "7", "start": "1", "boot": "b"}, {"waits": 7}, {"missing": []}]
)
def test_after_another_answer_to_a_start_the_job_may_run_there(said: object) -> None:
    with pytest.raises(OutcomeUnknown, match="no answer of use about a start"):
        read_start(said)


def test_what_an_agent_says_of_a_job_and_of_a_trial_is_taken() -> None:
    said = {"state": "FAILED", "exit_code": 3, "reason": "why", "started": 1.5, "ended": float("nan")}
    assert read_status(said, "m") == JobStatus(JobState.FAILED, "why", 3, "m", started=1.5)
    trace = {"attempt": 1, "lost": True, "checkpoint": None, "directory": "/x"}
    assert read_trace({**trace, "more": 1}) == trace
    assert (read_piece({"data": "eA=="}), read_piece({"data": None})) == (b"x", None)
    assert (read_files({"files": []}), read_files({})) == ([], None)


@pytest.mark.parametrize("said", [7, None, [], {}, {"state": "x"}, {"state": "RUNNING", "exit_code": "0"}, {"data": 7}])
def test_other_answers_about_a_job_a_trial_or_files_are_the_machines_trouble(said: object) -> None:
    trace = {"attempt": "1", "lost": False, "checkpoint": 1, "directory": "/x"}
    calls = [
        lambda: read_status(said, "m"),
        lambda: read_trace(said),
        lambda: read_trace(trace),
        lambda: read_piece(said),
    ]
    for call in calls:
        with pytest.raises(MachineError, match="no answer of use about "):
            call()
    with pytest.raises(MachineError, match="no answer of use about a folder"):
        read_files([])
