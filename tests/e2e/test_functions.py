"""A Python function as a trial: real programs, managers and trials on this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import function_programs as programs
from nnilite._experiments import registry
from nnilite._running import managers
from nnilite.testing import eventually

pytestmark = pytest.mark.timeout(400)

TRAIN = """
from beside import square

def train(parameters, report, scale=1):
    for step in range(3):
        report(step)
    return square(parameters["x"]) * scale
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    place = tmp_path / 'the "code"'
    place.mkdir()
    (place / "beside.py").write_text("def square(x):\n    return x * x\n")
    yield place
    programs.kill_all()
    for entry in [one for one in registry.entries() if one.alive]:
        managers.stop(entry)


def found(out: str) -> Any:
    return json.loads(out.rpartition("FOUND ")[2])


def alive() -> list[str]:
    return [entry.id for entry in registry.entries() if entry.alive]


RUN = "search = Search(SPACE, tuner='Random', optimize='minimize', seed=1)\n"


def test_a_script_runs_its_own_function_as_trials(folder: Path) -> None:
    text = TRAIN + RUN
    text += """
search.enqueue({"x": 0.5})
result = search.run(train, trials=3, concurrency=2, on="local")
assert {"x": 0.5} in [trial.parameters for trial in result]
"""
    seen = found(programs.run(programs.write(folder, text + programs.TELL))[0])
    assert seen["states"] == ["SUCCEEDED"] * 3
    assert seen["reported"] == [3, 3, 3]
    assert 0 <= seen["best"] <= 1
    assert alive() == []


def test_code_is_sent_as_it_was_and_the_callers_paths_are_in_tracebacks(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "model.py").write_text(
        "import functools\n\ndef train(parameters, by):\n    open('here', 'w')\n    return 1 / (by - by)\n"
    )
    text = """
import functools
from inner.model import train
from nnilite.config import ExperimentConfig, ServiceConfig
search = Search(SPACE, tuner="Random")
try:
    search.run(functools.partial(train, by=2), trials=1, on=ServiceConfig("local", isolate_code=True))
except Exception as error:
    print(type(error).__name__, error)
"""
    _, err = programs.run(programs.write(folder, text))
    assert f'File "{folder / "inner" / "model.py"}", line 5, in train\n    return 1 / (by - by)' in err
    assert "call.py" not in err
    assert "ZeroDivisionError: division by zero" in err
    assert not (folder / "here").exists()


def test_an_experiment_of_a_function_goes_on_by_its_id(folder: Path) -> None:
    text = """
def train(parameters):
    with open("calls", "a") as file:
        file.write("x")
    return {"default": parameters["x"], "model": object}

experiment = Experiment("local", id="mine")
experiment.config.tuner.name = "Random"
ended = []
result = experiment.run(train, space=SPACE, trials=int(sys.argv[1]), callbacks=[lambda e, t: ended.append(t)], port=0)
assert experiment.best == result.best
experiment.remark_trial(result.best.id, tags=["good"])
assert experiment.remark_trial(result.best.id, note="the best")["tags"] == ["good"]
experiment.add_trial({"x": 0.5}, 0.5)
assert len(ended) == int(sys.argv[2]), ended
"""
    program = programs.write(folder, text + programs.TELL)
    before = found(programs.run(program, "2", "2")[0])
    after = found(programs.run(program, "3", "1")[0])
    assert after["ids"][:2] == before["ids"]
    assert (folder / "calls").read_text() == "xxx"
    assert after["best"]["model"] == "results/model.pickle"
    assert alive() == []
    assert len(list((registry.find("mine").directory / "trials").rglob("model.pickle"))) == 3


SLOW = """
def train(parameters):
    with open("calls", "a") as file:
        file.write("x")
    if os.path.exists("hold"):
        time.sleep(600)
    return parameters["x"]

search = Search(SPACE, tuner="Random")
result = search.run(train, trials=4, on="local", id="mine")
"""


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text()) if (folder / "calls").exists() else 0


def test_a_killed_program_leaves_nothing_and_its_experiment_goes_on(folder: Path) -> None:
    program = programs.write(folder, SLOW.replace('"hold")', '"hold") and calls() > 2') + programs.TELL)
    program.write_text(
        program.read_text().replace("def train", "def calls():\n    return os.path.getsize('calls')\n\ndef train")
    )
    (folder / "hold").touch()
    process = programs.start(program)
    eventually(lambda: calls(folder) == 3, limit_s=120)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    eventually(lambda: alive() == [], limit_s=90)
    (folder / "hold").unlink()
    seen = found(programs.run(program)[0])
    assert seen["states"].count("SUCCEEDED") >= 3
    assert calls(folder) <= 5  # the two that had ended were not called again
    assert alive() == []


def test_a_killed_manager_is_resumed_and_calls_nothing_twice(folder: Path) -> None:
    (folder / "hold").touch()
    program = programs.write(
        folder, SLOW.replace("time.sleep(600)", "time.sleep(0.1)").replace("if os", "while os") + programs.TELL
    )
    process = programs.start(program)
    eventually(lambda: calls(folder) == 1, limit_s=120)
    pid = registry.find("mine").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: registry.find("mine").pid not in (pid, None) and registry.find("mine").alive, limit_s=120)
    (folder / "hold").unlink()
    out, err = programs.end(process)
    assert found(out)["states"] == ["SUCCEEDED"] * 4
    assert "the manager of experiment mine has gone, and is resumed" in err
    assert calls(folder) == 4
    assert alive() == []


def test_ctrl_c_ends_trials_and_manager(folder: Path) -> None:
    (folder / "hold").touch()
    text = SLOW.replace("result =", "try:\n    result =") + "except KeyboardInterrupt:\n    result = search.result()\n"
    process = programs.start(programs.write(folder, text + programs.TELL))
    eventually(lambda: calls(folder) == 1, limit_s=120)
    process.send_signal(signal.SIGINT)
    assert "SUCCEEDED" not in found(programs.end(process)[0])["states"]
    assert alive() == []


WRONG = [
    (
        "def train(p):\n    return p['x'], 1",
        "which is not a number. Return a number, or a dict with one under 'default'",
    ),
    ("def train(p):\n    import not_there_at_all\n    return 1", ""),
    (
        "class Odd:\n    def __reduce__(self): return (exec, ('import not_there_at_all',))\n"
        "def train(p, one=Odd()):\n    return 1",
        "has no module 'not_there_at_all'. Install it there, or put it into",
    ),
]


@pytest.mark.parametrize(
    ("train", "sentence"),
    [WRONG[0], *(pytest.param(*wrong, marks=pytest.mark.long) for wrong in WRONG[1:])],
    ids=["tuple", "as usual", "no module"],
)
def test_what_fails_always_is_told_at_the_first_trial(folder: Path, train: str, sentence: str) -> None:
    text = (
        train
        + """
search = Search(SPACE, tuner="Random")
try:
    search.run(train, trials=6, on="local", concurrency=1)
except Exception as error:
    print("RAISED", len(search.result().trials), type(error).__name__, error)
"""
    )
    out, err = programs.run(programs.write(folder, text))
    assert sentence in out
    if sentence:
        assert "RAISED 1 NniliteError trial " in out or "RAISED 2 NniliteError trial" in out
    else:
        assert "RAISED 5 NniliteError" in out
        assert "ModuleNotFoundError: No module named 'not_there_at_all'\nthe worker's Python (" in err
        assert "has no module 'not_there_at_all'. Install it there" in err


def test_another_cloudpickle_of_the_worker_does_no_harm(folder: Path) -> None:
    old = folder / "old" / "cloudpickle"
    old.mkdir(parents=True)
    (old / "__init__.py").touch()
    python = f"env 'PYTHONPATH={folder}/old' {shlex.quote(sys.executable)}"
    text = f"""
search = Search(SPACE, tuner="Random")
result = search.run(lambda p: p["x"], trials=1, on="local", python={python!r})
"""
    assert found(programs.run(programs.write(folder, text + programs.TELL))[0])["states"] == ["SUCCEEDED"]


def test_a_function_runs_on_this_machine_by_a_config_file(folder: Path) -> None:
    programs.check_function_on(folder, {"platform": "local", "isolateCode": True})
