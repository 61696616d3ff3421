"""The Python API against a stand-in for the manager: NNI's methods and shapes."""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from interrupts import is_interrupted_at
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import launch, managers
from nnilite.errors import ConfigError, Conflict, NotFound
from nnilite.experiment import Experiment, NotRunning, RunMode, TrialHyperParameters, TrialResult
from stand_in_manager import StandIn, stand_in_manager

TRIAL = {
    "id": "trial1",
    "sequence": 3,
    "state": "SUCCEEDED",
    "reason": "",
    "parameters": {"x": 0.5},
    "parameterId": 7,
    "source": "algorithm",
    "attempt": 1,
    "created": 1.0,
    "started": 1.5,
    "ended": 3.5,
    "value": {"default": "Infinity"},
}
FINAL = {
    "trial": "trial1",
    "attempt": 1,
    "kind": "FINAL",
    "sequence": 0,
    "value": {"default": "Infinity"},
    "time": 3.25,
}
PROFILE = {
    "id": "abcd",
    "state": "RUNNING",
    "reason": "",
    "config": {"trialCommand": "true"},
    "directory": "/kept/abcd",
    "started": 1.0,
    "ended": None,
    "duration": 12.4,
    "counts": {"SUCCEEDED": 4, "FAILED": 0},
    "limits": {"maxTrialNumber": 5},
    "best": None,
    "nextSequence": 5,
    "revision": 9,
}


@pytest.fixture
def manager() -> Iterator[StandIn]:
    with stand_in_manager() as found:
        found.says("GET /experiment", PROFILE)
        found.says("GET /trials", {"trials": [TRIAL], "total": 1})
        found.says("GET /trials/trial1", {**TRIAL, "attempts": []})
        found.says("GET /metrics", {"metrics": [FINAL], "next": 1})
        found.says("GET /trials/trial1/metrics", {"metrics": [FINAL], "next": 1})
        found.says("POST /experiment/stop", {"stopping": True}, 202)
        yield found


@pytest.fixture
def entry(manager: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryEntry:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    port = int(manager.url.rpartition(":")[2])
    return RegistryEntry(id="abcd", name="", directory=tmp_path / "abcd", port=port, url=manager.url, alive=True)


@pytest.fixture
def experiment(entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setattr(registry, "entries", lambda: [entry])
    assert entry.port is not None
    return Experiment.connect(entry.port)


class _Config:
    warnings: tuple[str, ...] = ()

    def checked(self) -> _Config:
        return self


def test_a_trial_job_has_nnis_fields(experiment: Experiment, entry: RegistryEntry) -> None:
    job = experiment.get_trial_job("trial1")
    assert (job.trialJobId, job.status, job.sequenceId) == ("trial1", "SUCCEEDED", 3)
    assert (job.startTime, job.endTime, job.message) == (1500, 3500, "--")
    assert job.hyperParameters == [TrialHyperParameters(7, "algorithm", {"x": 0.5}, 0)]
    assert job.stderrPath == f"{entry.directory}/trials/trial1/1/trial.stderr"
    assert (job.finalMetricData[0].timestamp, job.finalMetricData[0].parameterId) == (3250, "7")


def test_trial_jobs_are_listed_with_their_final_metrics(experiment: Experiment) -> None:
    (job,) = experiment.list_trial_jobs()
    assert job.finalMetricData[0].data == {"default": math.inf}


def test_statistics_leave_out_what_there_is_none_of(experiment: Experiment) -> None:
    assert experiment.get_job_statistics() == [{"trialJobStatus": "SUCCEEDED", "trialJobNumber": 4}]


def test_metrics_are_grouped_by_trial(experiment: Experiment) -> None:
    for metrics in (experiment.get_job_metrics(), experiment.get_job_metrics("trial1")):
        assert [one.type for one in metrics["trial1"]] == ["FINAL"]


def test_exported_data_is_decoded(experiment: Experiment, manager: StandIn) -> None:
    assert experiment.export_data() == [TrialResult({"x": 0.5}, {"default": math.inf}, "trial1")]
    assert "state=SUCCEEDED" in manager.asked[-1].path


def test_the_profile_has_nnis_fields(experiment: Experiment) -> None:
    profile = experiment.get_experiment_profile()
    assert profile["params"] == {"trialCommand": "true"}
    assert (profile["execDuration"], profile["startTime"], profile["nextSequenceId"]) == (12, 1000, 5)


def test_metadata_is_known_without_asking_the_manager(experiment: Experiment, manager: StandIn) -> None:
    before = len(manager.asked)
    assert experiment.get_experiment_metadata("abcd") == experiment.get_all_experiments_metadata()[0]
    with pytest.raises(NotFound):
        experiment.get_experiment_metadata("nosuch")
    assert len(manager.asked) == before


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        (lambda e: e.update_trial_concurrency(3), {"trialConcurrency": 3}),
        (lambda e: e.update_max_trial_number(9), {"maxTrialNumber": 9}),
        (lambda e: e.update_max_experiment_duration("2h"), {"maxExperimentDuration": "2h"}),
        (lambda e: e.update_max_trial_duration(60), {"maxTrialDuration": 60}),
        (lambda e: e.update_max_slots(4), {"maxSlots": 4}),
        (lambda e: e.update_priority(None), {"priority": None}),
        (lambda e: e.update_search_space({"x": {}}), {"searchSpace": {"x": {}}}),
    ],
)
def test_updates_send_one_field_and_nothing_else(
    experiment: Experiment, manager: StandIn, change: Callable[[Experiment], None], sent: dict[str, Any]
) -> None:
    manager.says("PATCH /experiment", PROFILE)
    change(experiment)
    assert json.loads(manager.asked[-1].body) == sent


def test_a_customized_trial_is_added_by_its_parameters(
    experiment: Experiment, manager: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    manager.says("POST /trials", {**TRIAL, "warning": "x is odd"}, 201)
    assert experiment.add_trial_job({"x": 0.1}) == "trial1"
    assert "trial trial1: x is odd" in caplog.text


def test_numbers_of_numpy_are_sent(experiment: Experiment, manager: StandIn) -> None:
    numpy = pytest.importorskip("numpy")
    manager.says("POST /trials", {**TRIAL, "warning": ""}, 201)
    experiment.add_trial_job({"x": numpy.float32(0.5), "layers": numpy.arange(2)})
    assert json.loads(manager.asked[-1].body)["parameters"] == {"x": 0.5, "layers": [0, 1]}


def test_run_returns_soon_after_the_experiment_is_done(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []

    def done_meanwhile(pause_s: float) -> None:
        pauses_s.append(pause_s)
        manager.says("GET /experiment", {**PROFILE, "state": "DONE"})

    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr("nnilite.experiment.time.sleep", done_meanwhile)
    experiment = Experiment(_Config())  # type: ignore[arg-type]
    assert experiment.run(0) is True
    assert len(pauses_s) == 1
    assert pauses_s[0] <= 1
    atexit.unregister(experiment.stop)


def test_the_address_that_start_logs_is_one_that_opens_the_page(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    manager.says("GET /version", {"error": "sign in first"}, 401)
    manager.says("POST /sign-in-links", {"path": "/#key=once"}, 201)
    experiment = Experiment(_Config())  # type: ignore[arg-type]
    experiment.start(0)
    atexit.unregister(experiment.stop)
    assert f"{manager.url}/#key=once" in caplog.text


@pytest.mark.parametrize(("state", "result"), [("DONE", True), ("STOPPED", True), ("ERROR", False)])
def test_run_tells_how_the_experiment_ended(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch, state: str, result: bool
) -> None:
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    manager.says("GET /experiment", {**PROFILE, "state": state})
    experiment = Experiment(_Config())  # type: ignore[arg-type]
    assert experiment.run(0) is result
    atexit.unregister(experiment.stop)


def test_ctrl_c_during_run_stops_the_experiment(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: None)
    monkeypatch.setattr("nnilite.experiment.time.sleep", interrupted)
    assert Experiment(_Config()).run(0) is None  # type: ignore[arg-type]
    assert manager.asked[-1].path == "/api/v1/experiment/stop"


def test_a_signal_handler_may_stop_the_experiment_at_any_moment(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RunsOn(Exception):
        pass

    def handle() -> None:
        experiment.stop()
        events.append("stopped")

    def pause(seconds: float) -> None:
        if events.count("paused") == 2:
            raise RunsOn
        if "stopped" not in events:
            manager.says("GET /experiment", {**PROFILE, "state": "DONE"})
        events.append("paused")

    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: None)
    monkeypatch.setattr("nnilite.experiment.time.sleep", pause)
    too_early = 0
    for line in count(1, step=7):
        manager.says("GET /experiment", PROFILE)
        manager.asked.clear()
        events: list[str] = []
        experiment = Experiment(_Config())  # type: ignore[arg-type]
        try:
            if not is_interrupted_at(line, handle, lambda: experiment.run(0)):  # noqa: B023
                break
        except RunsOn:  # the handler came before the start
            too_early = line
        else:
            assert "/api/v1/experiment/stop" in [one.path for one in manager.asked]
            assert experiment.url is None
    atexit.unregister(experiment.stop)
    assert line > 100
    assert too_early < 20


def test_a_time_limit_that_is_over_once_the_manager_runs_stops_it(
    entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_: Any, **__: Any) -> None:
        running.append(entry)
        raise TimeoutError

    running: list[RegistryEntry] = []
    stopped: list[RegistryEntry] = []
    monkeypatch.setattr(launch, "create", begin)
    monkeypatch.setattr(registry, "entry", lambda _: running[-1] if running else None)
    monkeypatch.setattr(managers, "stop", stopped.append)
    with pytest.raises(TimeoutError):
        Experiment(_Config()).start(0)  # type: ignore[arg-type]
    assert stopped == [entry]
    with pytest.raises(TimeoutError):  # now it is one that another program has begun
        Experiment(_Config()).start(0)  # type: ignore[arg-type]
    assert stopped == [entry]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stop_that_a_signal_has_ended_is_completed_by_the_next_one(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TooLate(Exception):
        pass

    def ring() -> None:
        raise TooLate

    ended: list[int] = []
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: ended.append(line))
    for line in count(1, step=11):
        experiment = Experiment(_Config())  # type: ignore[arg-type]
        experiment.start(0)
        try:
            if not is_interrupted_at(line, ring, experiment.stop):
                break
        except TooLate:
            experiment.stop()
            assert ended[-1] == line
    assert line > 100


@pytest.mark.process
def test_the_end_of_a_forked_process_does_not_stop_the_experiment(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: None)
    experiment = Experiment(_Config())  # type: ignore[arg-type]
    experiment.start(0)
    left_out: list[object] = []
    monkeypatch.setattr(atexit, "unregister", left_out.append)
    child = os.fork()
    if not child:
        os._exit(experiment.stop not in left_out)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not left_out
    monkeypatch.undo()
    atexit.unregister(experiment.stop)


def test_a_second_run_under_the_same_id_says_how_to_continue(entry: RegistryEntry) -> None:
    entry.directory.mkdir()
    again = Experiment("local", id="abcd")
    again.config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    again.config.trial_command = "true"
    again.config.trial_concurrency = 1
    with pytest.raises(Conflict, match=r"abcd exists already.*nnictl resume abcd.*run_or_resume\(\)"):
        again.start(0)


def test_an_id_of_an_experiment_in_another_folder_is_not_given_again(entry: RegistryEntry, tmp_path: Path) -> None:
    entry.directory.mkdir()
    registry.add("abcd", "", entry.directory, "local", 1.0)
    again = Experiment("local", id="abcd")
    again.config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    again.config.trial_command = "true"
    again.config.trial_concurrency = 1
    again.config.experiment_working_directory = tmp_path / "elsewhere"
    with pytest.raises(Conflict, match=f"abcd exists already, in {re.escape(str(entry.directory))}; resume it"):
        again.start(0)
    known = registry.entry("abcd")
    assert known is not None
    assert known.directory == entry.directory
    assert not (tmp_path / "elsewhere").exists()


def test_an_interrupted_run_in_a_notebook_shows_at_last_that_it_is_stopped(
    entry: RegistryEntry, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, str]] = []

    class Output:
        def __init__(self, html: object) -> None: ...

        def show(self, *, last: bool = False) -> None:
            asked.append((last, manager.asked[-1].path))
            if not last:
                raise KeyboardInterrupt

    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: None)
    monkeypatch.setattr("nnilite.experiment.live_output.is_here", lambda: True)
    monkeypatch.setattr("nnilite.experiment.live_output.LiveOutput", Output)
    assert Experiment(_Config()).run(0) is None  # type: ignore[arg-type]
    assert asked == [(False, "/api/v1/experiment"), (True, "/api/v1/experiment/stop")]


def test_a_notebook_shows_where_the_experiment_is_as_plain_output(
    entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr("nnilite.experiment.live_output.is_here", lambda: True)
    Experiment(_Config()).start(0, run_mode=RunMode.Detach)  # type: ignore[arg-type]
    shown, as_a_fault = capsys.readouterr()
    assert shown.startswith("Experiment abcd is at ")
    assert as_a_fault == ""


@pytest.mark.parametrize(("mode", "detach"), [(RunMode.Background, False), (RunMode.Detach, True)])
def test_the_manager_outlives_the_program_only_if_detached(
    entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch, mode: RunMode, detach: bool
) -> None:
    given: dict[str, Any] = {}
    registered: list[object] = []
    monkeypatch.setattr(launch, "create", lambda *_, **options: given.update(options) or entry)
    monkeypatch.setattr(atexit, "register", registered.append)
    Experiment(_Config()).start(0, run_mode=mode)  # type: ignore[arg-type]
    assert given["detach"] is detach
    assert bool(registered) is not detach


def test_who_asks_for_the_state_in_a_loop_learns_once_why_it_is_error(
    experiment: Experiment, manager: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    manager.says("GET /experiment", {**PROFILE, "state": "ERROR", "reason": "the tuner failed: \x1b]0;oh"})
    assert [experiment.get_status() for _ in range(3)] == ["ERROR"] * 3
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("ERROR", "Experiment abcd ended in ERROR: the tuner failed: \\x1b]0;oh")
    ]


@pytest.mark.parametrize(("succeeded", "asked"), [(0, "descending=false"), (1, "descending=true")])
def test_run_tells_why_a_trial_failed(
    entry: RegistryEntry,
    manager: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    succeeded: int,
    asked: str,
) -> None:
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    counts = {"SUCCEEDED": succeeded, "FAILED": 2}
    manager.says("GET /experiment", {**PROFILE, "state": "DONE", "counts": counts})
    manager.says("GET /trials", {"trials": [{**TRIAL, "state": "FAILED", "reason": "no data"}], "total": 2})
    experiment = Experiment(_Config())  # type: ignore[arg-type]
    experiment.run(0)
    atexit.unregister(experiment.stop)
    assert "Trial trial1 failed: no data\n`nnictl log stderr abcd --trial trial1`" in caplog.text
    [path] = [one.path for one in manager.asked if "/trials?" in one.path]
    assert asked in path.lower(), path


def test_after_stop_every_change_says_that_it_is_not_running(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: None)
    experiment.stop()
    experiment.stop()
    for change in (lambda: experiment.kill_trial_job("t"), lambda: experiment.update_trial_concurrency(2)):
        with pytest.raises(RuntimeError, match="Experiment is not running"):
            change()
    assert experiment.url is None
    assert issubclass(NotRunning, Conflict)


def test_an_experiment_elsewhere_is_reached_by_address_and_token(manager: StandIn, entry: RegistryEntry) -> None:
    experiment = Experiment.connect(url=manager.url, token="secret")
    assert (experiment.id, experiment.get_status()) == ("abcd", "RUNNING")
    assert manager.asked[-1].headers["Authorization"] == "Bearer secret"


def test_an_experiment_without_a_config_cannot_be_started() -> None:
    with pytest.raises(Conflict, match="needs a config"):
        Experiment().start()


def test_resuming_an_unknown_experiment_is_not_found(entry: RegistryEntry) -> None:
    with pytest.raises(NotFound):
        Experiment.resume("nosuch")  # type: ignore[arg-type]
    assert Experiment(id="nosuch").has_checkpoint() is False


def test_an_id_may_be_given_to_any_object_as_in_nni_2(entry: RegistryEntry) -> None:
    with pytest.raises(NotFound, match="nosuch"):
        Experiment("local").resume("nosuch")  # type: ignore[arg-type]


def test_a_port_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="'http' is not a port"):
        Experiment("local")._options("http", False)  # type: ignore[arg-type]


def test_in_the_foreground_the_managers_log_is_shown(
    entry: RegistryEntry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "create", lambda *_, **__: entry)
    monkeypatch.setattr(managers, "wait_until_ended", lambda entry: None)
    (entry.directory / "log").mkdir(parents=True)
    (entry.directory / "log" / "manager.log").write_text("the tuner is ready\n")
    with Experiment(_Config()) as experiment:  # type: ignore[arg-type]
        experiment.start(0, run_mode=RunMode.Foreground)
    assert capsys.readouterr().err.endswith("the tuner is ready\n")


@pytest.mark.parametrize(("name", "field"), [("name", "experiment_name"), ("max_trial_number", "max_trial_number")])
def test_what_is_meant_for_the_config_is_refused_where_it_would_have_no_effect(name: str, field: str) -> None:
    experiment = Experiment("local")
    with pytest.raises(AttributeError, match=f"an Experiment has no '{name}'; set experiment.config.{field}"):
        setattr(experiment, name, 3)
    experiment.note = "of one's own"  # type: ignore[attr-defined]
    own = type("Own", (Experiment,), {})("local")
    own.name = "x"
    assert own.name == "x"
