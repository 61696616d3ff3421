"""Tables of scikit-learn's models: all combinations of a few parameters, cross-validated, made by `model_record`.

A table is a model with data that comes with scikit-learn or with `river`, or is generated. The list, the grids and the
data were named before any tuner saw one of them, and all are reported: nobody looks at them while a tuner is changed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Grid = dict[str, list[Any]]
"""Values of each parameter: numbers in order, names, or dicts with `_name` and a grid of their own."""

FILE = Path(__file__).with_name("model_tables.npz")
STAGES = "stages"  # the parameter whose values are all reached by one training, the last one of a grid
SCALINGS = ["none", "standard", "minmax", "robust"]


def _powers(first: float, last: float, count: int) -> list[float]:
    """Return numbers at equal ratios."""
    return [first * (last / first) ** (k / (count - 1)) for k in range(count)]


def _named(**grids: Grid) -> list[dict[str, Any]]:
    return [{"_name": name, **grid} for name, grid in grids.items()]


_MODELS = _named(
    svm={"C": _powers(1e-2, 1e3, 6), "gamma": _powers(1e-4, 1e1, 6)},
    neighbours={"count": [1, 2, 3, 5, 8, 12, 18, 26, 36], "weights": ["uniform", "distance"]},
    tree={"depth": [1, 2, 3, 4, 6, 8, 12], "leaf": [1, 2, 4, 8, 16]},
    logistic={"C": _powers(1e-4, 1e3, 15)},
    bayes={"smoothing": _powers(1e-10, 1.0, 11)},
)
_NEIGHBOURS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50]

GRIDS: dict[str, Grid] = {
    "svm segment": {
        "C": _powers(1e-2, 1e4, 13),
        "gamma": _powers(1e-5, 1e1, 13),
        "kernel": ["rbf", "poly", "sigmoid"],
        "scaling": ["standard", "minmax", "robust"],
    },
    "svm friedman2": {"C": _powers(1e-2, 1e3, 12), "gamma": _powers(1e-4, 1e1, 12), "epsilon": _powers(1e-3, 1.0, 8)},
    "knn phishing": {
        "neighbours": _NEIGHBOURS,
        "metric": ["manhattan", "euclidean", "chebyshev"],
        "weights": ["uniform", "distance"],
        "scaling": SCALINGS,
        "components": [2, 4, 6, 9],
    },
    "knn digits": {
        "neighbours": _NEIGHBOURS[:14],
        "norm": [1, 2],
        "fading": [0, 1, 2, 4],
        "components": [2, 4, 6, 8, 11, 14, 18, 22, 27, 33, 40, 50],
    },
    "forest segment": {
        "depth": [1, 2, 3, 4, 6, 8, 12, 20],
        "leaf": [1, 2, 3, 5, 8, 13],
        "features": [0.06, 0.12, 0.25, 0.4, 0.7, 1.0],
        "share": [0.4, 0.9],
        STAGES: [2, 4, 8, 16],
    },
    "forest trump": {
        "depth": [1, 2, 3, 4, 6, 8, 12, 20],
        "leaf": [1, 2, 3, 5, 8],
        "features": [0.17, 0.34, 0.5, 0.67, 1.0],
        "splits": ["random", "best"],
        STAGES: [2, 4, 8, 16],
    },
    "boosting bananas": {
        "rate": _powers(0.01, 1.0, 9),
        "leaves": [2, 4, 8, 16, 31],
        "leaf": [1, 4, 12, 30],
        "l2": [0.0, 1.0, 30.0],
        STAGES: [5, 10, 20, 40],
    },
    "boosting diabetes": {
        "rate": _powers(0.01, 1.0, 9),
        "leaves": [2, 4, 8, 16, 31],
        "leaf": [1, 5, 20],
        "loss": ["squared_error", "absolute_error"],
        STAGES: [5, 10, 20, 40],
    },
    "sgd cancer": {
        "loss": ["log_loss", "hinge", "modified_huber"],
        "penalty": ["l2", "l1", "elasticnet"],
        "alpha": _powers(1e-6, 1e-1, 9),
        "rate": _powers(1e-4, 1.0, 8),
        "schedule": ["constant", "invscaling", "adaptive"],
    },
    "elastic diabetes": {
        "alpha": _powers(1e-4, 1.0, 16),
        "ratio": [0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0],
        "degree": [1, 2, 3],
        "scaling": ["standard", "minmax", "robust"],
    },
    "ridge chicks": {
        "alpha": _powers(1e-6, 1e2, 16),
        "kernel": _named(
            rbf={"gamma": _powers(1e-4, 1e1, 14)},
            laplacian={"gamma": _powers(1e-4, 1e1, 14)},
            poly={"gamma": _powers(1e-3, 1e1, 7), "degree": [2, 3, 4], "shift": [0.0, 0.3, 1.0, 3.0]},
        ),
    },
    "mlp trump": {
        "rate": _powers(1e-4, 0.3, 8),
        "momentum": [0.0, 0.5, 0.9, 0.97],
        "width": [4, 12, 36, 100],
        "layers": [1, 2],
        STAGES: [3, 6, 12, 24],
    },
    "pipeline flares": {
        "encoding": ["ordinal", "one-hot", "frequency", "target"],
        "kept": [2, 5, 10],
        "model": _MODELS,
    },
    "pipeline cancer": {
        "scaling": ["none", "standard", "robust"],
        "reduction": _named(nothing={}, components={"count": [2, 4, 8, 16]}, selection={"count": [2, 4, 8, 16]}),
        "model": _MODELS,
    },
}


def combinations(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield all combinations of the grid, the last parameter changing fastest."""
    for values in product(*([*_expanded(options)] for options in grid.values())):
        yield dict(zip(grid, values, strict=True))


def _expanded(options: list[Any]) -> Iterator[Any]:
    for option in options:
        if isinstance(option, dict):
            own = {name: values for name, values in option.items() if name != "_name"}
            yield from ({"_name": option["_name"], **one} for one in combinations(own))
        else:
            yield option


def describe(grid: Grid) -> dict[str, Any]:
    """Return the search space: numbers by the place of their value in the list, names and dicts as choices."""
    return {name: _describe_options(options) for name, options in grid.items()}


def _describe_options(options: list[Any]) -> dict[str, Any]:
    if isinstance(options[0], dict):
        own = [{name: values for name, values in option.items() if name != "_name"} for option in options]
        choices = [{"_name": option["_name"], **describe(grid)} for option, grid in zip(options, own, strict=True)]
        return {"_type": "choice", "_value": choices}
    if isinstance(options[0], str):
        return {"_type": "choice", "_value": options}
    return {"_type": "randint", "_value": [0, len(options)]}


@dataclass(frozen=True)
class ModelTable:
    """`losses` has a row for each combination and a column for each way to divide the data."""

    grid: Grid
    losses: np.ndarray
    rows: dict[str, int]

    @property
    def space(self) -> dict[str, Any]:
        return describe(self.grid)

    @cached_property
    def worth(self) -> np.ndarray:
        """Return the mean loss of each combination, scaled: 0 for the best one, 1 for the median."""
        import numpy as np

        means = self.losses.mean(axis=1)
        return np.asarray((means - means.min()) / (np.median(means) - means.min()))

    def row(self, parameters: dict[str, Any]) -> int:
        return self.rows[repr(_valued(self.grid, parameters))]

    def objective(self, seed: int) -> Callable[[dict[str, Any]], float]:
        """The loss of one way to divide the data: with one seed always the same one for the same parameters."""
        return lambda parameters: self.train(self.row(parameters), seed)

    def train(self, row: int, seed: int) -> float:
        """Return the loss of that way for the combination with this number."""
        return float(self.losses[row, random.Random(f"{seed} {row}").randrange(self.losses.shape[1])])


def _valued(grid: Grid, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the values in the places of numbers."""
    found: dict[str, Any] = {}
    for name, options in grid.items():
        chosen = parameters[name]
        if isinstance(chosen, dict):
            (option,) = (one for one in options if one["_name"] == chosen["_name"])
            own = {key: values for key, values in option.items() if key != "_name"}
            found[name] = {"_name": chosen["_name"], **_valued(own, chosen)}
        else:
            found[name] = chosen if isinstance(chosen, str) else options[int(chosen)]
    return found


@cache
def load_models(name: str) -> ModelTable:
    import numpy as np

    grid = GRIDS[name]
    with np.load(FILE) as file:
        losses = file[name].astype(float)
    rows = {repr(one): row for row, one in enumerate(combinations(grid))}
    if len(rows) != len(losses) or not math.isfinite(float(losses.sum())):
        raise ValueError(f"{FILE.name} does not fit the grid of {name}: make it again by benchmarks.model_record")
    return ModelTable(grid, losses, rows)
