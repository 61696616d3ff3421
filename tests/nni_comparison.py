"""Asks NNI's program and ours the same questions, and compares the parameters that they draw."""

from __future__ import annotations

import functools
import hashlib
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

    NNI's SMAC writes files into its `folder`. `modules` is a folder of more modules for NNI's program. Answers of NNI's
    program are kept in the folder `kept`, if it is given: they depend on NNI 3.0, that program and the question alone.
    """

    def __init__(self, python: Path, folder: Path, modules: str = "", kept: Path | None = None) -> None:
        self._folder = folder
        self._kept = kept
        self._start_theirs = functools.partial(self._start, str(python), modules)
        self._programs = {"ours": self._start(sys.executable, str(SHIM))}

    def _start(self, python: str, modules: str) -> subprocess.Popen[str]:
        how: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": self._folder}
        variables = {**os.environ, "PYTHONPATH": modules}
        return subprocess.Popen([python, nni_answers.__file__], **how, env=variables)

    def ask(self, question: str, *arguments: Any) -> tuple[Any, Any]:
        """Return NNI's answer and ours."""
        line = json.dumps([question, *arguments]) + "\n"
        self._tell("ours", line)
        theirs = self._ask_theirs(line) if self._kept is None else self._find_or_ask(self._kept, line)
        return theirs, self._read("ours")

    def _find_or_ask(self, kept: Path, line: str) -> Any:
        program = Path(nni_answers.__file__).read_bytes()
        place = kept / f"{hashlib.sha256(program + line.encode()).hexdigest()}.json"
        if not place.exists():
            draft = place.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(self._ask_theirs(line)))
            draft.replace(place)
        return json.loads(place.read_text())

    def _ask_theirs(self, line: str) -> Any:
        if "theirs" not in self._programs:
            self._programs["theirs"] = self._start_theirs()
        self._tell("theirs", line)
        return self._read("theirs")

    def _tell(self, whose: str, line: str) -> None:
        stdin = self._programs[whose].stdin
        assert stdin
        stdin.write(line)
        stdin.flush()

    def _read(self, whose: str) -> Any:
        program = self._programs[whose]
        assert program.stdout
        for line in program.stdout:
            if line.startswith(nni_answers.MARK):  # NNI prints, too
                return json.loads(line.removeprefix(nni_answers.MARK))
        raise AssertionError(f"{program.args!r} has ended")

    def close(self) -> None:
        for program in self._programs.values():
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
