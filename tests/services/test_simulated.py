"""The simulated platform: prices, interruptions, and the figures of its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.records import JobState, Json, MetricKind, Reported
from nnilite.service import Job
from nnilite.testing.fakes import fake_context
from nnilite_simulated import (
    AttemptPlan,
    SimulatedConfig,
    SimulatedService,
    Trace,
    WorkerGroup,
    _generate,
    _last_attempts,
    made_plan,
    read_trace,
    shipped,
)

HOUR = 3600.0
PAGE = Path(__file__).parents[2] / "docs/how-to/spot.md"
STEPS, STEP_S, START_S = 32, 0.25 * HOUR, 60.0
ONE, RIGID, ELASTIC = WorkerGroup(), WorkerGroup(4, 4), WorkerGroup(4, 1)


def attempts(trial: int, trace: Trace, every: int | None, group: WorkerGroup) -> Iterator[AttemptPlan]:
    """The attempts of a trial, one after the other, until one has come to its end."""
    now_s, first = trial * 1.68 * HOUR, 0
    for number in range(1000):
        plan = made_plan(f"{trial}-{number}", trace, now_s, [0.0] * STEPS, (START_S, STEP_S, first), group)
        yield plan
        if not plan.is_lost:
            return
        now_s, first = plan.end_s, plan.saved(plan.end_s, every)


def row(name: str, trace: Trace, every: int | None, group: WorkerGroup = ONE) -> str:
    runs = [list(attempts(trial, trace, every, group)) for trial in range(200)]
    cost = sum(plan.cost(trace, plan.end_s) for run in runs for plan in run) / len(runs)
    hours = sum(run[-1].end_s - run[0].begin_s for run in runs) / len(runs) / HOUR
    saved = 1 - cost / (group.workers * (STEPS * STEP_S + START_S) / HOUR)
    count = sum(map(len, runs)) / len(runs)
    against = f"{saved:.0%} less" if saved > 0.005 else "the same"
    return f"| {name} | {cost:.2f} | {against} | {count:.2f} | {hours:.1f} |"


def table() -> str:
    spot = shipped("spot")
    rows = [("on demand", shipped("steady"), 1), ("spot, a checkpoint after each step", spot, 1)]
    rows += [("spot, a checkpoint every two hours", spot, 8), ("spot, no checkpoints", spot, None)]
    return "\n".join(row(*one) for one in rows)


def elastic_table() -> str:
    spot = shipped("spot")
    rows = [
        row("on demand", shipped("steady"), 1, RIGID),
        row("spot, elastic, a checkpoint after each step", spot, 1, ELASTIC),
        row("spot, elastic, no checkpoints", spot, None, ELASTIC),
        row("spot, not elastic, a checkpoint after each step", spot, 1, RIGID),
        row("spot, not elastic, no checkpoints", spot, None, RIGID),
    ]
    return "\n".join(rows)


@pytest.mark.parametrize("made", [table, elastic_table])
def test_the_figures_of_the_page_are_those_of_the_simulation(made: Callable[[], str]) -> None:
    assert made() in PAGE.read_text()


@given(st.integers(1, 5), st.integers(1, 5), st.floats(1, 9000), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_whatever_machines_do_each_step_is_done_once_and_paid_by_the_machines_that_are_there(
    workers: int, least: int, replace_s: float, chances: list[float]
) -> None:
    group = WorkerGroup(max(workers, least), least, replace_s)
    trace = Trace(900.0, (1.0,) * len(chances), tuple(chances))
    plan = made_plan("t", trace, 0.0, [0.0] * 8, (60.0, 300.0, 2), group)
    assert plan.is_lost == (len(plan.moments) < 6)
    assert list(plan.moments) == sorted(set(plan.moments))
    assert plan.done(plan.end_s) == 2 + len(plan.moments)
    assert all(group.least <= count <= group.workers for _, _, count in plan.phases)
    assert [end for _, end, _ in plan.phases[:-1]] == [begin for begin, _, _ in plan.phases[1:]]
    paid_s = sum((end - begin) * count for begin, end, count in plan.phases)
    assert plan.cost(trace, plan.end_s) == pytest.approx(paid_s / HOUR)
    # A step is the work of all machines for its time, however many do it.
    assert paid_s >= len(plan.moments) * 300.0 * group.workers - 1e-6


def test_an_elastic_trial_goes_on_with_fewer_machines_and_then_with_all() -> None:
    # Machines may be lost in the first hour only.
    trace = Trace(HOUR, (1.0, 1.0, 1.0), (0.5, 0.0, 0.0))
    name = next(name for name in map(str, range(99)) if len(elastic(name, trace).phases) == 3)
    plan, rigid = elastic(name, trace), elastic(name, trace, least=2)
    assert [count for *_, count in plan.phases] == [2, 1, 2]
    assert not plan.is_lost
    assert rigid.is_lost
    assert rigid.end_s == plan.phases[0][1]
    assert plan.phases[1][1] - plan.phases[1][0] == pytest.approx(600.0)


def elastic(name: str, trace: Trace, least: int = 1) -> AttemptPlan:
    return made_plan(name, trace, 0.0, [0.0] * 4, (60.0, 1500.0, 0), WorkerGroup(2, least))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"workers": 2, "min_workers": 3}, r"minWorkers: 3 is more than workers \(2\)"),
        ({"trace": "spot", "trace_file": Path("x.csv")}, "trace: spot and traceFile are both given"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SimulatedConfig(objective="objective.py:curve", **given)


def test_the_shipped_trace_is_the_one_that_its_generator_makes() -> None:
    folder = Path(_generate.__file__).parent / "traces"
    assert (folder / "spot.csv").read_text().splitlines() == _generate.lines()


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        (["0,1,0", "1,1,0", "3,1,0"], 4, "there is a gap: after hour 1 comes hour 2; write a row for each time"),
        (["0,1,0", "0,1,0"], 3, "there is a gap"),
        (["0,-1,0"], 2, "a price is at least 0, not -1"),
        (["0,1,2"], 2, "a probability from 0 to 1, not 2"),
        (["0,1"], 2, "must be three numbers, not '0,1'"),
        ([], 1, "must begin with the line hour,price,interruption, and have a row"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(tmp_path: Path, lines: list[str], line: int, reason: str) -> None:
    file = tmp_path / "it's $x.csv"
    file.write_text("\n".join(["hour,price,interruption", *lines]))
    with pytest.raises(ConfigError, match=reason) as caught:
        read_trace(file)
    assert (caught.value.place.file, caught.value.place.line) == (str(file), line)


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e5))
def test_costs_of_parts_add_up_to_that_of_the_whole(begin: float, first: float, second: float) -> None:
    trace = Trace(900.0, (1.0, 2.0, 0.5), (0.0,) * 3)
    whole = trace.cost(begin, begin + first + second)
    parts = trace.cost(begin, begin + first) + trace.cost(begin + first, begin + first + second)
    assert parts == pytest.approx(whole, abs=1e-6)


def service(folder: Path, **config: Any) -> SimulatedService:
    (folder / "objective.py").write_text("def curve(p):\n    return [p['x'] * k for k in (1, 2, 3, 4)]\n")
    given = SimulatedConfig(**{"objective": "objective.py:curve", "step_time": 600, "start_time": 600, **config})
    return SimulatedService("sim", given, fake_context(folder))


def job(trial: str, attempt: int = 0, parameters: Json = None) -> Job:
    spec = {"parameters": {"parameters": parameters or {"x": 2.0}}}
    return Job(f"nni-e-{trial}-{attempt}", "e", trial, attempt, 0, spec)


@pytest.mark.process
async def test_an_attempt_reports_its_curve_once_and_costs_its_time(tmp_path: Path) -> None:
    # Simulated time is real time, moved by the test.
    simulated = service(tmp_path, speed_up=1.0)
    await simulated.open()
    handle = await simulated.submit(job("a"))
    assert await simulated.submit(job("a")) == handle
    assert (await simulated.poll([handle]))[0].state is JobState.RUNNING
    again = service(tmp_path, speed_up=1.0)
    await again.open()
    again._epoch -= 4000.0
    status = (await again.poll([handle]))[0]
    assert (status.state, status.cost) == (JobState.SUCCEEDED, pytest.approx(3000 / HOUR))
    reported = [event for event in await again.reports(handle) if isinstance(event, Reported)]
    assert [(event.index, event.value) for event in reported] == [(0, 2), (1, 4), (2, 6), (3, 8), (4, 8)]
    assert reported[-1].kind is MetricKind.FINAL


@pytest.mark.process
async def test_a_further_attempt_goes_on_from_the_checkpoint_and_slots_are_limited(tmp_path: Path) -> None:
    simulated = service(tmp_path, slots=1, checkpoint_every=1, speed_up=1.0)
    await simulated.open()
    handle = await simulated.submit(job("a"))
    with pytest.raises(NoCapacity, match="all 1 slots are taken"):
        await simulated.submit(job("b"))
    simulated._epoch -= 2000.0
    await simulated.cancel(handle)
    assert (await simulated.poll([handle]))[0].state is JobState.CANCELED
    assert (await simulated.submit(job("a", 1)))["plan"]["first"] == 2


@pytest.mark.process
async def test_a_candidate_with_a_larger_budget_does_only_the_further_steps(tmp_path: Path) -> None:
    simulated = service(tmp_path, objective="objective.py:budgeted", speed_up=1.0)
    (tmp_path / "objective.py").write_text("def budgeted(p):\n    return list(range(1, p['TRIAL_BUDGET'] + 1))\n")
    await simulated.open()
    folders = {"load_checkpoint_dir": "/0/0", "save_checkpoint_dir": "/0/0"}
    await simulated.submit(job("a", parameters={"TRIAL_BUDGET": 2, **folders}))
    await simulated.submit(job("b", parameters={"TRIAL_BUDGET": 2, **folders, "save_checkpoint_dir": "/1/0"}))
    simulated._epoch -= 1800.0
    promoted = await simulated.submit(
        job("c", parameters={"TRIAL_BUDGET": 6, **folders, "save_checkpoint_dir": "/0/1"})
    )
    simulated._epoch -= 3000.0
    reported = [event.value for event in await simulated.reports(promoted) if isinstance(event, Reported)]
    assert reported == [3, 4, 5, 6, 6]
    assert (await simulated.poll([promoted]))[0].state is JobState.SUCCEEDED


async def test_a_submission_reads_the_plans_of_no_others_but_those_whose_checkpoint_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "curves.jsonl"
    file.write_text("[1, 2]\n")
    simulated = service(tmp_path, objective=None, curves=file, slots=9)
    await simulated.open()
    for trial in "abcd":
        await simulated.submit(job(trial))
    again = service(tmp_path, slots=5)
    await again.open()
    read: list[str] = []
    real = _last_attempts.read_object
    monkeypatch.setattr(_last_attempts, "read_object", lambda path: [read.append(path.stem), real(path)][1])
    monkeypatch.setattr(again, "_curves", [[1.0, 2.0]])
    await again.submit(job("e"))
    assert read == ["e"]
    with pytest.raises(NoCapacity, match="all 5 slots are taken"):
        await again.submit(job("f"))


@pytest.mark.process
async def test_an_objective_that_fails_says_why(tmp_path: Path) -> None:
    simulated = service(tmp_path, objective="objective.py:gone")
    await simulated.open()
    with pytest.raises(ConfigError, match=r"the objective objective.py:gone failed: KeyError: 'gone'"):
        await simulated.submit(job("a"))


@pytest.mark.process
async def test_an_objective_that_ends_its_process_says_that_there_is_no_curve(tmp_path: Path) -> None:
    simulated = service(tmp_path, objective="objective.py:leaves")
    (tmp_path / "objective.py").write_text("import os\ndef leaves(p):\n    os._exit(0)\n")
    await simulated.open()
    with pytest.raises(ConfigError, match=r"objective.py:leaves gave an empty curve"):
        await simulated.submit(job("a"))


async def test_files_that_are_no_text_are_told(tmp_path: Path) -> None:
    file = tmp_path / "curves.jsonl"
    file.write_bytes(b"[1, 2]\n\xff\n")
    with pytest.raises(ConfigError, match=r"curves: .*curves.jsonl cannot be read: 'utf-8' codec"):
        await service(tmp_path, objective=None, curves=file).open()
    file.write_text("[1, 2]\n")
    simulated = service(tmp_path, objective=None, curves=file)
    await simulated.open()
    await simulated.submit(job("a"))
    (own,) = (tmp_path / "simulated").glob("*/a.json")
    own.write_text("{")
    with pytest.raises(ServiceError, match=r"a.json cannot be read .*; remove it if it is damaged"):
        await simulated.submit(job("a"))


async def test_recorded_curves_are_taken_in_turn_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "curves.jsonl"
    file.write_text("[1, 2]\n[]\n")
    given = {"objective": None, "curves": file}
    with pytest.raises(ConfigError, match="line 2 of"):
        await service(tmp_path, **given).open()
    file.write_text("[1, 2]\n")
    simulated = service(tmp_path, **given)
    await simulated.open()
    assert json.loads(json.dumps(await simulated.submit(job("a"))))["curve"] == [1.0, 2.0]
