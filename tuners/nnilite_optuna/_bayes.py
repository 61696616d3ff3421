"""Bayesian optimisation by a Gaussian process: what `Auto` does while results are few."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from nnilite.records import Json
from nnilite.tuning.learning import LearningTuner, Point, PointState, canonical

if TYPE_CHECKING:
    import numpy as np
    from threadpoolctl import ThreadpoolController

    from nnilite.tuning.cube import Cube, Matrix, Vector
    from nnilite_optuna._feasible import Feasible

_FAR, _NEAR = 700, 300  # candidates of a proposal: anywhere, and near the best results
_ROUNDS, _AROUND = 6, 120  # local search around the best candidates
_LEADERS = 6  # the best points, around which candidates are drawn
_MOST_CHECKED = 200  # against constraints, each time
_PRIOR_WEIGHT = 8.0  # results after which the logarithm of the prior counts as much as that of the improvement
_STRAYS_EACH = 3  # how many proposals have one at random, in a space with branches
_NEARLY_ALIKE = 1e6  # deducted from the score of nearly alike points


class ExpectedGain(NamedTuple):
    """The rows of the best results, and the logarithm of what feature rows are expected to gain over them.

    gain: None while nothing is feasible.
    """

    leaders: Matrix
    gain: Callable[[Matrix], Vector] | None


class BayesTuner(LearningTuner):
    """A Gaussian process, and the point of the largest expected improvement. All space types, nested ones included.

    Defaults of parameters weigh the improvement less the more results there are (Hvarfner et al., 2022, "piBO:
    Augmenting Acquisition Functions with User Beliefs for Bayesian Optimization"). Result constraints: see `Feasible`.

    While several results share the smallest loss, each second point is far from all others, whatever the model says,
    and in a space with nested choices each third point is drawn at random. SMAC draws each second one, everywhere
    (Hutter, Hoos and Leyton-Brown, 2011, "Sequential Model-Based Optimization for General Algorithm Configuration").
    """

    scores_prior = True
    weighs_violations = True

    def _restart(self) -> None:
        from nnilite.tuning.cube import Cube
        from nnilite_optuna._posterior import Posterior

        self._cube: Cube = Cube(self.space)
        self._posterior: Posterior = Posterior(self._cube)
        self._count = 0
        self._has_branches = any(parameter.nested for parameter in self.space.parameters)

    def _opened(self, point: Point) -> None:
        self._count += 1

    def _closed(self, point: Point) -> None:
        row = self._posterior.learn(point)
        if point.state is PointState.FAILED and self._posterior.is_new_failure(row):
            # The failure may have been bad luck, so the point gets a second chance.
            self._seen.discard(canonical(point.parameters))

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        import numpy as np

        from nnilite.tuning.cube import generator
        from nnilite_optuna._design import draw_far, draw_first

        if not self._cube.width:
            return self.space.sample(rng)
        running = self._cube.positions([p.flat for p in self._running.values() if p.flat is not None])
        begins = self._count < min(10, 2 + self._cube.width) or self._posterior.results < 2
        # What is learned of one branch says little of the parameters of another, so the process would not leave the
        # first that did well.
        strays = not begins and self._has_branches and self._count % _STRAYS_EACH == 0
        if (begins or strays) and self._prior is not None and rng.random() < 0.5:
            return self.space.build(self._prior.draw(rng))
        if strays:
            return self.space.sample(rng)
        if begins:
            place, known = (self.seed, self._count), (self._posterior.tried, running)

            def allowed(row: Vector) -> bool:
                return self._rules is None or self._rules.violated(self.space.build(self._cube.flat(row))) is None

            row = draw_first(self._cube, place, known, generator(rng), allowed)
            return self.space.build(self._cube.flat(row))
        # The process would try the whole plateau, point by point, as nothing else promises as much.
        if self._count % 2 and self._posterior.is_on_plateau():
            row = draw_far(self._cube, np.vstack([self._posterior.tried, running]), generator(rng))
            return self.space.build(self._cube.flat(row))
        # Matrices are small: on a busy machine more threads take twenty times the processor.
        with _find_libraries().limit(limits=1):
            row = self._best(running, generator(rng))
        return self.space.build(self._cube.flat(row))

    def _best(self, running: Matrix, numbers: np.random.Generator) -> Vector:
        """Return the most promising of candidates that are drawn anywhere, then searched near the best ones."""
        import numpy as np

        cube, feasible, success = self._cube, self._posterior.feasible(), self._posterior.success()
        expected = self._find_gain(np.vstack([running, success.hopeless]), feasible, numbers)
        finite = self.distinct and not cube.continuous.any()
        tried = {row.tobytes() for row in (*self._posterior.closed, *running)} if finite else set()

        def score(candidates: Matrix) -> Vector:
            found = np.zeros(len(candidates))
            if expected.gain is not None:
                found = expected.gain(cube.features(candidates))
            found = success.weigh(found, candidates)
            if feasible is not None:
                found = found + feasible.log_chance(candidates)
            if self._prior is not None:
                found = found + _PRIOR_WEIGHT / self._posterior.results * self._prior.log_density(cube, candidates)
            found = np.where(cube.nearly_alike(candidates, running), found - _NEARLY_ALIKE, found)
            if not tried:
                return found
            return np.where([row.tobytes() in tried for row in cube.settled(candidates)], -np.inf, found)

        found = np.vstack([cube.drawn(_FAR, numbers), cube.near(expected.leaders, _NEAR, numbers)])
        scores = score(found)
        for _ in range(_ROUNDS):
            top = self._leaders(found, scores)
            around = np.vstack([cube.near(found[top], _AROUND, numbers), cube.neighbours(found[top[0]])])
            found, scores = np.vstack([found[top], around]), np.concatenate([scores[top], score(around)])
        return np.asarray(found[self._leaders(found, scores)[0]])

    def _find_gain(self, aside: Matrix, feasible: Feasible | None, numbers: np.random.Generator) -> ExpectedGain:
        """Return what to expect of candidates. `aside`: rows to keep away from, since trials run there or fail."""
        import numpy as np

        process, rows = self._posterior.process()
        means, _ = process.predict(self._cube.features(rows))
        violations = np.zeros(len(rows)) if feasible is None else feasible.violations
        leaders = rows[np.lexsort((means, violations))[:5]]
        lowest = float(means[violations == 0.0].min(initial=math.inf))
        if lowest == math.inf:
            return ExpectedGain(leaders, None)
        process = process.condition_on_mean(self._cube.features(aside))
        return ExpectedGain(leaders, lambda features: log_improvement(*process.predict(features), lowest))

    def _leaders(self, rows: Matrix, scores: Vector) -> list[int]:
        """Return the numbers of the best rows, the best first: of those that satisfy the constraints, if any does."""
        import numpy as np

        order = [int(k) for k in np.argsort(-scores, kind="stable")[:_MOST_CHECKED]]
        rules = self._rules
        if rules is None:
            return order[:_LEADERS]
        good = (k for k in order if rules.violated(self.space.build(self._cube.flat(rows[k]))) is None)
        return list(islice(good, _LEADERS)) or order[:_LEADERS]


@cache
def _find_libraries() -> ThreadpoolController:
    """Return the libraries with threads of their own in this process; to find them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def log_improvement(mean: Vector, deviation: Vector, lowest: float) -> Vector:
    """Return the logarithm of the expected improvement below `lowest`, which ranks candidates even where it is tiny."""
    import numpy as np

    z = (lowest - mean) / deviation
    near = np.maximum(z, -6.0)
    plain = np.log(np.exp(-0.5 * near**2) / math.sqrt(2.0 * math.pi) + near * 0.5 * _erfc(-near / math.sqrt(2.0)))
    far = np.square(np.minimum(z, -6.0))
    tail = -0.5 * far - 0.5 * math.log(2.0 * math.pi) - np.log(far) + np.log1p(-3.0 / far + 15.0 / far**2)
    return np.asarray(np.where(z > -6.0, plain, tail) + np.log(deviation))


def _erfc(values: Vector) -> Vector:
    """Apply math.erfc to each: numpy alone has no such function."""
    import numpy as np

    return np.fromiter(map(math.erfc, values.tolist()), dtype=float, count=len(values))
