"""What the models of `model_tables` are trained with: data that packages ship, or that is generated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

ROWS = 400  # of each, drawn with a seed of its own
NUMBERS = ("friedman2", "diabetes", "trump", "chicks")
NAMES = ("flares",)  # whose columns are names, given as whole numbers


@dataclass(frozen=True)
class Split:
    """What is trained on and what is not. Wanted numbers have mean 0 and variance 1 in the whole of the data."""

    key: tuple[str, int, int]
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    numbers: bool

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Split) and self.key == other.key


def is_numbers(data: str) -> bool:
    return data in NUMBERS


@cache
def divide(data: str, division: int) -> tuple[Split, Split]:
    """Return both halves, each trained on once."""
    from sklearn.model_selection import KFold, StratifiedKFold

    x, y = _load(data)
    numbers = is_numbers(data)
    folds = (KFold if numbers else StratifiedKFold)(2, shuffle=True, random_state=division)
    one, two = (
        Split((data, division, half), x[train], y[train], x[test], y[test], numbers)
        for half, (train, test) in enumerate(folds.split(x, y))
    )
    return one, two


@cache
def _load(data: str) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    x, y = MAKERS[data]()
    chosen = np.random.default_rng(0).permutation(len(x))[:ROWS]
    x, y = np.asarray(x, float)[chosen], np.asarray(y)[chosen]
    return (x, (y - y.mean()) / y.std()) if is_numbers(data) else (x, y.astype(int))


def _streamed(name: str, answer: Callable[[Any], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return a data set of river; its names become whole numbers."""
    import numpy as np
    from river import datasets

    rows = list(getattr(datasets, name)())
    columns = zip(*(row.values() for row, _ in rows), strict=True)
    x = np.array([_numbered(column) for column in columns], float).T
    return x, np.array(_numbered([answer(y) for _, y in rows]), float)


def _numbered(values: Any) -> list[float]:
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return [places[value] if isinstance(value, str) else float(value) for value in values]


def _bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets

    x, y = getattr(datasets, name)(return_X_y=True)
    return x, y


def _generate() -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets

    x, y = datasets.make_friedman2(ROWS, noise=100.0, random_state=22)
    return x, y


MAKERS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "digits": lambda: _bundled("load_digits"),
    "cancer": lambda: _bundled("load_breast_cancer"),
    "diabetes": lambda: _bundled("load_diabetes"),
    "segment": lambda: _streamed("ImageSegments", str),
    "phishing": lambda: _streamed("Phishing", bool),
    "bananas": lambda: _streamed("Bananas", bool),
    "trump": lambda: _streamed("TrumpApproval", float),
    "chicks": lambda: _streamed("ChickWeights", float),
    "flares": lambda: _streamed("SolarFlare", lambda counts: counts["c-class-flares"] > 0),
    "friedman2": _generate,
}
