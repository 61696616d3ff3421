"""DNGO: a neural network finds features in which the objective is linear, and a Bayesian regression does the rest."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from nnilite.tuning.class_args import whole_number
from nnilite.tuning.learning import derived_seed
from nnilite_sklearn._surrogate import SurrogateTuner, log_improvement

if TYPE_CHECKING:
    import numpy as np

    from nnilite.tuning.cube import Matrix, Vector

_LAYERS = (50, 50, 50)


class DNGOTuner(SurrogateTuner):
    """NNI's DNGO (Snoek et al., 2015, "Scalable Bayesian Optimization Using Deep Neural Networks"). Not nested.

    For long searches: its cost grows linearly with the number of trials, that of GP with the cube.

    Args:
        optimize_mode: "maximize" or "minimize".
        sample_size: candidates for each proposal.
        trials_per_update: number of results after which the network is trained again.
        num_epochs_per_training: passes over the history in each training.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError, PluginError
    """

    most_points = 2000

    def __init__(
        self,
        optimize_mode: str = "maximize",
        sample_size: int = 1000,
        trials_per_update: int = 20,
        num_epochs_per_training: int = 500,
        seed: int | None = None,
    ) -> None:
        self._every = whole_number("trials_per_update", trials_per_update, low=1)
        super().__init__(optimize_mode, min(self._every, 20), seed)
        self._samples = whole_number("sample_size", sample_size, low=1)
        self._epochs = whole_number("num_epochs_per_training", num_epochs_per_training, low=1)

    def _restart(self) -> None:
        super()._restart()
        self._network: tuple[int, Any] = (0, None)

    def _best(self, numbers: np.random.Generator) -> Vector:
        import numpy as np
        from sklearn.linear_model import BayesianRidge

        rows, values = self._history()
        basis = self._compute_basis(rows)
        unmeasured = self._list_unmeasured()
        line = BayesianRidge().fit(basis, values)
        if len(unmeasured):  # they are believed to give what is expected of them
            believed = self._compute_basis(unmeasured)
            line = BayesianRidge().fit(np.vstack([basis, believed]), np.concatenate([values, line.predict(believed)]))
        top = rows[np.argsort(values, kind="stable")[:10]]
        tried = np.vstack([self._cube.drawn(self._samples, numbers), self._cube.near(top, self._samples, numbers)])
        noise, best = 1.0 / float(line.alpha_), float(np.min(values))

        def worth(rows: Matrix) -> Vector:
            mean, deviation = line.predict(self._compute_basis(rows), return_std=True)
            return log_improvement(mean, np.sqrt(np.maximum(deviation**2 - noise, 1e-12)), best)

        return np.asarray(tried[int(np.argmax(self._fresh(worth)(tried)))])

    def _compute_basis(self, rows: Matrix) -> Matrix:
        """Return the output of the last hidden layer for position rows."""
        import numpy as np

        network = self._get_trained()
        out = 2.0 * self._cube.features(rows) - 1.0
        for weights, shift in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
            out = np.tanh(out @ weights + shift)
        return np.hstack([out, np.ones((len(out), 1))])

    def _get_trained(self) -> Any:
        """Return the network as trained on the first results, up to a multiple of `trials_per_update`."""
        from sklearn.neural_network import MLPRegressor

        until = max(len(self._ended) // self._every * self._every, min(self._every, len(self._ended)))
        if self._network[0] != until:
            rows, values = self._history(until)
            network = MLPRegressor(
                hidden_layer_sizes=_LAYERS,
                activation="tanh",
                alpha=1e-4,
                learning_rate_init=0.01,
                max_iter=self._epochs,
                n_iter_no_change=self._epochs,
                random_state=derived_seed(self.seed, until),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # training that stopped at the number of epochs
                self._network = (until, network.fit(2.0 * self._cube.features(rows) - 1.0, values))
        return self._network[1]
