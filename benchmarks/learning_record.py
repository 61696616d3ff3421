"""`python -m benchmarks.learning_record [--jobs N]`: train all combinations of the tables in `learning_tables`.

Needs scikit-learn. A loss is that of data that was not trained on: the share of wrong answers, or for regressions the
root of the mean square by that of the data itself. It takes about 20 minutes of processor time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.learning_tables import EPOCHS, FILE, GRIDS, NAMES

if TYPE_CHECKING:
    import numpy as np

MOST_TRAINED = 500
WORST = 2.0  # of a training that diverged
CHUNK = 25  # combinations that a process trains at once
Split = tuple[Any, Any, Any, Any]
Row = tuple[list[float], float]


def main(arguments: list[str]) -> int:
    import numpy as np

    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args(arguments)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # the processes are what runs in parallel
    arrays = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = {name: [pool.submit(trained, *chunk) for chunk in chunks(name)] for name in NAMES}
        for name, futures in waiting.items():
            rows = [row for future in futures for row in future.result()]
            arrays[f"{name} losses"] = np.array([losses for losses, _ in rows], np.float16)
            arrays[f"{name} seconds"] = np.array([seconds for _, seconds in rows], np.float32)
            print(f"{name}: {len(rows)} combinations", file=sys.stderr, flush=True)
    np.savez_compressed(args.out, **arrays)
    return 0


def chunks(name: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    grid = GRIDS[name.split()[0]]
    rows = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    for begin in range(0, len(rows), CHUNK):
        yield name, rows[begin : begin + CHUNK]


def trained(name: str, rows: list[dict[str, Any]]) -> list[Row]:
    """Return the losses of each combination, and the processor time of an epoch."""
    model, data = name.split()
    train, split = TRAININGS[model], load(data)
    found = []
    for parameters in rows:
        begun_s = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = list(train(parameters, split))
        losses += [WORST] * (EPOCHS - len(losses))  # the numbers of the model became infinite
        found.append(([min(loss, WORST) for loss in losses], (time.process_time() - begun_s) / EPOCHS))
    return found


def train_mlp(parameters: dict[str, Any], split: Split) -> Iterator[float]:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    kind = MLPClassifier if _is_classes(split) else MLPRegressor
    model = kind(
        (parameters["width"],),
        learning_rate_init=parameters["rate"],
        alpha=parameters["alpha"],
        batch_size=parameters["batch"],
        random_state=0,
    )
    return _train_by_parts(model, split)


def train_sgd(parameters: dict[str, Any], split: Split) -> Iterator[float]:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    kind = SGDClassifier if _is_classes(split) else SGDRegressor
    model = kind(
        eta0=parameters["rate"],
        alpha=parameters["alpha"],
        penalty=parameters["penalty"],
        learning_rate="constant",
        random_state=0,
    )
    return _train_by_parts(model, split)


def _train_by_parts(model: Any, split: Split) -> Iterator[float]:
    x, y, test_x, test_y = split
    more = {"classes": sorted(set(y.tolist()))} if _is_classes(split) else {}
    for _ in range(EPOCHS):
        try:
            model.partial_fit(x, y, **more)
            found = model.predict(test_x)
        except ValueError:  # scikit-learn's word for numbers that are not finite any more
            return
        yield _compute_loss(found, test_y, split)


def train_boosting(parameters: dict[str, Any], split: Split) -> Iterator[float]:
    """An epoch is a tree. Those of all epochs are grown in one call, which gives the same as one by one."""
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    kind = GradientBoostingClassifier if _is_classes(split) else GradientBoostingRegressor
    x, y, test_x, test_y = split
    model = kind(
        n_estimators=EPOCHS,
        learning_rate=parameters["rate"],
        max_depth=parameters["depth"],
        subsample=parameters["subsample"],
        max_features=parameters["features"],
        random_state=0,
    ).fit(x, y)
    for found in model.staged_predict(test_x):
        yield _compute_loss(found, test_y, split)


TRAININGS: dict[str, Callable[[dict[str, Any], Split], Iterator[float]]] = {
    "mlp": train_mlp,
    "sgd": train_sgd,
    "boosting": train_boosting,
}


def _is_classes(split: Split) -> bool:
    return split[1].dtype.kind == "i"


def _compute_loss(found: np.ndarray, wanted: np.ndarray, split: Split) -> float:
    import numpy as np

    if _is_classes(split):
        return float((found != wanted).mean())
    loss = float(np.sqrt(((found - wanted) ** 2).mean()) / wanted.std())
    return loss if np.isfinite(loss) else WORST


@cache
def load(data: str) -> Split:
    """What is trained on and what is not, scaled by the former."""
    import numpy as np
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    makers: dict[str, Callable[[], Any]] = {
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
        "friedman": lambda: datasets.make_friedman1(2000, noise=1.0, random_state=0),
        "noisy": lambda: datasets.make_classification(
            2000, n_informative=8, n_redundant=4, n_classes=4, flip_y=0.1, random_state=0
        ),
    }
    x, y = makers[data]()
    y = y.astype(int) if data in ("digits", "cancer", "noisy") else (y - y.mean()) / y.std()
    share = min(MOST_TRAINED / len(x), 0.6)
    x, test_x, y, test_y = train_test_split(x, y, train_size=share, random_state=0)
    mean, width = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    return (x - mean) / width, y, (test_x - mean) / width, test_y


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
