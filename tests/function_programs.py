"""Programs of users whose function runs as trials, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_LIMIT_S = 200.0
_started: list[subprocess.Popen[str]] = []

HEAD = """
import json, os, sys, time
from nnilite import Experiment, Search
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
"""

TELL = """
found = {"states": [one.state.value for one in result.trials], "best": result.best and result.best.value,
         "reported": sorted(map(len, result.intermediate.values())), "ids": [one.id for one in result.trials]}
print("FOUND " + json.dumps(found))
"""
"""Prints what `found` reads."""


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(HEAD + text)
    return folder / name


def start(program: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(program), *words]
    out = subprocess.PIPE
    process = subprocess.Popen(command, env=dict(os.environ), cwd=program.parent, stdout=out, stderr=out, text=True)
    _started.append(process)
    return process


def kill_all() -> None:
    """Kill what a test that has failed leaves."""
    while _started:
        with _started.pop() as process:
            process.kill()


def run(program: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """What it prints on standard output and on standard error."""
    return end(start(program, *words), code)


def end(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    with process:
        try:
            out, err = process.communicate(timeout=_LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == code, out + err
    return out, err


ELSEWHERE = """
import functools
from inner.model import train
search = Search({"x": {"_type": "choice", "_value": [1, 2, 3]}}, tuner="GridSearch", optimize="minimize")
result = search.run(functools.partial(train, offset=1), concurrency=2, on="config.yaml")
assert search.result() == result
"""
MODEL = """
from beside import square

def train(parameters, report, offset):
    report(parameters["x"])
    if parameters["x"] == 3:
        raise ValueError("three")
    return {"default": square(parameters["x"]) + offset, "what": {1, 2}}
"""


def check_function_on(folder: Path, section: Mapping[str, Any], **fields: Any) -> None:
    """Run a function on a training service: its code, what it is bound to, its reports, results and errors."""
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "model.py").write_text(MODEL)
    (folder / "beside.py").write_text("def square(x):\n    return x * x\n")
    config = {"trialConcurrency": 2, "maxTrialNumber": 3, "trainingService": dict(section), **fields}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    out, err = run(write(folder, ELSEWHERE + TELL))
    seen = json.loads(out.rpartition("FOUND ")[2])
    assert seen["states"] == ["SUCCEEDED", "SUCCEEDED", "FAILED"], err
    assert seen["best"] == {"default": 2, "what": "results/what.pickle"}
    assert seen["reported"] == [1, 1, 1]
    assert f'File "{folder / "inner" / "model.py"}", line 7, in train\n    raise ValueError("three")' in err
