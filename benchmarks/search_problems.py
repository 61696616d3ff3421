"""What is searched: functions of the BBOB suite, mixed and nested spaces, and the tuning of scikit-learn models.

Everything is minimised. Where the smallest value there is is not known, regrets are counted from the best one that any
solver found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from nnilite.space import SearchSpace

Space = dict[str, Any]
Objective = Callable[[dict[str, Any]], float]

BBOB = {1: "sphere", 3: "Rastrigin", 7: "step ellipsoid", 8: "Rosenbrock", 10: "ellipsoid", 15: "rotated Rastrigin",
        17: "Schaffers", 20: "Schwefel", 21: "Gallagher"}  # fmt: skip
DIMENSIONS = 5


@dataclass(frozen=True)
class Problem:
    """`objective(seed)` gives the function of one run, and its smallest value or None."""

    name: str
    family: str
    space: Space
    trials: int
    objective: Callable[[int], tuple[Objective, float | None]]

    @property
    def nested(self) -> bool:
        return any(parameter.parent is not None for parameter in SearchSpace.parse(self.space).parameters)


def problems(quick: bool = False) -> list[Problem]:
    """Return all problems, or a few for a quick look."""
    bbob = [bbob_problem(number) for number in ((1, 8, 15) if quick else BBOB)]
    others = [mixed(), nested(), *(() if quick else (svm(), forest(), pipeline()))]
    return bbob + others


def bbob_problem(number: int) -> Problem:
    space = {f"x{k}": {"_type": "uniform", "_value": [-5, 5]} for k in range(DIMENSIONS)}

    def objective(seed: int) -> tuple[Objective, float | None]:
        from cocoex.bare_problem import BareProblem

        function = BareProblem("bbob", number, DIMENSIONS, seed % 15 + 1)
        return lambda p: float(function([p[f"x{k}"] for k in range(DIMENSIONS)])), float(function.best_value())

    return Problem(f"BBOB f{number} {BBOB[number]}", "BBOB, 5 numbers", space, 100, objective)


def mixed() -> Problem:
    """A training as it is often tuned: one choice matters much, one hardly; rate and size depend on each other."""
    space = {
        "rate": {"_type": "loguniform", "_value": [1e-6, 1]},
        "batch": {"_type": "choice", "_value": [16, 32, 64, 128, 256]},
        "optimizer": {"_type": "choice", "_value": ["sgd", "adam", "rmsprop", "adagrad"]},
        "layers": {"_type": "randint", "_value": [1, 9]},
        "dropout": {"_type": "quniform", "_value": [0, 0.9, 0.05]},
        "decay": {"_type": "loguniform", "_value": [1e-8, 1e-1]},
        "spread": {"_type": "normal", "_value": [0, 1]},
    }

    def loss(p: dict[str, Any]) -> float:
        wanted = {"sgd": -1.2, "adam": -3.1, "rmsprop": -3.4, "adagrad": -1.8}[p["optimizer"]]
        worth = {"sgd": 0.3, "adam": 0.0, "rmsprop": 0.15, "adagrad": 0.6}[p["optimizer"]]
        rate = (math.log10(p["rate"]) - wanted - 0.3 * math.log2(p["batch"] / 64)) ** 2
        depth = 0.1 * (p["layers"] - 5) ** 2 + 0.05 * abs(math.log2(p["batch"] / 64))
        rest = (p["dropout"] - 0.35) ** 2 * (1 + p["layers"]) + 0.02 * (math.log10(p["decay"]) + 4) ** 2
        return rate + worth + depth + rest + 0.1 * (p["spread"] - 0.7) ** 2

    return Problem("mixed types", "mixed and nested", space, 100, lambda seed: (loss, 0.0))


def nested() -> Problem:
    """Three models with parameters of their own; the best model looks poor until it is tuned."""
    space = {
        "model": {
            "_type": "choice",
            "_value": [
                {
                    "_name": "net",
                    "rate": {"_type": "loguniform", "_value": [1e-6, 1]},
                    "width": {"_type": "qloguniform", "_value": [4, 512, 4]},
                    "act": {"_type": "choice", "_value": ["relu", "tanh", "gelu"]},
                },
                {
                    "_name": "trees",
                    "depth": {"_type": "randint", "_value": [1, 30]},
                    "share": {"_type": "uniform", "_value": [0.1, 1]},
                },
                {"_name": "line", "penalty": {"_type": "loguniform", "_value": [1e-4, 1e4]}},
            ],
        },
        "scale": {"_type": "choice", "_value": ["none", "standard", "robust"]},
    }

    def loss(p: dict[str, Any]) -> float:
        m = p["model"]
        if m["_name"] == "line":
            found = 1.0 + 0.03 * (math.log10(m["penalty"]) - 1) ** 2
        elif m["_name"] == "trees":
            found = 0.6 + 0.004 * (m["depth"] - 11) ** 2 + (m["share"] - 0.4) ** 2
        else:
            found = 0.4 * (math.log10(m["rate"]) + 3) ** 2 + 0.1 * (math.log2(m["width"]) - 6) ** 2
            found += {"relu": 0.1, "tanh": 0.3, "gelu": 0.0}[m["act"]]
        return found + {"none": 0.4, "standard": 0.0, "robust": 0.1}[p["scale"]]

    return Problem("nested", "mixed and nested", space, 100, lambda seed: (loss, 0.0))


def svm() -> Problem:
    space = {
        "C": {"_type": "loguniform", "_value": [1e-3, 1e4]},
        "gamma": {"_type": "loguniform", "_value": [1e-6, 10]},
        "kernel": {"_type": "choice", "_value": ["rbf", "poly", "sigmoid"]},
        "coef0": {"_type": "uniform", "_value": [-1, 1]},
    }

    def error(p: dict[str, Any]) -> float:
        from sklearn.svm import SVC

        return _error(SVC(**p, max_iter=3000), "breast_cancer")

    return Problem("SVM, breast cancer", "scikit-learn", space, 50, lambda seed: (error, None))


def forest() -> Problem:
    space = {
        "max_depth": {"_type": "randint", "_value": [1, 20]},
        "min_samples_leaf": {"_type": "randint", "_value": [1, 20]},
        "max_features": {"_type": "uniform", "_value": [0.1, 1.0]},
        "criterion": {"_type": "choice", "_value": ["gini", "entropy"]},
        "ccp_alpha": {"_type": "loguniform", "_value": [1e-5, 0.1]},
    }

    def error(p: dict[str, Any]) -> float:
        from sklearn.ensemble import ExtraTreesClassifier

        return _error(ExtraTreesClassifier(n_estimators=8, random_state=0, **p), "digits")

    return Problem("trees, digits", "scikit-learn", space, 50, lambda seed: (error, None))


def pipeline() -> Problem:
    """Which model, and its parameters: a nested space."""
    space = {
        "model": {
            "_type": "choice",
            "_value": [
                {
                    "_name": "neighbours",
                    "n_neighbors": {"_type": "randint", "_value": [1, 40]},
                    "weights": {"_type": "choice", "_value": ["uniform", "distance"]},
                    "p": {"_type": "uniform", "_value": [1, 3]},
                },
                {"_name": "ridge", "alpha": {"_type": "loguniform", "_value": [1e-4, 1e4]}},
                {
                    "_name": "svr",
                    "C": {"_type": "loguniform", "_value": [1e-2, 1e4]},
                    "gamma": {"_type": "loguniform", "_value": [1e-5, 10]},
                    "epsilon": {"_type": "loguniform", "_value": [1e-2, 50]},
                },
            ],
        }
    }

    def error(p: dict[str, Any]) -> float:
        from sklearn.linear_model import Ridge
        from sklearn.neighbors import KNeighborsRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        kinds = {"neighbours": KNeighborsRegressor, "ridge": Ridge, "svr": SVR}
        args = {key: value for key, value in p["model"].items() if key != "_name"}
        return _error(make_pipeline(StandardScaler(), kinds[p["model"]["_name"]](**args)), "diabetes")

    return Problem("model choice, diabetes", "scikit-learn", space, 50, lambda seed: (error, None))


@cache
def _data(name: str) -> tuple[Any, Any]:
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return x[:600], y[:600]


def _error(model: Any, data: str) -> float:
    """1 - the mean score of three folds."""
    import warnings

    from sklearn.model_selection import cross_val_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 1.0 - float(cross_val_score(model, *_data(data), cv=3).mean())
