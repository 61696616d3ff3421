"""`nnilite.Search`: a search inside the user's own program."""

from __future__ import annotations

import builtins
import importlib.util
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import nnilite
from interrupts import is_interrupted_at
from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound, PluginError, SpaceError, StoreError
from nnilite.records import TrialState
from nnilite.search import Search, TrialStopped
from nnilite.space import choice
from nnilite.tuner import Tuner

SPACE = {"x": {"_type": "uniform", "_value": [-5, 5]}, "kind": {"_type": "choice", "_value": ["it's", "$HOME\n"]}}


def bowl(parameters: dict) -> float:
    return (parameters["x"] - 1) ** 2 + (parameters["kind"] == "it's")


def test_a_search_finds_the_bottom_of_a_bowl():
    result = Search(SPACE, optimize="minimize", seed=1).run(bowl, trials=60)
    assert result.best.value < 0.1
    assert len(result.trials) == 60
    assert result.best.value == min(trial.value for trial in result.trials)


def test_a_search_can_maximise():
    result = Search(SPACE, seed=1).run(lambda p: -bowl(p), trials=40)
    assert result.best.value == max(trial.value for trial in result.trials) > -0.5


def test_the_same_seed_gives_the_same_search():
    runs = [Search(SPACE, seed=5).run(bowl, trials=25).trials for _ in range(2)]
    assert [t.parameters for t in runs[0]] == [t.parameters for t in runs[1]]


def test_a_second_run_goes_on_where_the_first_ended():
    search = Search(SPACE, optimize="minimize", seed=5)
    search.run(bowl, trials=10)
    assert [t.sequence for t in search.run(bowl, trials=5).trials] == list(range(15))


def test_failing_trials_are_counted_and_say_why():
    def objective(parameters):
        if parameters["kind"] == "it's":
            raise ValueError("no 'quotes'")
        return 1.0

    result = Search(SPACE, tuner="Random", seed=3).run(objective, trials=20)
    failed = [t for t in result.trials if t.state is TrialState.FAILED]
    assert 0 < len(failed) < 20
    assert {t.reason for t in failed} == {"ValueError: no 'quotes'"}


def test_a_search_whose_trials_all_fail_alike_ends_with_the_cause():
    def objective(parameters):
        return parameters["y"]

    with pytest.raises(
        NniliteError, match="the first 5 trials all failed with the same error: KeyError: 'y'"
    ) as caught:
        Search(SPACE).run(objective, trials=100)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("value", [None, math.nan, "half", {"acc": 1}])
def test_a_result_that_is_no_number_fails_with_a_sentence(value):
    with pytest.raises(NniliteError, match="is neither a finite number nor a dict with one under 'default'"):
        Search(SPACE).run(lambda p: value, trials=3)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_function_reports_to_its_trial_as_a_program_does(concurrency: int, capsys: pytest.CaptureFixture) -> None:
    def objective(parameters: dict) -> float:
        for step in range(3):
            nnilite.report_intermediate_result(parameters["x"] + step)
        return parameters["x"]

    result = Search(SPACE, "Random", seed=1).run(objective, trials=6, concurrency=concurrency)
    assert {trial.id: tuple(trial.value + step for step in range(3)) for trial in result} == result.intermediate
    assert capsys.readouterr().out == ""


def test_a_function_that_takes_report_reports_by_it_alone() -> None:
    def objective(parameters: dict, report: Callable[[float], None]) -> float:
        report(1)
        nnilite.report_intermediate_result(1)
        return parameters["x"]

    result = Search(SPACE, "Random", seed=1).run(objective, trials=1)
    assert result.intermediate == {"0": (1,)}


def test_a_search_inside_a_trial_leaves_the_reports_to_that_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def objective(parameters: dict) -> float:
        nnilite.report_intermediate_result(parameters["x"])
        return parameters["x"]

    (tmp_path / ".nni").mkdir()
    monkeypatch.setenv("NNI_PLATFORM", "local")
    monkeypatch.setenv("NNI_SYS_DIR", str(tmp_path))
    monkeypatch.setenv("NNILITE_METRICS", str(tmp_path / ".nni/metrics"))
    monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())
    result = Search(SPACE, "Random", seed=1).run(objective, trials=1)
    assert not result.intermediate
    assert str(result[0].value) in (tmp_path / ".nni/metrics").read_text()


def test_a_function_that_returns_nothing_is_said_to_have_to() -> None:
    with pytest.raises(NniliteError, match="let the function return the number"):
        Search(SPACE).run(lambda p: None, trials=1)


def test_a_dict_with_default_is_a_result():
    result = Search(SPACE, optimize="minimize").run(lambda p: {"default": p["x"], "other": 1}, trials=5)
    assert result.best.value["default"] == min(t.value["default"] for t in result.trials)


def test_numbers_of_numpy_are_results():
    numpy = pytest.importorskip("numpy")

    def objective(parameters, report):
        report(numpy.float32(0.25))
        return {"default": numpy.float32(0.5), "each": numpy.arange(2)}

    result = Search(SPACE).run(objective, trials=1)
    assert result.best.value == {"default": 0.5, "each": [0, 1]}
    assert result.intermediate == {"0": (0.25,)}


def test_numbers_of_numpy_are_parameters(caplog: pytest.LogCaptureFixture) -> None:
    numpy = pytest.importorskip("numpy")
    space = {
        "x": {"_type": "uniform", "_value": [numpy.float32(0), numpy.int64(1)]},
        "layers": choice(numpy.arange(2, 5)),
        "units": {"_type": "choice", "_value": numpy.array([8, 16])},
    }
    search = Search(space, "Random")
    search.enqueue({"x": numpy.float32(0.5), "layers": numpy.int64(3), "units": numpy.array(16)})
    search.add_trial({"x": numpy.array(0.25), "layers": 2, "units": 8}, numpy.float16(0.75))
    search.run(lambda p: p["x"], trials=2)
    assert search.result()[1].parameters == {"x": 0.5, "layers": 3, "units": 16}
    assert caplog.text == ""


def test_threads_run_so_many_trials_at_once_and_no_more():
    running, most, lock = set(), [0], threading.Lock()
    barrier = threading.Barrier(4)

    def objective(parameters):
        with lock:
            running.add(threading.get_ident())
            most[0] = max(most[0], len(running))
        barrier.wait(timeout=60)
        with lock:
            running.discard(threading.get_ident())
        return parameters["x"]

    assert len(Search(SPACE).run(objective, trials=12, concurrency=4).trials) == 12
    assert most[0] == 4


def test_an_assessor_stops_poor_trials_and_the_tuner_hears_of_it():
    def objective(parameters, report):
        for step in range(10):
            report(parameters["x"] - step / 100)
        return parameters["x"]

    search = Search(SPACE, tuner="Evolution", seed=1, assessor="Medianstop")
    result = search.run(objective, trials=20)
    stopped = [t for t in result.trials if t.state is TrialState.EARLY_STOPPED]
    assert stopped
    assert all(len(result.intermediate[t.id]) < 10 for t in stopped)
    assert all(point.loss is not None for point in search._tuner.points)


def test_a_time_limit_ends_the_search_and_stops_trials_that_report():
    left_s = []

    def objective(parameters, report):
        [loop] = search._loops
        left_s.append(loop._deadline - time.monotonic())
        loop._deadline = time.monotonic()  # so that no preparation, however slow, uses up the time
        while len(left_s) < 1000:
            left_s.append(0.0)
            report(0.0)

    search = Search(SPACE)
    result = search.run(objective, trials=100, timeout_s=3600.0)
    assert 0 < left_s[0] <= 3600
    assert len(left_s) < 1000, "it would last for ever"
    assert [t.state for t in result.trials] == [TrialState.SYS_CANCELED]


def test_an_exhausted_space_ends_the_search():
    space = {"kind": SPACE["kind"]}
    assert len(Search(space).run(lambda p: len(p["kind"]), trials=50).trials) == 2


def test_ask_and_tell_leave_the_loop_to_the_caller():
    search = Search(SPACE, optimize="minimize", assessor="Medianstop")
    good, poor = search.ask(), search.ask()
    assert search.report(good, 1.0)
    search.tell(good, 1.0)
    assert not search.report(poor.id, 2.0)
    search.tell(poor, state=TrialState.EARLY_STOPPED)
    assert search.result().best.id == good.id


def test_a_trial_starts_when_the_tuner_has_proposed_it(monkeypatch):
    class Thinks(Tuner):
        def update_search_space(self, search_space): ...

        def generate_parameters(self, parameter_id, **kwargs):
            clock.now_s += 60.0
            return {"x": 1.0, "kind": "it's"}

    clock = SimpleNamespace(now_s=100.0, time=lambda: clock.now_s)
    monkeypatch.setattr("nnilite.search.time", clock)
    assert Search(SPACE, Thinks()).ask().started == 160.0


def test_telling_twice_or_of_an_unknown_trial_gets_a_sentence():
    search = Search(SPACE)
    trial = search.ask()
    search.tell(trial, 1)
    with pytest.raises(Conflict, match="has ended already"):
        search.tell(trial, 2)
    with pytest.raises(NotFound, match="no trial 'ab'"):
        search.tell("ab", 2)


def test_a_search_without_any_result_has_no_best():
    assert Search(SPACE).result().best is None


def test_the_table_has_a_row_for_each_trial_and_a_column_for_each_parameter():
    inner = {"_name": "A", "n": {"_type": "randint", "_value": [0, 9]}}
    space = {**SPACE, "layer": {"_type": "choice", "_value": [inner]}}
    table = Search(space).run(bowl, trials=4).to_dataframe()
    assert len(table) == 4
    assert {"parameters.x", "parameters.layer._name", "parameters.layer.n", "value", "state"} <= set(table)


def test_a_table_without_pandas_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PluginError, match=r"nnilite\[pandas\]"):
        Search(SPACE).result().to_dataframe()


def test_wrong_arguments_get_a_sentence():
    with pytest.raises(PluginError, match="did you mean 'Random'"):
        Search(SPACE, tuner="Randm")
    with pytest.raises(ConfigError, match="not 'max'; did you mean 'maximize'"):
        Search(SPACE, optimize="max")
    with pytest.raises(ConfigError, match="did you mean tpe_args"):
        Search(SPACE, tuner="TPE", tpe_arg={})
    with pytest.raises(ConfigError, match="AutoTuner has no such argument"):
        Search(SPACE, tpe_args={})
    with pytest.raises(SpaceError, match="x"):
        Search({"x": {"_type": "uniform", "_value": [3, 1]}})
    with pytest.raises(Conflict, match="at least 1"):
        Search(SPACE).run(bowl, trials=0)


NESTED = {"model": {"_type": "choice", "_value": [{"_name": "a", "x": SPACE["x"]}, {"_name": "b"}]}}


@pytest.mark.parametrize("optimize", ["minimize", {"a": "minimize", "b": "maximize"}])
def test_the_tuner_that_nobody_names_takes_every_space_without_scikit_learn(monkeypatch, optimize):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "sklearn" else real(name, *more)
    )
    assert repr(Search(NESTED, optimize=optimize)).startswith("<Search by AutoTuner")


def test_an_objective_that_lets_trial_stopped_pass_is_no_failure():
    def objective(parameters, report):
        raise TrialStopped("enough")

    states = {t.state for t in Search(SPACE).run(objective, trials=7).trials}
    assert states == {TrialState.EARLY_STOPPED}


def test_a_search_with_several_objectives_has_a_front():
    goals = {"cost": "minimize", "gain": "maximize"}
    search = Search(SPACE, tuner="NSGA2", optimize=goals, seed=0, population_size=10)
    result = search.run(lambda p: {"cost": abs(p["x"]), "gain": p["x"]}, trials=60)
    values = sorted((t.value["cost"], t.value["gain"]) for t in result.front)
    assert len(values) > 3
    assert [gain for _, gain in values] == sorted(gain for _, gain in values)
    assert result.best.value["cost"] == min(t.value["cost"] for t in result.trials)


def test_a_result_that_lacks_an_objective_fails_with_a_sentence():
    search = Search(SPACE, tuner="NSGA2", optimize={"cost": "minimize", "gain": "maximize"})
    with pytest.raises(NniliteError, match="is not a dict with finite numbers under cost, gain"):
        search.run(lambda p: {"cost": 1}, trials=3)


def test_a_tuner_that_has_nothing_now_is_asked_again_after_a_result(tmp_path):
    search = Search(SPACE, tuner="PBT", population_size=2, all_checkpoint_dir=str(tmp_path), seed=0)
    assert len(search.run(lambda p: p["x"], trials=10, concurrency=4).trials) == 10


def test_a_tuner_whose_threads_are_shut_down_is_not_taken_for_the_programs_end():
    class Pooled(Tuner):
        def update_search_space(self, search_space):
            self.pool = ThreadPoolExecutor()
            self.pool.shutdown()

        def generate_parameters(self, parameter_id, **kwargs):
            return self.pool.submit(dict).result()

    with pytest.raises(Exception, match="cannot schedule new futures after shutdown") as failed:
        Search(SPACE, tuner=Pooled()).ask()
    assert "main thread has ended" not in str(failed.value)


def test_a_tuner_of_ones_own_is_used_as_it_is():
    class Fixed(Tuner):
        told = ()

        def update_search_space(self, search_space):
            self.space = search_space

        def generate_parameters(self, parameter_id, **kwargs):
            return {"x": parameter_id}

        def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
            self.told = (*self.told, value)

    tuner = Fixed()
    Search(SPACE, tuner=tuner).run(lambda p: p["x"], trials=3)
    assert tuner.told == (0, 1, 2)


def test_callbacks_get_each_ended_trial_and_may_stop_the_search():
    seen = []

    def note(search, trial):
        seen.append((trial.id, trial.value))
        if len(seen) == 3:
            search.stop()

    result = Search(SPACE, "Random", optimize="minimize").run(bowl, trials=20, callbacks=[note])
    assert seen == [(trial.id, trial.value) for trial in result.trials]
    assert len(seen) == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_callback_that_raises_is_named_and_no_result_is_lost(concurrency):
    def broken(search, trial):
        raise KeyError("loss")

    search = Search(SPACE, "Random", optimize="minimize")
    with pytest.raises(NniliteError, match=r"the callback broken raised KeyError: 'loss'. Trial \d is kept"):
        search.run(bowl, trials=9, concurrency=concurrency, callbacks=[broken])
    assert {trial.state for trial in search.result().trials} == {TrialState.SUCCEEDED}
    assert len(search.result().trials) <= 2 * concurrency


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_interrupted_run_leaves_no_trial_running(concurrency: int) -> None:
    search = Search(SPACE, "Random")

    def interrupted(parameters):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.run(interrupted, trials=1, concurrency=concurrency)
    assert [trial.state for trial in search.result().trials] == [TrialState.USER_CANCELED]


def test_an_interrupt_is_raised_though_the_storage_fails_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(SPACE, "Random")

    def interrupted(parameters):
        monkeypatch.setattr(search, "tell", refuse)
        raise KeyboardInterrupt

    def refuse(*_: object, **__: object) -> NoReturn:
        raise StoreError("the disk is full")

    with pytest.raises(KeyboardInterrupt):
        search.run(interrupted, trials=1)


def test_trials_in_threads_that_an_interrupt_ends_are_canceled_by_the_user() -> None:
    search, runs, calls = Search(SPACE, "Random"), threading.Event(), count()

    def train(parameters: Any, report: Any) -> float:
        if next(calls) == 0:
            assert runs.wait(30)
            return 1.0
        runs.set()
        while True:
            report(0.5)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.run(train, trials=2, concurrency=2, callbacks=[interrupt])
    ends = {(trial.state, trial.reason) for trial in search.result().trials}
    assert ends == {
        (TrialState.SUCCEEDED, ""),
        (TrialState.USER_CANCELED, "interrupted (KeyboardInterrupt)"),
    }


def is_interrupted(line: int, call: Callable[[], object]) -> bool:
    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    try:
        return is_interrupted_at(line, press_ctrl_c, call)
    except KeyboardInterrupt:
        return True


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_interrupt_at_any_line_leaves_no_trial_running_and_the_search_continues(concurrency: int) -> None:
    for line in count(1, step=13):
        search = Search(SPACE, "Random")
        if not is_interrupted(line, lambda: search.run(bowl, trials=2, concurrency=concurrency)):  # noqa: B023
            break
        known = search.result().trials
        assert {trial.state for trial in known} <= {TrialState.SUCCEEDED, TrialState.USER_CANCELED}
        assert len(search.run(bowl, trials=2).trials) == len(known) + 2
    assert line > 200


def test_an_interrupt_at_once_after_another_leaves_no_trial_running(monkeypatch: pytest.MonkeyPatch) -> None:
    search, free = Search(SPACE, "Random"), threading.Event()
    ends = iter((lambda: 1.0, free.wait))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nnilite._search.loop.log.warning", interrupt)
    with pytest.raises(KeyboardInterrupt):
        search.run(lambda _: next(ends)(), trials=2, concurrency=2, callbacks=[interrupt])
    free.set()
    assert sorted(trial.state.value for trial in search.result().trials) == ["SUCCEEDED", "USER_CANCELED"]


def test_total_counts_the_trials_of_all_runs():
    search = Search(SPACE, "Random")
    search.run(bowl, trials=4)
    assert len(search.run(bowl, total=6).trials) == 6
    assert len(search.run(bowl, total=6).trials) == 6
    with pytest.raises(Conflict, match="at least 1"):
        search.run(bowl, total=0)


def test_an_objective_may_end_its_trial_itself_in_threads_too():
    def objective(parameters, report):
        report(0.5)
        raise TrialStopped("no hope")

    result = Search(SPACE, "Random").run(objective, trials=4, concurrency=2)
    assert {(trial.state, trial.reason) for trial in result.trials} == {(TrialState.EARLY_STOPPED, "no hope")}


@pytest.mark.parametrize("digits", [400, 6000])
def test_the_digits_of_a_huge_result_are_not_all_printed(digits: int) -> None:
    with pytest.raises(NniliteError) as caught:
        Search({"x": {"_type": "uniform", "_value": [0, 1]}}, tuner="Random").run(lambda _: 10**digits, trials=2)
    assert len(str(caught.value)) < 300
    assert "is neither a finite number" in str(caught.value)


def refuse(*_: object) -> Any:
    raise RuntimeError("not even this")


Unspeakable = type("Unspeakable", (), {"__repr__": refuse, "__str__": refuse})
UnspeakableError = type("UnspeakableError", (Exception,), {"__repr__": refuse, "__str__": refuse})


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("odd", [Unspeakable(), UnspeakableError(), {"default": Unspeakable()}])
def test_a_result_or_an_error_that_cannot_be_shown_fails_its_trial_alone(odd: Any, concurrency: int) -> None:
    calls = count(1)

    def objective(parameters: Any) -> Any:
        if next(calls) < 4:  # it begins when others have ended well
            return parameters["x"]
        if isinstance(odd, Exception):
            raise odd
        return odd

    found = Search(SPACE, tuner="Random").run(objective, 4, concurrency)
    assert sorted(trial.state.name for trial in found.trials) == ["FAILED", *["SUCCEEDED"] * 3]
    said = " ".join(trial.reason for trial in found.trials)
    assert ", whose repr() raises RuntimeError>" in said or "<exception str() failed>" in said
