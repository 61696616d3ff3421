"""Asks NNI's program and ours the same questions, and compares the parameters that they draw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nni_answers
from nnilite._keeper import SHIM

DRAWS = 2000
CHOICES = ["a", "b", "c", "d"]
NUMBERS = {
    "numbers": {"_type": "choice", "_value": [1, 2, 4, 8]},
    "randint": {"_type": "randint", "_value": [-2, 9]},
    "uniform": {"_type": "uniform", "_value": [-1.0, 3.0]},
    "quniform": {"_type": "quniform", "_value": [0.0, 10.0, 2.5]},
    "quniform with odd ends": {"_type": "quniform", "_value": [2.0, 10.0, 5.0]},
    "loguniform": {"_type": "loguniform", "_value": [0.0001, 10.0]},
    "qloguniform": {"_type": "qloguniform", "_value": [1.0, 100.0, 3.0]},
}
SPACE = {
    **NUMBERS,
    "texts": {"_type": "choice", "_value": CHOICES},
    "normal": {"_type": "normal", "_value": [1.0, 2.0]},
    "qnormal": {"_type": "qnormal", "_value": [1.0, 5.0, 2.0]},
    "lognormal": {"_type": "lognormal", "_value": [0.0, 1.0]},
    "qlognormal": {"_type": "qlognormal", "_value": [0.0, 1.0, 0.5]},
}


class Answers:
    """Asks NNI's program and ours the same questions.

    NNI's SMAC writes files into its `folder`. `modules` is a folder of more modules for NNI's program.
    """

    def __init__(self, python: Path, folder: Path, modules: str = "") -> None:
        self._folder = folder
        self._theirs = self._start(str(python), modules)
        self._ours = self._start(sys.executable, str(SHIM))

    def _start(self, python: str, modules: str) -> subprocess.Popen[str]:
        how: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": self._folder}
        variables = {**os.environ, "PYTHONPATH": modules}
        return subprocess.Popen([python, nni_answers.__file__], **how, env=variables)

    def ask(self, question: str, *arguments: Any) -> tuple[Any, Any]:
        """Return NNI's answer and ours."""
        for program in (self._theirs, self._ours):
            assert program.stdin
            program.stdin.write(json.dumps([question, *arguments]) + "\n")
            program.stdin.flush()
        return self._read(self._theirs), self._read(self._ours)

    @staticmethod
    def _read(program: subprocess.Popen[str]) -> Any:
        assert program.stdout
        for line in program.stdout:
            if line.startswith(nni_answers.MARK):  # NNI prints, too
                return json.loads(line.removeprefix(nni_answers.MARK))
        raise AssertionError(f"{program.args} has ended")

    def close(self) -> None:
        for program in (self._theirs, self._ours):
            with program:
                program.communicate(timeout=60)


def find_far_columns(theirs: list[Any], ours: list[Any], space: dict[str, Any]) -> dict[str, float]:
    """By name, the columns whose distributions differ, by the test of Kolmogorov and Smirnov."""
    from scipy.stats import ks_2samp

    far = {}
    for name, about in space.items():
        columns = [[_as_number(about, one[name]) for one in draws] for draws in (theirs, ours)]
        chance = ks_2samp(*columns, method="asymp").pvalue
        if chance < 1e-4:
            far[name] = chance
    return far


def count_ends(*drawn: list[Any]) -> list[float]:
    """Return the share of draws at an end of the quniform. Of its five steps two are ends."""
    return [sum(one["quniform"] in (0.0, 10.0) for one in draws) / len(draws) for draws in drawn]


def _as_number(about: Any, value: Any) -> float:
    return float(about["_value"].index(value)) if about["_type"] == "choice" else float(value)
