"""`Auto`: what it chooses, and how it hands over."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from nnilite import Search
from nnilite._plugins.lookup import tuner_class
from nnilite.config import from_dict
from nnilite.errors import ConfigError
from nnilite.space import SearchSpace
from nnilite.tuner import Call, CallKind
from nnilite.tuning.class_args import construct
from nnilite.tuning.cube import Cube
from nnilite.tuning.learning import Point, PointState
from nnilite_optuna import AutoTuner, _auto, _bayes, _matern, _posterior
from nnilite_optuna._auto import choose
from nnilite_optuna._bayes import BayesTuner, log_improvement
from nnilite_optuna._fronts import find_front, make_gain
from nnilite_optuna._matern import MaternProcess, likeliest
from nnilite_optuna._posterior import Posterior, rank_worse_half
from nnilite_optuna._success import Success, log_below

NUMBERS = {f"x{k}": {"_type": "uniform", "_value": [-5, 5]} for k in range(3)}
MIXED = {**NUMBERS, "kind": {"_type": "choice", "_value": ["a", "b", "c"]}}


def loss(parameters: dict) -> float:
    return sum((x - 1.3) ** 2 for name, x in parameters.items() if name != "kind") + (parameters.get("kind") == "b")


def searched(tuner: AutoTuner, trials: int) -> list[dict]:
    found = []
    for number in range(trials):
        found.append(tuner.generate_parameters(number))
        tuner.receive_trial_result(number, found[-1], loss(found[-1]))
        tuner.trial_end(number, True)
    return found


@pytest.mark.parametrize(
    ("space", "objectives", "results", "name"),
    [
        (NUMBERS, 1, 0, "GP"),
        (MIXED, 1, 299, "GP"),
        (NUMBERS, 1, 300, "CMAES"),
        (MIXED, 1, 300, "TPE"),
        ({f"x{k}": {"_type": "uniform", "_value": [0, 1]} for k in range(41)}, 1, 0, "TPE"),
        (MIXED, 2, 0, "GP"),
        (MIXED, 2, 300, "NSGA2"),
        (MIXED, 5, 0, "NSGA2"),
    ],
)
def test_space_objectives_and_results_decide(space, objectives, results, name):
    assert choose(SearchSpace.parse(space), objectives, results).name == name


@pytest.mark.parametrize(
    ("space", "objectives"), [(NUMBERS, None), (MIXED, None), (MIXED, {"a": "minimize", "b": "maximize"})]
)
def test_a_replay_goes_on_as_the_search_would_have_after_it_handed_over(monkeypatch, space, objectives):
    monkeypatch.setattr(_auto, "_MOST_MODELLED", 12)
    old, calls = AutoTuner(seed=5, objectives=objectives), [Call(CallKind.SPACE, value=space)]
    old.update_search_space(space)
    luck, running = random.Random(2), {}
    for number in range(40):
        running[number] = old.generate_parameters(number)
        calls.append(Call(CallKind.GENERATE, number, parameters=running[number]))
        while len(running) > 3:
            ended = luck.choice(list(running))
            parameters = running.pop(ended)
            result = {"a": loss(parameters), "b": parameters["x0"]} if objectives else loss(parameters)
            value = Call(CallKind.RESULT, ended, parameters=parameters, value=result)
            ends = [value, Call(CallKind.END, ended, success=True)][luck.random() < 0.2 :]
            for call in ends:
                old.apply(call)
            calls += ends
    again = AutoTuner(seed=5, objectives=objectives)
    again.replay(Call(**json.loads(json.dumps(call.__dict__))) for call in calls)
    assert not old.explain_choice().startswith("GP")
    assert again.explain_choice() == old.explain_choice()
    expected = [old.generate_parameters(number) for number in range(40, 50)]
    assert [again.generate_parameters(number) for number in range(40, 50)] == expected


def test_it_goes_on_with_cmaes_whatever_its_seed_is():
    for seed in (0, 1, 2**31):
        tuner = AutoTuner("minimize", seed=seed)
        tuner.update_search_space(NUMBERS)
        luck = random.Random(seed)
        known = [{name: luck.uniform(-5, 5) for name in NUMBERS} for _ in range(300)]
        tuner.import_data([{"parameter": parameters, "value": loss(parameters)} for parameters in known])
        assert tuner.explain_choice().startswith("CMAES")
        assert min(map(loss, searched(tuner, 100))) < min(map(loss, known)) / 10


def test_it_says_what_it_chose_and_why(caplog):
    caplog.set_level("INFO")
    tuner = AutoTuner(seed=1)
    tuner.update_search_space(MIXED)
    assert tuner.explain_choice() == "GP proposes parameters: a Gaussian process does best in the first 300 results"
    assert f"after 0 results, {tuner.explain_choice()}" in caplog.text


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name",
    ["Auto", "GP", "TPE", "CMAES", *(pytest.param(name, marks=pytest.mark.long) for name in ("Metis", "SMAC", "DNGO"))],
)
def test_sixteen_at_once_are_not_nearly_alike_while_one_in_five_fails(name, seed):
    tuner = construct(tuner_class(name), {"optimize_mode": "minimize", "seed": seed})
    tuner.update_search_space(NUMBERS)
    luck, cube, running = random.Random(seed), Cube(tuner.space), {}
    for number in range(60):
        running[number] = tuner.generate_parameters(number)
        if len(running) < 16:
            continue
        rows = cube.positions([tuner.space.flatten(parameters) for parameters in running.values()])
        gaps = [float(np.linalg.norm(one - other)) for one, other in itertools.combinations(rows, 2)]
        assert min(gaps) > 0.01
        ended = luck.choice(sorted(running))
        parameters = running.pop(ended)
        if luck.random() > 0.2:
            tuner.receive_trial_result(ended, parameters, loss(parameters))
        tuner.trial_end(ended, True)


@pytest.mark.parametrize("objectives", [None, {"a": "minimize", "b": "minimize"}])
def test_what_many_begin_with_covers_each_parameter_evenly_and_does_not_crowd_at_the_ends(objectives):
    space = {f"x{k}": {"_type": "uniform", "_value": [0, 16]} for k in range(6)}
    for seed in range(4):
        tuner = AutoTuner("minimize", seed=seed, objectives=objectives)
        tuner.update_search_space(space)
        begun = [tuner.generate_parameters(number) for number in range(16)]
        for name in space:
            cells = [int(parameters[name]) for parameters in begun[1:]]  # the first one runs alone
            assert len(set(cells)) == 15
        again = AutoTuner("minimize", seed=seed, objectives=objectives)
        again.update_search_space(space)
        assert [again.generate_parameters(number) for number in range(16)] == begun


def test_what_many_begin_with_obeys_constraints_and_comes_once():
    tuner = AutoTuner("minimize", seed=1)
    tuner.constraints = ("x0 + x1 <= 3",)
    tuner.update_search_space(CELLS)
    begun = [tuner.generate_parameters(number) for number in range(30)]
    assert all(one["x0"] + one["x1"] <= 3 for one in begun)
    assert len({json.dumps(one, sort_keys=True) for one in begun}) == 30


def test_the_process_computes_by_one_thread(monkeypatch):
    _bayes._find_libraries.cache_clear()  # in a process of tests, others are loaded later
    libraries, best = [], BayesTuner._best
    monkeypatch.setattr(BayesTuner, "_best", lambda *args: libraries.extend(threadpool_info()) or best(*args))
    tuner = AutoTuner("minimize", seed=1)
    tuner.update_search_space(NUMBERS)
    with threadpool_limits(limits=2):
        searched(tuner, 8)
    assert {library["num_threads"] for library in libraries} == {1}


def test_no_proposal_waits_for_the_fits_of_all_objectives(monkeypatch):
    goals = dict.fromkeys("abc", "minimize")
    tuner = AutoTuner(objectives=goals, seed=1)
    tuner.update_search_space(NUMBERS)
    luck = random.Random(1)
    known = [{name: luck.uniform(-5, 5) for name in NUMBERS} for _ in range(45)]
    tuner.import_data([{"parameter": p, "value": dict(zip("abc", p.values(), strict=True))} for p in known])
    tuner.generate_parameters(0)
    fits = []
    monkeypatch.setattr(_posterior, "likeliest", lambda *args: fits.append(number) or likeliest(*args))
    for number in range(1, 9):
        parameters = tuner.generate_parameters(number)
        tuner.receive_trial_result(number, parameters, dict(zip("abc", parameters.values(), strict=True)))
        tuner.trial_end(number, True)
    assert max(Counter(fits).values()) == 2  # losses bent, and not


CELLS = {f"x{k}": {"_type": "randint", "_value": [0, 5]} for k in range(3)}


def test_what_failed_by_bad_luck_has_a_second_chance_and_no_third():
    tuner = AutoTuner("minimize", seed=2)
    tuner.update_search_space(CELLS)
    searched(tuner, 15)
    best = {"x0": 1, "x1": 1, "x2": 1}
    assert best not in [point.parameters for point in tuner.points]
    proposed = []
    for number in range(15, 50):
        proposed.append(tuner.generate_parameters(number))
        if proposed[-1] == best:
            tuner.trial_end(number, False)
        else:
            tuner.receive_trial_result(number, proposed[-1], loss(proposed[-1]))
    assert [proposed.count(one) for one in proposed].count(1) == len(proposed) - 2
    assert proposed.count(best) == 2


def test_a_region_where_all_trials_fail_is_left():
    tuner = AutoTuner("minimize", seed=2)
    tuner.update_search_space(NUMBERS)
    failed = []
    for number in range(60):
        parameters = tuner.generate_parameters(number)
        failed.append(parameters["x0"] > 0)  # the better half, by what losses say
        if failed[-1]:
            tuner.trial_end(number, False)
        else:
            tuner.receive_trial_result(number, parameters, loss(parameters))
    assert sum(failed[30:]) <= 20  # which were all thirty


def test_lone_failures_hardly_lower_the_chance_of_success():
    cube = Cube(SearchSpace.parse(NUMBERS))
    rows = list(cube.drawn(40, np.random.default_rng(0)))
    alone = Success(cube, rows[1:], rows[:1])
    assert len(alone.hopeless) == 0
    assert alone.log_chance(np.array(rows[:1]))[0] > np.log(0.3)
    together = Success(cube, rows[1:], [rows[0] + 0.01 * k for k in range(10)])
    assert len(together.hopeless) == 10
    assert together.log_chance(np.array(rows[:1]))[0] < np.log(0.2) < together.log_chance(np.array([1 - rows[0]]))[0]


def test_it_finds_the_bottom_of_a_bowl_and_the_right_choice():
    tuner = AutoTuner("minimize", seed=4)
    tuner.update_search_space(MIXED)
    assert min(map(loss, searched(tuner, 40))) < 0.05


def test_a_flat_objective_does_no_harm():
    tuner = AutoTuner(seed=4)
    tuner.update_search_space(MIXED)
    for number in range(30):
        tuner.receive_trial_result(number, tuner.generate_parameters(number), 1e300 if number % 2 else -1e300)
    other = AutoTuner(seed=4)
    other.update_search_space(MIXED)
    for number in range(30):
        other.receive_trial_result(number, other.generate_parameters(number), 0.5)
    assert len({json.dumps(point.parameters) for point in other.points}) == 30


def test_the_likeliest_scales_have_slopes_that_agree_with_differences():
    numbers = np.random.default_rng(0)
    features, values = numbers.random((12, 2)), numbers.standard_normal(12)
    squares = np.stack([np.square(column[:, None] - column[None, :]).ravel() for column in features.T])
    theta = np.array([0.2, -0.5, 0.3, -3.0])
    _, slopes = _matern._unlikely(theta, squares, values)
    for k, slope in enumerate(slopes):
        step = 1e-6 * np.eye(4)[k]
        above, below = (_matern._unlikely(theta + sign * step, squares, values)[0] for sign in (1, -1))
        assert slope == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-6)


def test_the_process_passes_through_results_without_noise_and_knows_what_it_believes():
    numbers = np.random.default_rng(1)
    features = numbers.random((20, 2))
    values = np.sin(6 * features[:, 0])
    scales, _ = likeliest(features, values - values.mean(), [0, 1])
    process = MaternProcess(scales, features, values - values.mean())
    mean, deviation = process.predict(features)
    assert np.abs(mean - values + values.mean()).max() < 0.1
    assert process.condition_on_mean(np.array([[0.5, 0.5]])).predict(np.array([[0.5, 0.5]]))[1][0] < 0.01
    assert deviation.max() < process.predict(np.array([[3.0, 3.0]]))[1][0]


def test_improvement_is_exact_near_and_falls_far_away():
    mean, deviation = np.array([0.0, 5.999, 6.001, 40.0]), np.ones(4)
    found = log_improvement(mean, deviation, 0.0)
    assert found[0] == pytest.approx(np.log(1 / np.sqrt(2 * np.pi)))
    assert found[1] == pytest.approx(found[2], abs=0.02)
    assert list(found) == sorted(found, reverse=True)


@pytest.mark.parametrize("count", [3, 64, 65, 200])
def test_a_triangle_is_inverted_by_its_blocks(count):
    root = np.tril(np.random.default_rng(count).random((count, count))) + count * np.eye(count)
    inverse = _matern._invert(root)
    assert np.abs(inverse @ root - np.eye(count)).max() < 1e-12
    assert np.array_equal(inverse, np.tril(inverse))


def two_losses(count: int) -> list[Point]:
    """Points with a result of two objectives."""
    luck = random.Random(count)
    found = []
    for _ in range(count):
        flat = {(name,): luck.uniform(-5, 5) for name in NUMBERS}
        losses = (sum(raw**2 for raw in flat.values()), luck.random())
        found.append(Point({}, flat, state=PointState.DONE, losses=losses))
    return found


def test_no_proposal_waits_for_more_than_half_of_a_long_fit(monkeypatch):
    fits = []
    monkeypatch.setattr(_posterior, "likeliest", lambda *args: fits.append(len(args[1])) or likeliest(*args))
    posterior, counts = Posterior(Cube(SearchSpace.parse(NUMBERS))), []
    for point in two_losses(105):
        posterior.learn(point)
        fits.clear()
        if posterior.results >= _posterior._LONG_FITS:
            for objective in (0, 1):
                posterior.process(objective)
            counts.append(len(fits))
    assert counts[0] > 1  # as nothing was fitted before
    assert max(counts[1:]) == 1
    assert sum(counts[1:]) >= 12  # to 88, 96 and 104 results: two objectives, with losses bent and not


def test_of_the_worse_half_of_losses_the_ranks_count_alone():
    ranked = rank_worse_half(np.array([0.2, 7.0, 0.4, 0.0, 1e300, 0.3, 7.0]))
    assert ranked[[3, 0, 5, 2]] == pytest.approx([-1.0, -0.5, -0.25, 0.0])
    assert 0.0 < ranked[1] == ranked[6] < ranked[4] < 2.0


@pytest.mark.parametrize("losses", [[0.5] * 6, [0.0] * 5 + [1e300], [-1e308, 1e308, 1e308, 1e308], [1e-300, 2, 3, 4]])
def test_losses_that_are_alike_or_huge_have_finite_ranks_in_their_order(losses):
    ranked = rank_worse_half(np.array(losses))
    assert np.isfinite(ranked).all()
    assert [one < other for one, other in itertools.pairwise(ranked)] == [a < b for a, b in itertools.pairwise(losses)]


@pytest.mark.parametrize(
    ("losses", "margins", "found"),
    [
        ([(0.5,), (0.5,), (0.5,), (0.7,)], (), True),
        ([(0.5,), (0.5,), (0.7,), (0.7,)], (), False),
        ([(0.4,), (0.5,), (0.5,), (0.5,)], (), False),
        ([(0.5, 0.5)] * 4, (), False),
        ([(0.5,)] * 4, (1.0,), False),
        ([(0.5,)] * 4, (-1.0,), True),
        ([None] * 4, (), False),
    ],
)
def test_a_plateau_is_where_three_results_share_the_smallest_loss(losses, margins, found):
    posterior = Posterior(Cube(SearchSpace.parse(NUMBERS)))
    assert not posterior.is_on_plateau()
    for number, one in enumerate(losses):
        state = PointState.DONE if one else PointState.POOR
        posterior.learn(
            Point({}, {(name,): float(number) for name in NUMBERS}, state=state, losses=one, margins=margins)
        )
    assert posterior.is_on_plateau() is found


def propose_where_some_diverge(diverged: float) -> list[dict]:
    tuner, found = AutoTuner("minimize", seed=1), []
    tuner.update_search_space(NUMBERS)
    for number in range(20):
        found.append(tuner.generate_parameters(number))
        value = diverged if found[-1]["x0"] > 2.0 else loss(found[-1])
        tuner.receive_trial_result(number, found[-1], value)
        tuner.trial_end(number, True)
    return found


def test_how_far_trainings_diverged_changes_no_proposal():
    assert propose_where_some_diverge(1e3) == propose_where_some_diverge(1e30)


@pytest.mark.parametrize(("losses", "margins"), [((0.0, 1.0), ()), ((0.0,), (-1.0,))])
def test_with_several_objectives_or_constraints_losses_count_as_they_are(losses, margins):
    spread = []
    for worst in (5.0, 500.0):
        posterior = Posterior(Cube(SearchSpace.parse(NUMBERS)))
        for number in range(5):
            found = (worst if number == 4 else float(number), *losses[1:])
            flat = {(name,): float(number) for name in NUMBERS}
            posterior.learn(Point({}, flat, state=PointState.DONE, losses=found, margins=margins))
        spread.append(posterior._known(5, 0)[1].max())
    assert spread == [5.0, 500.0]


def test_a_divided_fit_is_the_same_after_a_replay():
    space = SearchSpace.parse(NUMBERS)
    live, points = Posterior(Cube(space)), two_losses(92)
    known = np.full((1, 3), 0.3)
    for number, point in enumerate(points, 1):
        live.learn(point)
        if number in (87, 88, 89, 90, 92):  # a fit to 88 is begun, and ended, then one of the second objective
            again = Posterior(Cube(space))
            for other in points[:number]:
                again.learn(other)
            expected = [live.process(objective)[0].predict(known) for objective in (0, 1)]
            assert [again.process(objective)[0].predict(known) for objective in (0, 1)] == expected


def test_a_config_without_tuner_gets_auto_and_one_with_arguments_alone_too():
    base = {
        "searchSpace": MIXED,
        "trialCommand": "true",
        "trialConcurrency": 1,
        "trainingService": {"platform": "local"},
    }
    assert from_dict(base).checked().tuner.name == "Auto"
    config = from_dict({**base, "tuner": {"classArgs": {"optimize_mode": "least"}}}).checked()
    with pytest.raises(ConfigError, match="must be one of 'maximize', 'minimize', not 'least'"):
        config.check_algorithms()


def test_a_search_without_a_tuner_takes_auto_for_several_objectives_too():
    search = Search(MIXED, optimize={"size": "minimize", "worth": "maximize"}, seed=1)
    found = search.run(lambda p: {"size": loss(p), "worth": p["x0"]}, trials=5)
    assert len(found.trials) == 5
    assert found.front
    assert "AutoTuner" in repr(search)


def test_of_several_objectives_the_front_grows_further_than_by_chance():
    """The sum of both objectives is 1 on the front, and 1.5 on average."""

    def two(parameters: dict) -> dict:
        away = sum((parameters[name] - 0.5) ** 2 for name in ("y", "z"))
        return {"a": parameters["x"] + away, "b": 1 - parameters["x"] + away}

    space = {name: {"_type": "uniform", "_value": [0, 1]} for name in "xyz"}
    result = Search(space, optimize={"a": "minimize", "b": "minimize"}, seed=1).run(two, trials=30)
    late = result.trials[20:]
    assert max(trial.value["a"] + trial.value["b"] for trial in late) < 1.1
    assert max(trial.value["a"] for trial in late) - min(trial.value["a"] for trial in late) > 0.3


def test_of_several_objectives_many_at_once_are_not_nearly_alike():
    search = Search(NUMBERS, optimize={"a": "minimize", "b": "maximize"}, seed=3)
    search.run(lambda p: {"a": loss(p), "b": p["x0"]}, trials=12)
    rows = np.array([[trial.parameters[name] / 10 for name in NUMBERS] for trial in (search.ask() for _ in range(8))])
    apart = np.linalg.norm(rows[:, None] - rows[None, :], axis=2)[np.triu_indices(8, 1)]
    assert apart.min() > 0.02


class Known:
    """A process that knows one column of its features nearly exactly."""

    def __init__(self, column: int) -> None:
        self.column = column

    def predict(self, features):
        return features[:, self.column], np.full(len(features), 1e-3)


def test_the_gain_of_a_point_is_what_it_adds_to_the_front():
    front = np.array([[0.0, 1.0], [1.0, 0.0]])
    gain = make_gain(front, front, [Known(0), Known(1)], np.random.default_rng(0))
    better, beside, worse = np.exp(gain(np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 1.05]])))
    assert better > 1.5 * beside > 100 * worse


def test_half_of_the_gains_count_what_makes_the_front_longer():
    front = np.array([[0.4, 0.5], [0.5, 0.4]])
    known, beyond = np.vstack([front, [1.0, 1.0]]), np.array([[0.2, 0.8]])
    gains = [make_gain(front, known, [Known(0), Known(1)], np.random.default_rng(seed)) for seed in range(40)]
    counting = sum(gain(beyond)[0] > gain(front)[0] + 1.0 for gain in gains)
    assert 10 < counting < 30


def test_the_front_has_of_equal_rows_the_first():
    assert find_front(np.array([[1, 2], [0, 3], [1, 2], [2, 2], [3, 0]])) == [1, 0, 4]
    values = np.random.default_rng(0).integers(4, size=(40, 3))
    beaten = [
        any((other <= row).all() and ((other < row).any() or k < place) for k, other in enumerate(values))
        for place, row in enumerate(values)
    ]
    assert sorted(find_front(values)) == [place for place, is_beaten in enumerate(beaten) if not is_beaten]


def test_the_chance_far_below_is_no_float_but_its_logarithm_is():
    found = log_below(np.array([0.0, -29.999, -30.001, -100.0]))
    assert found == pytest.approx([-0.693147, -454.291, -454.351, -5005.524], abs=0.002)
