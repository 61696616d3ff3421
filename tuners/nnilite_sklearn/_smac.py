"""SMAC: a random forest as the model, expected improvement, and a walk from the best points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnilite.tuning.class_args import one_of
from nnilite_sklearn._surrogate import SurrogateTuner, log_improvement

if TYPE_CHECKING:
    import numpy as np

    from nnilite.tuning.cube import Matrix, Vector

_TREES = 40
_LUCK = 0.1  # share of trials at random, so that no region is abandoned forever
_FAR, _NEAR, _WALKS = 1000, 500, 5


class SMACTuner(SurrogateTuner):
    """NNI's SMAC (Hutter et al., 2011, "Sequential Model-Based Optimization for General Algorithm Configuration").

    All space types, nested ones included. At its best with many choices and with parameters that hardly matter.

    Args:
        optimize_mode: "maximize" or "minimize".
        config_dedup: accepted for compatibility with NNI: in a finite space, no point is tried twice anyway.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError, PluginError
    """

    nested = True
    most_points = 1500

    def __init__(self, optimize_mode: str = "maximize", config_dedup: bool = False, seed: int | None = None) -> None:
        super().__init__(optimize_mode, 10, seed)
        one_of("config_dedup", config_dedup, (True, False))

    def _best(self, numbers: np.random.Generator) -> Vector:
        import numpy as np

        if numbers.random() < _LUCK:
            return np.asarray(self._cube.drawn(1, numbers)[0])
        rows, values = self._history()
        forest = _Forest(*self._add_unmeasured(rows, values), numbers)
        best = float(np.min(values))

        def worth(tried: Matrix) -> Vector:
            return log_improvement(*forest.predict(self._cube.features(tried)), best)

        score = self._fresh(worth)
        top = rows[np.argsort(values, kind="stable")[:10]]
        tried = np.vstack([self._cube.drawn(_FAR, numbers), self._cube.near(top, _NEAR, numbers)])
        scores = score(tried)
        for _ in range(_WALKS):
            around = self._cube.near(tried[np.argsort(-scores, kind="stable")[:10]], 100, numbers)
            tried, scores = np.vstack([tried, around]), np.concatenate([scores, score(around)])
        return np.asarray(tried[int(np.argmax(scores))])

    def _add_unmeasured(self, rows: Matrix, values: Vector) -> tuple[Matrix, Vector]:
        """Return features and values, with the worst value for running points that have none yet."""
        import numpy as np

        unmeasured = self._list_unmeasured()
        lies = np.full(len(unmeasured), float(np.max(values)))
        return self._cube.features(np.vstack([rows, unmeasured])), np.concatenate([values, lies])


class _Forest:
    """A random forest: mean and spread of its trees' predictions.

    scikit-learn's own forest grows the same trees, but spends a third of its time on copies and checks of arguments.
    """

    def __init__(self, features: Matrix, values: Vector, numbers: np.random.Generator) -> None:
        import numpy as np
        from sklearn.tree import DecisionTreeRegressor

        rows, count = np.asarray(features, dtype=np.float32), len(values)
        self._trees = []
        for seed in numbers.integers(2**31, size=_TREES):
            drawn = np.bincount(numbers.integers(count, size=count), minlength=count).astype(float)
            tree = DecisionTreeRegressor(min_samples_leaf=2, max_features=5 / 6, random_state=int(seed))
            self._trees.append(tree.fit(rows, values, sample_weight=drawn, check_input=False).tree_)

    def predict(self, features: Matrix) -> tuple[Vector, Vector]:
        import numpy as np

        rows = np.asarray(features, dtype=np.float32)
        leaves = [tree.apply(rows) for tree in self._trees]
        means = np.array([tree.value[leaf, 0, 0] for tree, leaf in zip(self._trees, leaves, strict=True)])
        within = np.array([tree.impurity[leaf] for tree, leaf in zip(self._trees, leaves, strict=True)])
        return means.mean(axis=0), np.sqrt(means.var(axis=0) + within.mean(axis=0) + 1e-8)
