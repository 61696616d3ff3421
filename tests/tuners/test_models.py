"""What the tuners with a model compute themselves, against scikit-learn, scipy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from nnilite._plugins import lookup
from nnilite.space import SearchSpace
from nnilite.tuning.class_args import construct
from nnilite.tuning.cube import Cube

SPACE = SearchSpace.parse(
    {
        "x": {"_type": "uniform", "_value": [0, 1]},
        "kind": {"_type": "choice", "_value": ["a", "b", "c"]},
        "flag": {"_type": "choice", "_value": [True, False]},
        "many": {"_type": "randint", "_value": [0, 1000]},
    }
)


# scipy and scikit-learn are imported where they are used: that takes more than a second, and each process of a test run
# reads this file, though only one runs its tests.


@pytest.fixture
def numbers():
    return np.random.default_rng(0)


def test_the_mean_and_deviation_of_a_process_are_those_of_scikit_learn(numbers):
    from sklearn.gaussian_process import GaussianProcessRegressor

    from nnilite_sklearn._gaussian import Gaussian

    rows, others = numbers.random((40, 3)), numbers.random((9, 3))
    values = np.sin(5 * rows[:, 0]) + rows[:, 1] + 0.1 * numbers.standard_normal(40)
    gaussian = Gaussian((0, 1, 1), 2.5, 1e-6)
    kernel, _ = gaussian.fitted(rows, values)
    mean, deviation = gaussian.process(kernel, rows, values, np.zeros((0, 3))).predict(others)
    model = GaussianProcessRegressor(kernel, alpha=1e-6, optimizer=None).fit(rows, values)
    expected, noisy = model.predict(others, return_std=True)
    assert mean == pytest.approx(expected)
    assert deviation**2 + kernel.k2.noise_level == pytest.approx(noisy**2)


def test_the_options_of_a_choice_share_a_length_scale_with_the_right_gradient(numbers):
    from nnilite_sklearn._gaussian import _Shared

    kernel, rows = _Shared((0, 1, 1, 2), np.array([0.4, 0.7, 1.2]), (0.03, 20.0), 2.5), numbers.random((12, 4))
    values, slopes = kernel(rows, eval_gradient=True)
    for k, theta in enumerate(np.eye(3) * 1e-6 + kernel.theta):
        assert (kernel.clone_with_theta(theta)(rows) - values) / 1e-6 == pytest.approx(slopes[..., k], abs=1e-5)


def test_hyperparameters_are_set_and_told_in_the_order_of_scikit_learn(numbers):
    from sklearn.gaussian_process.kernels import Sum

    from nnilite_sklearn._gaussian import Gaussian

    ours = Gaussian((0, 1, 1), 2.5, 1e-6)._start()
    theirs = Sum(ours.k1, ours.k2)
    assert list(ours.theta) == list(theirs.theta)
    theta, rows = numbers.standard_normal(4), numbers.random((5, 3))
    ours, theirs = ours.clone_with_theta(theta), theirs.clone_with_theta(theta)
    assert list(ours.theta) == list(theirs.theta)
    assert np.array_equal(ours(rows), theirs(rows))


def test_results_are_bent_as_scipy_does(numbers):
    from scipy import stats

    from nnilite_sklearn._surrogate import _bend

    values = np.exp(2 * numbers.standard_normal(50))
    level = (values - values.mean()) / values.std()
    assert _bend(level)[0] == pytest.approx(stats.yeojohnson(level)[0], abs=1e-4)


def test_how_much_bending_changes_the_density_is_told(numbers):
    from nnilite_sklearn._surrogate import standardized

    losses = np.exp(2 * numbers.standard_normal(50))
    level, bent, density = standardized(losses, bends=False)[0], *standardized(losses)
    order = np.argsort(losses)
    assert np.all(np.diff(bent[order]) > 0)
    x = level[order]
    slopes = np.interp(x[1:-1], (x[1:] + x[:-1]) / 2, np.diff(bent[order]) / np.diff(x))
    assert np.sum(np.log(slopes)) == pytest.approx(density, rel=0.1)


def test_the_prior_of_hyperparameters_has_the_right_gradient():
    from nnilite_sklearn._gaussian import _prior

    theta = np.log([1.7, 0.2, 3.0, 0.01])
    rare, slopes = _prior(theta)
    for k, step in enumerate(np.eye(4) * 1e-7):
        assert (_prior(theta + step)[0] - rare) / 1e-7 == pytest.approx(slopes[k], rel=1e-4)


@pytest.mark.parametrize(("loss", "bends"), [(lambda x: np.exp(9 * x), True), (lambda x: x, False)])
def test_losses_are_bent_if_that_makes_them_likelier(numbers, loss, bends):
    from nnilite_sklearn._gp import GPTuner

    tuner = GPTuner("minimize", seed=0)
    tuner.update_search_space({"x": {"_type": "uniform", "_value": [0, 1]}})
    rows = numbers.random((40, 1))
    assert tuner._find_likeliest(rows, loss(rows[:, 0]))[1] is bends


def test_the_features_of_a_normal_parameter_are_evenly_spaced():
    cube = Cube(SearchSpace.parse({"n": {"_type": "normal", "_value": [5, 2]}}))
    rows = cube.positions([{("n",): value} for value in (-1, 1, 3, 5, 11)])
    assert cube.features(rows)[:, 0] == pytest.approx([0, 1 / 3 * 0.5, 1 / 3, 0.5, 1])


def test_normal_parameters_are_searched_up_to_three_standard_deviations(numbers):
    cube = Cube(SearchSpace.parse({"n": {"_type": "normal", "_value": [0, 1]}}))
    drawn = cube.drawn(5000, numbers)
    far = [cube.flat(row)["n",] for row in (*drawn, *cube.near(drawn[:1] * 0, 5000, numbers))]
    assert min(far) >= -3.001
    assert max(far) <= 3.001


def test_neighbours_differ_in_one_finite_column():
    cube = Cube(SPACE)
    (row,) = cube.positions([{("x",): 0.3, ("kind",): 1, ("flag",): 0, ("many",): 997}])
    found = [cube.flat(other) for other in cube.neighbours(row)]
    changed = [{path[0]: raw for path, raw in flat.items() if raw != cube.flat(row)[path]} for flat in found]
    many = [{"many": 997 + step} for step in (-16, -8, -4, -2, -1, 1, 2)]
    assert changed == [{"kind": 0}, {"kind": 2}, {"flag": 1}, *many]


CELLS = {f"x{k}": {"_type": "randint", "_value": [0, 5]} for k in range(4)}
NUMBERS = {f"x{k}": {"_type": "uniform", "_value": [0, 4]} for k in range(4)}


@pytest.mark.parametrize("name", ["GP", "SMAC", "DNGO"])
@pytest.mark.parametrize("space", [pytest.param(CELLS, id="cells"), pytest.param(NUMBERS, id="numbers")])
def test_a_point_that_failed_is_not_what_the_model_proposes_over_and_over(space, name, monkeypatch):
    tuner = construct(lookup.tuner_class(name), {"optimize_mode": "minimize", "seed": 1})
    tuner.update_search_space(space)
    for number in range(20):
        parameters = tuner.generate_parameters(number)
        tuner.receive_trial_result(number, parameters, sum((value - 3) ** 2 for value in parameters.values()))
        tuner.trial_end(number, True)
    asked = []
    monkeypatch.setattr(tuner, "_suggest", lambda *given, real=tuner._suggest: asked.append(1) or real(*given))
    proposed = []
    for number in range(20, 30):
        proposed.append(tuner.generate_parameters(number))
        tuner.trial_end(number, False)
    assert len(asked) == len(proposed)  # so none was thrown away as known
    points = np.array([list(one.values()) for one in proposed])
    alike = np.abs(points[:, None] - points[None]).max(axis=2) < 1e-3
    assert alike.sum(axis=1).max() <= 2  # a second chance, and no third


@pytest.mark.parametrize("name", ["GP", "Metis", "SMAC", "DNGO"])
def test_losses_beyond_the_square_root_of_the_largest_float_are_learned(name):
    args = {"GP": {}, "Metis": {}, "SMAC": {}, "DNGO": {"trials_per_update": 5, "num_epochs_per_training": 5}}[name]
    tuner = construct(lookup.tuner_class(name), {"optimize_mode": "minimize", "seed": 1, **args})
    tuner.update_search_space(SPACE.json)
    for number in range(12):
        tuner.receive_trial_result(number, tuner.generate_parameters(number), [1e308, -1e308, 1e200, 0.5][number % 4])
    assert tuner.generate_parameters(12)


def test_losses_of_any_size_are_levelled_alike(numbers):
    from nnilite_sklearn._surrogate import standardized

    losses = numbers.random(12) - 0.5
    expected, density = standardized(losses)
    for factor in (1e-200, 1e307):
        found, same = standardized(losses * factor)
        assert found == pytest.approx(expected)
        assert same == pytest.approx(density)
