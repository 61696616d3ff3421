"""Published problems of several objectives, and the hypervolume that their true fronts have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Objectives to be minimised, of `width` numbers between 0 and 1; `front(n)` gives about n points of the front."""

    name: str
    width: int
    function: Callable[[Values], Values]
    front: Callable[[int], Values]
    held_out: bool = False  # no tuner was changed by what it does here

    @property
    def space(self) -> dict[str, Any]:
        return {f"x{k}": {"_type": "uniform", "_value": [0, 1]} for k in range(self.width)}

    def result(self, parameters: dict[str, float]) -> list[float]:
        return self.function(np.array([parameters[f"x{k}"] for k in range(self.width)])).tolist()


def zdt(number: int, x: Values) -> Values:
    """Zitzler, Deb, Thiele, 2000, "Comparison of Multiobjective Evolutionary Algorithms: Empirical Results"."""
    first = x[0]
    far = 1.0 + 9.0 * float(np.mean(x[1:]))
    if number == 6:
        first = 1.0 - math.exp(-4.0 * first) * math.sin(6.0 * math.pi * first) ** 6
        far = 1.0 + 9.0 * float(np.mean(x[1:])) ** 0.25
    ratio = first / far
    bend = {1: 1.0 - math.sqrt(ratio), 2: 1.0 - ratio**2, 6: 1.0 - ratio**2}.get(number)
    if bend is None:
        bend = 1.0 - math.sqrt(ratio) - ratio * math.sin(10.0 * math.pi * first)
    return np.array([first, far * bend])


def zdt_front(number: int, count: int) -> Values:
    first = np.linspace(0.2807753191 if number == 6 else 0.0, 1.0, count)
    second = {1: 1.0 - np.sqrt(first), 2: 1.0 - first**2, 6: 1.0 - first**2}.get(number)
    if second is None:
        second = 1.0 - np.sqrt(first) - first * np.sin(10.0 * math.pi * first)
    return np.column_stack([first, second])


def zdt4(x: Values) -> Values:
    """ZDT4, with 21 ** 5 local fronts; all parameters between 0 and 1."""
    y = 10.0 * x[1:] - 5.0
    far = 1.0 + 10.0 * len(y) + float(np.sum(y**2 - 10.0 * np.cos(4.0 * math.pi * y)))
    return np.array([x[0], far * (1.0 - math.sqrt(x[0] / far))])


def dtlz2(x: Values) -> Values:
    """Deb, Thiele, Laumanns, Zitzler, 2002, "Scalable multi-objective optimization test problems"; three objectives."""
    far = 1.0 + float(np.sum(np.square(x[2:] - 0.5)))
    one, other = x[0] * math.pi / 2, x[1] * math.pi / 2
    return far * np.array([math.cos(one) * math.cos(other), math.cos(one) * math.sin(other), math.sin(one)])


def dtlz2_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, math.isqrt(count))
    return np.array([dtlz2(np.array([a, b, 0.5])) for a in side for b in side])


def dtlz1(x: Values) -> Values:
    y = x[2:] - 0.5
    far = 0.5 * (1.0 + 100.0 * (len(y) + float(np.sum(y**2 - np.cos(20.0 * math.pi * y)))))
    return far * np.array([x[0] * x[1], x[0] * (1.0 - x[1]), 1.0 - x[0]])


def dtlz1_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, math.isqrt(count))
    return np.array([dtlz1(np.array([a, b, 0.5])) for a in side for b in side])


def dtlz5(x: Values) -> Values:
    """DTLZ5, whose front is a curve in three dimensions."""
    far = float(np.sum(np.square(x[2:] - 0.5)))
    one, other = x[0] * math.pi / 2, math.pi / (4.0 * (1.0 + far)) * (1.0 + 2.0 * far * x[1])
    around = [math.cos(one) * math.cos(other), math.cos(one) * math.sin(other), math.sin(one)]
    return (1.0 + far) * np.array(around)


def dtlz5_front(count: int) -> Values:
    return np.array([dtlz5(np.array([a, 0.5, 0.5])) for a in np.linspace(0.0, 1.0, count)])


def dtlz7(x: Values) -> Values:
    far = 2.0 + 9.0 * float(np.mean(x[2:]))
    height = 3.0 - sum(float(one) / far * (1.0 + math.sin(3.0 * math.pi * one)) for one in x[:2])
    return np.array([x[0], x[1], far * height])


def dtlz7_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, math.isqrt(count))
    return np.array([dtlz7(np.array([a, b, 0.0])) for a in side for b in side])


def fonseca(x: Values) -> Values:
    """Fonseca and Fleming, 1995, "Multiobjective Genetic Algorithms Made Easy"; each parameter between -4 and 4."""
    x, off = 8.0 * x - 4.0, 1.0 / math.sqrt(len(x))
    return np.array([1.0 - math.exp(-float(np.sum((x - side) ** 2))) for side in (off, -off)])


def fonseca_front(count: int) -> Values:
    end = 1.0 / math.sqrt(3.0)
    return np.array([fonseca(np.full(3, (t + 4.0) / 8.0)) for t in np.linspace(-end, end, count)])


def branin_currin(x: Values) -> Values:
    """Belakaria, Deshwal, Doppa, 2019, "Max-value Entropy Search for Multi-Objective Bayesian Optimization"."""
    a, b = 15.0 * x[0] - 5.0, 15.0 * x[1]
    bowl = b - 5.1 / (4.0 * math.pi**2) * a * a + 5.0 / math.pi * a - 6.0
    branin = bowl**2 + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(a) + 10.0
    fall = 1.0 - math.exp(-1.0 / (2.0 * x[1])) if x[1] > 0.0 else 1.0
    high = 2300.0 * x[0] ** 3 + 1900.0 * x[0] ** 2 + 2092.0 * x[0] + 60.0
    return np.array([branin, fall * high / (100.0 * x[0] ** 3 + 500.0 * x[0] ** 2 + 4.0 * x[0] + 20.0)])


def branin_currin_front(count: int) -> Values:
    side = np.linspace(0.0, 1.0, 300)
    return np.array([branin_currin(np.array([a, b])) for a in side for b in side])


PROBLEMS = (
    *(
        Problem(f"ZDT{k}", 6, lambda x, k=k: zdt(k, x), lambda count, k=k: zdt_front(k, count))  # type: ignore[misc]
        for k in (1, 2, 3, 6)
    ),
    Problem("DTLZ2", 6, dtlz2, dtlz2_front),
    Problem("DTLZ7", 6, dtlz7, dtlz7_front),
    Problem("Branin and Currin", 2, branin_currin, branin_currin_front),
    Problem("ZDT4", 6, zdt4, lambda count: zdt_front(1, count), held_out=True),
    Problem("DTLZ1", 6, dtlz1, dtlz1_front, held_out=True),
    Problem("DTLZ5", 6, dtlz5, dtlz5_front, held_out=True),
    Problem("Fonseca and Fleming", 3, fonseca, fonseca_front, held_out=True),
)
BY_NAME = {problem.name: problem for problem in PROBLEMS}


def hypervolume(points: Values, reference: Values) -> float:
    """Return the volume between points and the reference, by slices of the last objective."""
    points = points[np.all(points < reference, axis=1)]
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    points = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        lowest = np.concatenate([[reference[0]], np.minimum.accumulate(points[:, 0])])
        falls = np.maximum(lowest[:-1] - points[:, 0], 0.0)
        return float(np.sum(falls * (reference[1] - points[:, 1])))
    ends = np.append(points[1:, -1], reference[-1])
    slices = [(k, end - point[-1]) for k, (point, end) in enumerate(zip(points, ends, strict=True))]
    return sum(thick * hypervolume(points[: k + 1, :-1], reference[:-1]) for k, thick in slices if thick > 0.0)


@cache
def goal(name: str) -> tuple[Values, float]:
    """Return the reference point of a problem, and the hypervolume of its true front."""
    problem = BY_NAME[name]
    luck = np.random.default_rng(0)
    reference = np.array([problem.function(luck.random(problem.width)) for _ in range(1000)]).max(axis=0)
    return reference, hypervolume(problem.front(2500), reference)
