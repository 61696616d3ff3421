"""What holds for every search space."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from nnilite.space import SearchSpace

NAMES = st.text("abcxyz_ '$\n\"é", min_size=1, max_size=4).filter(lambda name: name.strip() not in ("", "_name"))
FINITE = st.floats(-1e6, 1e6)
POSITIVE = st.floats(1e-3, 1e3)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), FINITE, st.text(max_size=3), st.lists(st.integers()))


def _spec(kind, value):
    return {"_type": kind, "_value": list(value)}


def _unique(values):
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())


BOUNDS = st.tuples(FINITE, FINITE).map(sorted)
LOG_BOUNDS = st.tuples(POSITIVE, POSITIVE).map(sorted)
MOMENTS = st.tuples(st.floats(-3, 3), st.floats(0.01, 3))
STEP = st.floats(0.01, 100)
INTEGERS = st.tuples(st.integers(-50, 50), st.integers(1, 50))
LEAVES = st.one_of(
    st.lists(PLAIN, min_size=1, max_size=5).map(lambda v: _spec("choice", _unique(v))),
    INTEGERS.map(lambda v: _spec("randint", (v[0], v[0] + v[1]))),
    BOUNDS.map(lambda v: _spec("uniform", v)),
    LOG_BOUNDS.map(lambda v: _spec("loguniform", v)),
    st.tuples(BOUNDS, STEP).map(lambda v: _spec("quniform", (*v[0], v[1]))),
    st.tuples(LOG_BOUNDS, STEP).map(lambda v: _spec("qloguniform", (*v[0], v[1]))),
    INTEGERS.map(lambda v: _spec("lograndint", (v[1], v[1] + abs(v[0])))),
    st.tuples(INTEGERS, st.integers(1, 9)).map(
        lambda v: _spec("qrandint", (v[0][0] * v[1], (v[0][0] + v[0][1]) * v[1], v[1]))
    ),
    st.tuples(INTEGERS, st.integers(1, 9)).map(
        lambda v: _spec("qlograndint", (v[0][1] * v[1], (v[0][1] + abs(v[0][0])) * v[1], v[1]))
    ),
    st.tuples(st.sampled_from(["normal", "lognormal"]), MOMENTS).map(lambda v: _spec(*v)),
    st.tuples(st.sampled_from(["qnormal", "qlognormal"]), MOMENTS, STEP).map(lambda v: _spec(v[0], (*v[1], v[2]))),
)


def _options(named):
    return _spec("choice", [{"_name": name, **below} for name, below in named.items()])


def _levels(inner):
    below = st.dictionaries(NAMES, inner, max_size=3)
    return st.dictionaries(NAMES, below, min_size=1, max_size=3).map(_options)


PARAMETERS = st.recursive(LEAVES, _levels, max_leaves=8)
SPACES = st.dictionaries(NAMES, PARAMETERS, min_size=1, max_size=4).map(SearchSpace.parse)
SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SPACES, SEEDS)
def test_a_sample_is_in_the_space_and_build_and_flatten_undo_each_other(space, rng):
    """One test, since to make up spaces takes longer than all of this."""
    parameters = space.sample(rng)
    assert space.contains(parameters) is None
    assert space.contains(json.loads(json.dumps(parameters))) is None, "after a trip through JSON"
    assert "unheard" in (space.contains({**parameters, "unheard": 1}) or "")
    flat = space.flatten(parameters)
    assert space.build(flat) == parameters
    assert space.flatten(space.build(flat)) == flat
    assert list(flat) == [parameter.path for parameter in space.active(flat)]


@given(BOUNDS, STEP, SEEDS)
def test_quniform_stays_within_its_bounds_and_among_its_points(bounds, step, rng):
    parameter = SearchSpace.parse({"x": _spec("quniform", (*bounds, step))}).parameters[0]
    value = parameter.sample(rng)
    assert bounds[0] <= value <= bounds[1]
    count = parameter.count or 0
    if count < 1000:
        points = list(parameter.points())
        assert len(set(points)) == len(points) == count
        assert value in points


@given(st.dictionaries(NAMES, LEAVES.filter(lambda s: s["_type"] in ("choice", "randint")), min_size=1, max_size=3))
def test_size_is_the_number_of_different_sets(given_space):
    space = SearchSpace.parse(given_space)
    flats = [{}]
    for parameter in space.parameters:
        flats = [{**flat, parameter.path: point} for flat in flats[:200] for point in parameter.points()][:400]
    built = {json.dumps(space.build(flat)) for flat in flats}
    assert len(built) == min(space.size or 0, len(flats))
