"""`python -m benchmarks.model_record [--jobs N] [--tables A,B]`: train all combinations of `model_tables`.

Needs scikit-learn, and `river` for some of the data (`pip install river`). A loss is that of data that was not trained
on: of one half by a model of the other half and the other way round. It is the share of wrong answers, or for numbers
the root of the mean square by that of the data itself. Each combination is trained on two such divisions. It takes
about ten minutes of processor time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.model_data import Split, divide, is_numbers
from benchmarks.model_tables import FILE, GRIDS, STAGES, combinations
from benchmarks.model_trainings import TRAININGS

if TYPE_CHECKING:
    import numpy as np

DIVISIONS = 2
WORST = 2.0  # of a training that diverged
CHUNK = 24  # combinations that a process trains at once, all stages of each


def main(arguments: list[str]) -> int:
    import numpy as np

    parser = argparse.ArgumentParser(prog="python -m benchmarks.model_record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tables", default=",".join(GRIDS))
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args(arguments)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # the processes are what runs in parallel
    arrays = dict(np.load(args.out)) if args.out.exists() else {}
    begun_s = time.monotonic()
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = {name: [pool.submit(train, *chunk) for chunk in chunks(name)] for name in args.tables.split(",")}
        for name, futures in waiting.items():
            arrays[name] = np.vstack([future.result() for future in futures]).astype(np.float32)
            print(f"{name}: {len(arrays[name])} combinations, {time.monotonic() - begun_s:.0f} s", flush=True)
            np.savez_compressed(args.out, **{one: arrays[one] for one in GRIDS if one in arrays})
    return 0


def chunks(name: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield combinations without their stages, which are trained at once."""
    grid = {key: values for key, values in GRIDS[name].items() if key != STAGES}
    rows = list(combinations(grid))
    for begin in range(0, len(rows), CHUNK):
        yield name, rows[begin : begin + CHUNK]


def train(name: str, rows: list[dict[str, Any]]) -> np.ndarray:
    """Return a row for each combination with each stage, and a column for each division."""
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([losses for parameters in rows for losses in _train_all(name, parameters)])


def _train_all(name: str, parameters: dict[str, Any]) -> np.ndarray:
    import numpy as np

    model, data = name.split()
    stages = GRIDS[name].get(STAGES, [1])
    found = np.zeros((len(stages), DIVISIONS))
    for division in range(DIVISIONS):
        halves = divide(data, division)
        errors = [_compute_errors(TRAININGS[model](parameters, split, stages), split, len(stages)) for split in halves]
        whole = np.mean(errors, axis=0)
        found[:, division] = np.minimum(np.sqrt(whole) if is_numbers(data) else whole, WORST)
    return found


def _compute_errors(answers: Iterator[np.ndarray], split: Split, stages: int) -> list[float]:
    """Return the mean error after each stage; those that a diverging training does not reach are the worst."""
    import numpy as np

    found: list[float] = []
    try:
        for given in answers:
            wrong = np.square(given - split.test_y) if split.numbers else given != split.test_y
            mean = float(np.mean(wrong))
            found.append(min(mean, WORST**2) if np.isfinite(mean) else WORST**2)
    except ValueError as error:
        if "finite" not in str(error) and "infinity" not in str(error):
            raise
    return found + [WORST**2] * (stages - len(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
