"""What of a function can be sent to trials, and what is said of one that cannot."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from interrupts import is_interrupted_at
from nnilite import Search
from nnilite._experiments.registry import RegistryEntry
from nnilite._functions import call_program, experiment_function
from nnilite._functions.function_folder import code_root, prepare_function
from nnilite._functions.function_run import FunctionRun
from nnilite._functions.pickled import MOST_BYTES, pickle_function
from nnilite._functions.run_targets import config_on
from nnilite._search.function_arguments import count_arguments
from nnilite._search.plan import Plan
from nnilite.config import ExperimentConfig, ServiceConfig
from nnilite.errors import ConfigError, Conflict, NniliteError, ServiceError
from nnilite.records import Trial, TrialState
from stand_in_manager import TRIAL

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


def plain(parameters: Any) -> Any:
    return parameters["x"]


async def waits(parameters: Any) -> Any:
    return parameters


def yields(parameters: Any) -> Any:
    yield parameters


class Called:
    def __call__(self, parameters: Any, report: Any) -> Any:
        report(1)
        return parameters


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (plain, 1),
        (lambda parameters, report: 1, 2),
        (lambda parameters, report=None: 1, 2),
        (lambda parameters, rate=0.1: 1, 1),
        (lambda parameters, *more: 1, 1),
        (functools.partial(lambda parameters, report, by: 1, by=2), 2),
        (Called(), 2),
        (Called().__call__, 2),
        (abs, 1),
    ],
)
def test_a_function_says_what_it_takes(function: Any, count: int) -> None:
    assert count_arguments(function) == count


WRONG = [
    (waits, "waits is `async`, and nothing would await it"),
    (functools.partial(waits), "waits is `async`"),
    (yields, "yields has a `yield`"),
    (3, "an objective must be a function, not 3"),
    (lambda: 1, "cannot be called with the parameters"),
    (lambda x, y, z: 1, r"\(x, y, z\) cannot be called with the parameters, or with the parameters and `report`"),
]


@pytest.mark.parametrize(("function", "sentence"), WRONG, ids=[str(n) for n in range(len(WRONG))])
@pytest.mark.parametrize("on", [None, "local"])
def test_what_cannot_be_called_is_told_before_the_first_trial(function: Any, sentence: str, on: str | None) -> None:
    search = Search(SPACE, tuner="Random")
    with pytest.raises(Conflict, match=sentence):
        search.run(function, trials=3, on=on)
    assert len(search.result().trials) == 0


def test_a_function_of_a_module_is_sent_by_name() -> None:
    found = pickle_function(pickle.dumps)
    assert not found.by_value
    assert pickle.loads(found.data) is pickle.dumps
    assert pickle_function(lambda parameters: parameters).by_value


def test_a_function_of_a_script_travels_from_processes_that_spawn_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("__mp_main__")
    exec("import math\ndef root(x): return helped(x)\ndef helped(x): return math.sqrt(x)\n", vars(script))
    monkeypatch.setitem(sys.modules, "__mp_main__", script)
    sent = pickle_function(script.root)
    monkeypatch.delitem(sys.modules, "__mp_main__")
    assert sent.by_value
    assert pickle.loads(sent.data)(4) == 2


def test_the_part_that_is_too_large_is_named_without_filling_the_memory() -> None:
    with pytest.raises(Conflict, match=r"because of its bound argument 'data' \(bytes, above 16 MB\); the limit is 16"):
        pickle_function(functools.partial(plain, data=bytes(MOST_BYTES + 1)))


def test_the_part_that_cannot_be_sent_is_named_with_a_way_out() -> None:
    lock = threading.Lock()

    def held(parameters: Any) -> Any:
        with lock:
            return parameters

    with pytest.raises(Conflict, match=r"because of the variable 'lock' around it \(lock\): .*inside of the function"):
        pickle_function(held)


def test_the_time_limit_of_a_program_is_not_taken_for_a_part_that_cannot_be_sent() -> None:
    def ring() -> None:
        raise TimeoutError("the program's own")

    for line in (1, 4, 8):
        with pytest.raises(TimeoutError, match="the program's own"):
            is_interrupted_at(line, ring, lambda: pickle_function(functools.partial(plain, data=1)))


def test_a_module_that_would_not_travel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lies_elsewhere.py").write_text("def train(parameters):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import lies_elsewhere  # type: ignore[import-not-found]

    other = tmp_path / "code"
    other.mkdir()
    assert code_root(lies_elsewhere.train) == tmp_path
    with pytest.raises(Conflict, match=r"needs the module lies_elsewhere .*not in the code directory"):
        prepare_function(lies_elsewhere.train, ["default"], root=other, sent=True)


def test_where_trials_run_is_a_file_a_config_a_name_or_an_address(tmp_path: Path) -> None:
    (tmp_path / "some where.yaml").write_text("trialConcurrency: 3\ntrainingService: {platform: local}\n")
    assert config_on(str(tmp_path / "some where.yaml")).trial_concurrency == 3
    assert config_on("local").training_service.platform == "local"
    given = ExperimentConfig("local")
    assert config_on(given) is not given
    assert config_on(ServiceConfig("local", isolate_code=True)).training_service.isolate_code is True
    machines = config_on("ssh://Me@Some-Host:2222,other").training_service.machine_list
    assert machines == [{"host": "Some-Host", "user": "Me", "port": 2222}, {"host": "other"}]


@pytest.mark.parametrize(
    ("on", "sentence"),
    [
        ("slurn", "on='slurn': there is no training service 'slurn'; did you mean 'slurm'"),
        ("ssh://me:secret@host", "an address must hold no password"),
        ("ssh://host/folder", "has something after the machine"),
        ("ftp://host", "there is no scheme of addresses 'ftp'"),
        ("not there.yaml", "not there.yaml"),
        ("ssh://[::1", r"on='ssh://\[::1' is not an address: Invalid IPv6 URL"),
    ],
)
def test_another_place_is_refused_in_a_sentence(on: str, sentence: str) -> None:
    with pytest.raises(NniliteError, match=sentence):
        config_on(on)


def test_inline_calls_in_this_thread() -> None:
    seen = []

    def train(parameters: Any) -> Any:
        seen.append(threading.current_thread())
        return parameters["x"]

    Search(SPACE, tuner="Random").run(train, trials=3, concurrency=2, on="inline")
    assert seen == [threading.main_thread()] * 3


@pytest.mark.parametrize(
    "words", [{"id": "a"}, {"python": "python3"}, {"on": "local", "processes": True}, {"code_directory": "."}]
)
def test_options_without_effect_are_refused(words: Any) -> None:
    with pytest.raises(Conflict):
        Search(SPACE, tuner="Random").run(plain, **words)


@pytest.mark.process
def test_the_program_of_trials_compiles_for_python_38(tmp_path: Path) -> None:
    import ast

    from nnilite._functions import call_program

    source = Path(call_program.__file__).read_text()
    ast.parse(source, feature_version=(3, 8))
    ran = subprocess.run([sys.executable, "-S", call_program.__file__], capture_output=True, text=True, cwd=tmp_path)
    assert "call.json" in ran.stderr


class OneFailure:
    """A manager whose only trial has failed, and has printed what a terminal would obey."""

    def trials(self, **_: Any) -> list[Any]:
        return []

    def output(self, trial: str, stream: str, *_: int) -> tuple[bytes, int]:
        return b"Traceback (most recent call last):\n\x1b]52;c;aGk=\x07ValueError: odd\n", 0


def test_what_a_trial_prints_does_not_control_the_terminal_of_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = RegistryEntry("rates", "", tmp_path, "local")
    run = FunctionRun(entry, cast(Any, OneFailure()), lambda trial: None, 0.0)
    run._tell_failure(Trial("t0", 0, {}, state=TrialState.FAILED, reason="exit code 1: \x1b]0;title\x07"))
    (line,) = caplog.messages
    assert "ValueError: odd" in line
    assert "\x1b" not in line
    refused = call_program.REFUSED + "no module \x9b2J"
    with pytest.raises(NniliteError, match=r"no module \\x9b2J"):
        run._tell_failure(Trial("t1", 1, {}, state=TrialState.FAILED, reason=refused))


def test_a_trial_that_ends_before_the_program_follows_is_told_and_one_before_a_resume_is_not() -> None:
    class Manager:
        def trials(self, **_: Any) -> list[dict[str, Any]]:
            return [{**TRIAL, "id": "fast", "ended": 12.0}, {**TRIAL, "id": "before", "ended": 8.0}]

        def output(self, *_: Any, **__: Any) -> tuple[bytes, int]:
            return b"", 0

    told: list[str] = []
    run = FunctionRun(None, Manager(), lambda trial: told.append(trial.id), 10.0)  # type: ignore[arg-type]
    run._look({"counts": {"SUCCEEDED": 2}})
    assert told == ["fast"]


def test_output_that_its_platform_cannot_give_now_does_not_end_a_run() -> None:
    class Manager:
        def trials(self, **_: Any) -> list[dict[str, Any]]:
            return [{"id": "a", "state": "RUNNING"}]

        def output(self, *_: Any, **__: Any) -> None:
            raise ServiceError("slurm is not open")

    run = FunctionRun(None, Manager(), print, 0.0)  # type: ignore[arg-type]
    run._listen()
    run._tell_failure(Trial("a", 0, {}, state=TrialState.FAILED, reason="it failed"))


def test_a_tuner_in_the_form_of_yaml_is_taken_and_a_name_alone_is_refused_in_a_sentence() -> None:
    config = ExperimentConfig("local")
    config.tuner = {"name": "TPE", "classArgs": {"seed": 3}}
    plan = Plan({"x": {"_type": "uniform", "_value": [0, 1]}}, "", "minimize")
    plan.fill(config)
    assert config.tuner.class_args == {"optimize_mode": "minimize", "seed": 3}
    config.tuner = "TPE"
    with pytest.raises(ConfigError, match=r"tuner: must be a dict such as \{'name': 'TPE'\}, not 'TPE'"):
        plan.fill(config)


MANY = {"objectives": {"default": "minimize", "cost": "maximize"}}
ONE = {"optimize_mode": "minimize"}


@pytest.mark.parametrize(("tuner", "goal"), [("NSGA2", MANY), ("Auto", MANY), ("Auto", ONE), ("TPE", ONE), (None, ONE)])
def test_an_experiment_optimizes_what_its_config_says_unless_run_says_it(
    tuner: str | None, goal: dict[str, Any]
) -> None:
    def planned(**options: Any) -> dict[str, Any]:
        config = ExperimentConfig("local")
        config.tuner.name, config.tuner.class_args = tuner, dict(goal)
        space = {"x": {"_type": "uniform", "_value": [0, 1]}}
        return experiment_function.planned(config, "a", plain, space=space, **options).config.tuner.class_args

    found = planned()
    assert found.items() >= goal.items()
    assert len({"optimize_mode", "objectives"} & found.keys()) == 1
    with pytest.raises(Conflict, match="say the same"):
        planned(optimize={"a": "minimize"} if goal is MANY else "maximize")


@pytest.mark.parametrize("tuner", ["NSGA2", "Auto", None])
def test_a_search_of_one_goal_is_not_given_to_a_tuner_of_several(tuner: str | None) -> None:
    config = ExperimentConfig("local")
    config.tuner.name, config.tuner.class_args = tuner, MANY
    with pytest.raises(Conflict, match=r"the config's tuner has objectives .*optimize='minimize'; say the same"):
        Plan({"x": {"_type": "uniform", "_value": [0, 1]}}, "", "minimize").fill(config)


class Odd:
    def __repr__(self) -> str:
        raise KeyError(1)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (Odd(), "it returned <Odd, whose repr() raises KeyError> (Odd), which is not a number"),
        ({"loss": 1}, "it returned a dict without default: {'loss': 1}"),
    ],
    ids=["no text", "other name"],
)
def test_a_result_that_is_no_number_is_refused(result: Any, sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_program._result(result, ["default"])
    assert sentence in capfd.readouterr().err
