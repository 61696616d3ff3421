"""Advisors of NNI hear each intermediate result once, also over the death of their process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nnilite._engine.messages import Ask, Assess, History
from nnilite._tuner_host.tuner_client import TunerHost, TunerPlan
from nnilite.errors import TunerError
from nnilite.records import CallKind
from nnilite.tuner import Call
from processes import send_signal

pytestmark = pytest.mark.process

ADVISOR = """
import json
from nni.runtime.msg_dispatcher_base import MsgDispatcherBase
from nni.runtime.tuner_command_channel import CommandType
from nni.utils import MetricType

class Chain(MsgDispatcherBase):
    \"\"\"One trial at first, and one more for each third intermediate result, with all that it has heard.\"\"\"
    def __init__(self):
        super().__init__()
        self.heard, self.sent = [], 0
    def handle_initialize(self, data):
        pass
    def handle_request_trial_jobs(self, data):
        if not self.sent:
            self.propose()
    def propose(self):
        self.sent += 1
        record = {"parameter_id": f"p{self.sent}", "parameters": {"heard": list(self.heard)}}
        self.send(CommandType.NewTrialJob, json.dumps(record))
    def handle_report_metric_data(self, data):
        value = json.loads(data["value"])
        self.heard.append([data["parameter_id"], data["trial_job_id"], data["type"], data["sequence"], value])
        if data["type"] == MetricType.PERIODICAL and data["sequence"] == 2:
            self.propose()
        if value == "broken":
            raise ValueError("the advisor's mistake")
        if value == "bad":
            self.send(CommandType.KillTrialJob, json.dumps(data["trial_job_id"]))
    def handle_trial_end(self, data):
        self.heard.append([data["trial_job_id"], data["event"]])
"""


class Stored:
    """What the store has."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.histories: list[History] = []

    async def until(self, number: int) -> list[Call]:
        return self.calls[:number]

    async def all_histories(self) -> list[History]:
        return self.histories


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
async def host(tmp_path: Path, stored: Stored) -> AsyncIterator[TunerHost]:
    (tmp_path / "log").mkdir()
    (tmp_path / "chain.py").write_text(ADVISOR)
    plan = TunerPlan({"className": "chain.Chain", "codeDirectory": str(tmp_path)}, None, {}, tmp_path, 60.0)
    host = TunerHost(plan, stored.until, stored.all_histories)
    try:
        assert await host.open(0), "an advisor wants intermediate results"
        yield host
    finally:
        await host.close()


async def _propose(host: TunerHost, stored: Stored, number: int, trial: str) -> Any:
    (found,) = await host.call(Ask((number,), len(stored.calls)))
    stored.calls.append(Call(CallKind.GENERATE, number, trial, found))
    return found["heard"]


def _periodical(name: str, trial: str, *values: Any) -> list[Any]:
    return [[name, trial, "PERIODICAL", place, value] for place, value in enumerate(values)]


async def test_a_new_process_of_an_advisor_hears_no_result_twice_and_misses_none(
    host: TunerHost, stored: Stored
) -> None:
    await _propose(host, stored, 0, "a")
    stored.histories = [("a", 0, [0.1, 0.2, 0.3], False, False)]
    assert await host.call(Assess("a", 0, 0, (0.1, 0.2, 0.3), 1, 0))
    # The second proposal is owed to the third result: a new process has to hear that one before it.
    assert await _propose(host, stored, 1, "b") == _periodical("p1", "a", 0.1, 0.2, 0.3)
    send_signal(host.pid)
    stored.histories = [("a", 0, [0.1, 0.2, 0.3], False, False), ("b", 0, [5, 6, 7], False, False)]
    assert await host.call(Assess("b", 0, 0, (5, 6), 2, 1))
    assert await host.call(Assess("b", 0, 2, (7,), 2, 1))
    heard = await _propose(host, stored, 2, "c")
    assert heard == _periodical("p1", "a", 0.1, 0.2, 0.3) + _periodical("p2", "b", 5, 6, 7)


async def test_a_replay_tells_the_results_of_a_trial_before_its_end(host: TunerHost, stored: Stored) -> None:
    end = [["p1", "a", "FINAL", 0, 9], ["a", "SUCCEEDED"]]
    mine = [[None, "mine", "PERIODICAL", place, value] for place, value in enumerate((4, 5, 6))]
    await _propose(host, stored, 0, "a")
    send_signal(host.pid)
    stored.histories = [("a", 0, [1, 2, 3], True, True), ("mine", 0, [4], False, False)]
    stored.calls.append(Call(CallKind.RESULT, 0, "a", {}, 9))
    stored.calls.append(Call(CallKind.END, 0, "a", success=True))
    # A trial of the user's own has no parameter id; the new process hears what it had reported earlier, too.
    assert await host.call(Assess("mine", 0, 1, (5, 6), 3))
    assert await _propose(host, stored, 1, "b") == _periodical("p1", "a", 1, 2, 3)
    assert await _propose(host, stored, 2, "c") == _periodical("p1", "a", 1, 2, 3) + end + mine


async def test_a_further_attempt_counts_from_0_again(host: TunerHost, stored: Stored) -> None:
    await _propose(host, stored, 0, "a")
    await host.call(Assess("a", 0, 0, (1, 2), 1, 0))
    await host.call(Assess("a", 1, 0, (1, 2, 3), 1, 0))
    assert await _propose(host, stored, 1, "b") == _periodical("p1", "a", 1, 2) + _periodical("p1", "a", 1, 2, 3)


async def test_a_trial_that_an_advisor_ends_ends_also_if_its_process_dies(host: TunerHost, stored: Stored) -> None:
    await _propose(host, stored, 0, "a")
    assert await host.call(Assess("a", 0, 0, (1,), 1, 0))
    send_signal(host.pid)
    stored.histories = [("a", 0, [1, "bad"], False, False)]
    assert not await host.call(Assess("a", 0, 1, ("bad",), 1, 0))


async def test_a_mistake_of_an_advisor_is_not_told_of_an_assessor_that_the_config_does_not_have(
    host: TunerHost, stored: Stored
) -> None:
    await _propose(host, stored, 0, "a")
    with pytest.raises(TunerError, match=r"the tuner failed 3 times in a row on .*: ValueError: the advisor's mistake"):
        await host.call(Assess("a", 0, 0, ("broken",), 1, 0))
