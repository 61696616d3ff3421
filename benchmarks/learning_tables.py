"""Learning curves of real trainings: all combinations of a few parameters for 81 epochs, made by `learning_record`.

A table is a model with data that comes with scikit-learn or is generated. `HELD_OUT` was named before anything was
measured: nobody looks at these while an assessor is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

FILE = Path(__file__).with_name("learning_tables.npz")
EPOCHS = 81

_MLP: dict[str, list[Any]] = {
    "rate": [1e-4, 2.5e-4, 6e-4, 1.5e-3, 4e-3, 1e-2, 2.5e-2, 6e-2, 0.15, 0.4],
    "width": [4, 8, 16, 32, 64],
    "alpha": [1e-5, 1e-3, 1e-1],
    "batch": [32, 128],
}
_SGD: dict[str, list[Any]] = {
    "rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0],
    "alpha": [1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1],
    "penalty": ["l2", "l1", "elasticnet"],
}
_BOOSTING: dict[str, list[Any]] = {
    "rate": [0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6, 1.0],
    "depth": [1, 2, 3, 5, 8],
    "subsample": [0.4, 0.7, 1.0],
    "features": [0.3, 1.0],
}
GRIDS = {"mlp": _MLP, "sgd": _SGD, "boosting": _BOOSTING}

DEVELOPMENT = ("mlp digits", "mlp noisy", "sgd digits", "boosting cancer", "boosting friedman")
HELD_OUT = ("mlp cancer", "mlp friedman", "sgd noisy", "sgd friedman", "boosting diabetes")
NAMES = DEVELOPMENT + HELD_OUT


@dataclass(frozen=True)
class LearningTable:
    """`losses` has a row for each combination, the last parameter changing fastest, and a column for each epoch."""

    name: str
    losses: np.ndarray
    seconds: np.ndarray  # of processor time for an epoch of each combination, on the machine that made the table

    @property
    def values(self) -> dict[str, list[Any]]:
        return GRIDS[self.name.split()[0]]

    @property
    def space(self) -> dict[str, Any]:
        """Numbers by the place of their value in the list, names as choices."""
        return {
            name: {"_type": "choice", "_value": values}
            if isinstance(values[0], str)
            else {"_type": "randint", "_value": [0, len(values)]}
            for name, values in self.values.items()
        }

    def row(self, parameters: dict[str, Any]) -> int:
        row = 0
        for name, values in self.values.items():
            place = values.index(parameters[name]) if isinstance(values[0], str) else int(parameters[name])
            row = row * len(values) + place
        return row

    @property
    def whole_s(self) -> float:
        """What a whole trial takes on average."""
        return float(self.seconds.mean()) * EPOCHS

    def regret(self, loss: float) -> float:
        """0 for the best loss of the table, 1 for the median of what its combinations reach."""
        reached = self.losses.min(axis=1)
        return float((loss - reached.min()) / max(float(_median(reached)) - reached.min(), 1e-9))


def _median(values: np.ndarray) -> float:
    import numpy as np

    return float(np.median(values))


@cache
def load(name: str) -> LearningTable:
    import numpy as np

    with np.load(FILE) as file:
        return LearningTable(name, file[f"{name} losses"].astype(float), file[f"{name} seconds"].astype(float))
